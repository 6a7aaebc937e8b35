"""How tests are spread over processes: whatever starts a broker or Spark stays in one, one after the other.

A machine has room for one plane at a time; all else runs beside it.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

from xdist.scheduler import LoadScopeScheduling

ROOT = Path(__file__).parent.parent
STARTING_FOLDERS = ("tests/integration/", "tests/chaos/")
STARTING_MARKS = ("mark.broker", "mark.spark", "spark_session")


@cache
def starts_something(file: str) -> bool:
    """Whether a file's tests start a broker or Spark; ``file`` as in the id of a test."""
    return file.startswith(STARTING_FOLDERS) or any(mark in (ROOT / file).read_text() for mark in STARTING_MARKS)


class OnePlaneAtATime(LoadScopeScheduling):  # type: ignore[misc]  # xdist has no types here
    """Each test alone, but for those that start something: they go together, and first."""

    def _split_scope(self, nodeid: str) -> str:
        return "planes" if starts_something(nodeid.partition("::")[0]) else nodeid
