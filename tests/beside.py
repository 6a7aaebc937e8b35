"""How tests are spread over processes: a file that starts a broker or Spark stays in one, and such files begin.

Its tests share what it starts. As many planes run at a time as there are processes, which is one more than there are
processors: most of a plane's time is waiting, for a start or for a condition.
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


class FilesOfPlanesTogether(LoadScopeScheduling):  # type: ignore[misc]  # xdist has no types here
    """Each test alone, but for those of a file that starts something: the more of them, the earlier."""

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.partition("::")[0]
        return file if starts_something(file) else nodeid
