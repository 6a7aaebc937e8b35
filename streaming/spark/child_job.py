"""A batch job as the child of whoever asked for it: it prints its progress, and ends when nobody waits for it."""

from __future__ import annotations

import json
import os
import threading

STOPPED_STATUS = 1


def say(**what: int) -> None:
    """Print how far the job is, one JSON object a line."""
    print(json.dumps(what), flush=True)


def end_with_standard_input() -> None:
    """From now on, end this process at once when its standard input ends."""
    threading.Thread(target=_wait_for_the_end, daemon=True).start()


def _wait_for_the_end() -> None:
    while os.read(0, 1):  # not through sys.stdin, whose lock this thread would hold at the regular end
        pass
    os._exit(STOPPED_STATUS)
