"""The feature level: which kinds of messages and rows the parts of a plane may write to each other.

A program knows all levels up to its own. A shard has a level, which an operator raises once every part of the plane
runs the newer program (``deepclean upgrade finish``). What a level adds is not written before that, so that until then
each part can be started again with the older program.
"""

from __future__ import annotations

FEATURE_LEVEL = 1
"""The newest level that this program knows."""


def confirmation(level: int) -> str:
    """Return the sentence that a command to raise the level has to carry: a shard with that level cannot go back."""
    return f"feature level {level} is final"


def unknown_level(level: int) -> str:
    """Return what to say of a level above that of this program."""
    return (
        f"feature level {level} is final here, and this program knows levels up to {FEATURE_LEVEL}: start the newer "
        f"deepclean"
    )
