"""A batch job as a child process: it prints its progress, and ends when its parent closes its standard input."""

from __future__ import annotations

import json
import os
import threading

STOPPED_STATUS = 1


def say(**what: int) -> None:
    """Print the progress of the job as one JSON object on one line."""
    print(json.dumps(what), flush=True)


def end_with_standard_input() -> None:
    """Start a thread that ends this process with ``STOPPED_STATUS`` as soon as its standard input ends."""
    threading.Thread(target=_wait_for_the_end, daemon=True).start()


def _wait_for_the_end() -> None:
    while os.read(0, 1):  # sys.stdin has a lock, which this thread would hold when the process exits
        pass
    os._exit(STOPPED_STATUS)
