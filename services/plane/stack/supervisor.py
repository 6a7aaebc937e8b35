"""Run a plane in the background: start its processes, start those again that end, and stop all upon a signal.

    python -m services.plane.stack.supervisor HOME [--config FILE] [--shards N] [--base-port N] [--secure] …

``deepclean up`` starts the supervisor, ``deepclean down`` sends it SIGTERM.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from schemas.credentials import CredentialsError
from schemas.private_files import keep_files_private
from services.plane.machine.errors import StackError
from services.plane.machine.signals import stopping_on_signals
from services.plane.stack.description import PlaneDescription, read_description
from services.plane.stack.process_names import SERVICES
from services.plane.stack.settings import (
    described_settings,
    purge_hours_settings,
    replication_settings,
    undo_window_settings,
)
from services.plane.stack.stack import Stack

DEFAULT_BASE_PORT = 9700


def run_plane(
    home: Path,
    config: Path | None,
    shards: int | None,
    base_port: int | None,
    *,
    is_secured: bool = False,
    datanodes: int | None = None,
    has_page: bool = True,
) -> int:
    """Run what a plane has on this host. Return 0 after a signal, or 1 if it does not start: standard error says why.

    What is given goes before what the file says.
    """
    stack = None
    with stopping_on_signals():
        try:
            described = read_description(config)
            known = {**_described(described), **os.environ}
            settings = {**undo_window_settings(known), **purge_hours_settings(known), **replication_settings(known)}
            stack = Stack(
                home,
                shards or described.shards,
                base_port=_first_of(base_port, described.host.base_port, DEFAULT_BASE_PORT),
                settings=settings,
                is_secured=is_secured,
                datanodes=_first_of(datanodes, described.block_store.datanodes, 0),
                described=described,
                has_page=has_page,
            )
            stack.start()
            stack.watch()
        except KeyboardInterrupt:
            if stack is not None:
                stack.stop()
            return 0
        except (StackError, CredentialsError) as error:
            if stack is not None:
                stack.stop(error)
            print(error, file=sys.stderr)
            return 1


def _described(described: PlaneDescription) -> dict[str, str]:
    return {name: value for one in SERVICES for name, value in described_settings(one, described).items()}


def _first_of(*values: int | None) -> int:
    """Return the first number that is known."""
    return next((value for value in values if value is not None), 0)


def main(arguments: list[str] | None = None) -> int:
    """Run the plane with the options of the command line. Return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m services.plane.stack.supervisor", description="Run the plane.")
    parser.add_argument("home", type=Path, help="where the plane keeps everything")
    parser.add_argument(
        "--config", type=Path, help="deepclean.toml: the parts of the plane, and which of them run here"
    )
    parser.add_argument("--shards", type=int, help="number of shards; as many as before by default")
    parser.add_argument("--base-port", type=int, help="first of the ports; 0 takes free ones")
    parser.add_argument("--secure", action="store_true", help="require authentication; a secured home stays secured")
    parser.add_argument("--datanodes", type=int, help="number of datanodes; as many as before by default")
    parser.add_argument("--no-page", action="store_true", help="start no page")
    options = parser.parse_args(arguments)
    keep_files_private()
    return run_plane(
        options.home,
        options.config,
        options.shards,
        options.base_port,
        is_secured=options.secure,
        datanodes=options.datanodes,
        has_page=not options.no_page,
    )


if __name__ == "__main__":
    sys.exit(main())
