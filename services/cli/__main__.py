"""Starts the command, without Python's searches for cyclic garbage during its imports: 4 % of ``deepclean --help``."""

from __future__ import annotations

import gc

MAX_NEW_OBJECTS = 50_000
"""Number of new objects that starts such a search."""


def run() -> None:
    """Run the command line."""
    gc.set_threshold(MAX_NEW_OBJECTS)
    from services.cli import main  # noqa: PLC0415  its imports are what the threshold is for

    main.run()


if __name__ == "__main__":
    run()
