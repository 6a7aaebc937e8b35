"""Run a plane in the background: start its processes, start those again that end, and stop all upon a signal.

    python -m services.plane.stack.supervisor HOME [--shards N] [--base-port N] [--secure] [--datanodes N]

``deepclean up`` starts the supervisor, ``deepclean down`` sends it SIGTERM.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from schemas.private_files import keep_files_private
from services.plane.machine.errors import StackError
from services.plane.machine.signals import stopping_on_signals
from services.plane.stack.settings import purge_hours_settings, replication_settings, undo_window_settings
from services.plane.stack.stack import Stack


def run_plane(
    home: Path, shards: int | None, base_port: int, *, is_secured: bool = False, datanodes: int | None = None
) -> int:
    """Run the plane. Return 0 after a signal, or 1 if it does not start: standard error says why, in one sentence."""
    settings = {
        **undo_window_settings(os.environ),
        **purge_hours_settings(os.environ),
        **replication_settings(os.environ),
    }
    stack = Stack(home, shards, base_port=base_port, settings=settings, is_secured=is_secured, datanodes=datanodes)
    with stopping_on_signals():
        try:
            stack.start()
            stack.watch()
        except KeyboardInterrupt:
            stack.stop()
            return 0
        except StackError as error:
            stack.stop(error)
            print(error, file=sys.stderr)
            return 1


def main(arguments: list[str] | None = None) -> int:
    """Run the plane with the options of the command line. Return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m services.plane.stack.supervisor", description="Run the plane.")
    parser.add_argument("home", type=Path, help="where the plane keeps everything")
    parser.add_argument("--shards", type=int, help="number of shards; as many as before by default")
    parser.add_argument("--base-port", type=int, default=0, help="first of the ports; 0 takes free ones")
    parser.add_argument("--secure", action="store_true", help="refuse strangers; once on, a home stays so")
    parser.add_argument("--datanodes", type=int, help="number of datanodes; as many as before by default")
    options = parser.parse_args(arguments)
    keep_files_private()
    return run_plane(
        options.home,
        options.shards,
        options.base_port,
        is_secured=options.secure,
        datanodes=options.datanodes,
    )


if __name__ == "__main__":
    sys.exit(main())
