"""The feature level: which kinds of messages and rows the parts of a plane may write to each other.

A program knows all levels up to its own. A shard has a level, which an operator raises once every part of the plane
runs the newer program (``deepclean upgrade finish``). Until then no part writes messages or rows of the new level, so
each part can be started again with the older program.
"""

from __future__ import annotations

FEATURE_LEVEL = 1
"""The newest level that this program knows."""


def confirmation(level: int) -> str:
    """Return the text by which the sender of a command to raise the level confirms that the level is never lowered."""
    return f"feature level {level} is final"


def unknown_level(level: int) -> str:
    """Return the error message for a level above that of this program."""
    return (
        f"feature level {level} is final here, and this program knows levels up to {FEATURE_LEVEL}: start the newer "
        f"deepclean"
    )
