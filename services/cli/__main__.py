"""Starts the command. Python's search for cyclic garbage among the imported modules took a tenth of a short command."""

from __future__ import annotations

import gc

MAX_NEW_OBJECTS = 50_000
"""Number of new objects that starts such a search."""


def run() -> None:
    """Run the command line."""
    gc.set_threshold(MAX_NEW_OBJECTS)
    from services.cli import main  # noqa: PLC0415  after that

    main.run()


if __name__ == "__main__":
    run()
