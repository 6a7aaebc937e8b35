"""The feature level: which kinds of messages and rows the parts of a plane may write to each other.

A program knows all levels up to its own. A shard has a level, which an operator raises once every part of the plane
runs the newer program (``deepclean upgrade finish``). Until then no part writes messages or rows of the new level, so
each part can be started again with the older program.
"""

from __future__ import annotations

from schemas.schema_files import own_schema

FEATURE_LEVEL = 2
"""The newest level that this program knows. 2: open keys, uploads in parts, puts with a condition."""


def level_of(record_class: type[object]) -> int:
    """Return the level from which on messages of a kind may be written."""
    level: int = own_schema(record_class.__name__).get("feature_level", 1)
    return level


def confirmation(level: int) -> str:
    """Return the text by which the sender of a command to raise the level confirms that the level is never lowered."""
    return f"feature level {level} is final"


def unknown_level(level: int) -> str:
    """Return the error message for a level above that of this program."""
    return (
        f"feature level {level} is final here, and this program knows levels up to {FEATURE_LEVEL}: start the newer "
        f"deepclean"
    )
