"""How tests are spread over processes: a file that starts a broker or Spark stays in one, and such files begin.

Its tests share what it starts; and so do files that use the same plane, or Spark within the process of the tests. As
many planes run at a time as there are processes, which is one more than there are processors: most of a plane's time is
waiting, for a start or for a condition.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

from xdist.scheduler import LoadScopeScheduling

ROOT = Path(__file__).parent.parent
STARTING_FOLDERS = ("tests/integration/", "tests/chaos/")
STARTING_MARKS = ("mark.broker", "mark.spark", "spark_session")
SHARED = ("shared_stack", "started_session")
"""What files that name it share."""


@cache
def started_with(file: str) -> str:
    """What is named alike for all files whose tests start a broker or Spark together; empty when a file's start none.

    ``file`` is as in the id of a test.
    """
    text = (ROOT / file).read_text()
    shared = next((name for name in SHARED if name in text), "")
    is_starting = file.startswith(STARTING_FOLDERS) or any(mark in text for mark in STARTING_MARKS)
    return shared or (file if is_starting else "")


class FilesOfPlanesTogether(LoadScopeScheduling):  # type: ignore[misc]  # xdist has no types here
    """Each test alone, but for those of files that start something together: the more of them, the earlier."""

    def _split_scope(self, nodeid: str) -> str:
        return started_with(nodeid.partition("::")[0]) or nodeid
