"""How tests are spread over processes: a file that starts a broker or Spark stays in one, and such files begin.

Its tests share what it starts; and so do files that use the same plane, or Spark within the process of the tests. As
many planes run at a time as there are processes, which is one more than there are processors: most of a plane's time is
waiting, for a start or for a condition.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

from xdist.scheduler import LoadScopeScheduling

ROOT = Path(__file__).parent.parent
STARTING_FOLDERS = ("tests/integration/", "tests/chaos/")
STARTING_MARKS = ("mark.broker", "mark.spark", "spark_session")
SHARED_PLANE = "shared_stack"
SHARED = (SHARED_PLANE, "started_session")
"""Files in whose text one of these stands run in one process, after one another. A file that would come to the plane by
another file's fixture, without naming it, would start one of its own.
"""


def scope_of(nodeid: str) -> str:
    """What a test runs in one process with: tests that share what they start, or itself alone."""
    return _group_of(nodeid.partition("::")[0]) or nodeid


@cache
def _group_of(file: str) -> str:
    """The name of what a file's tests start, or share; empty when they start nothing."""
    text = (ROOT / file).read_text()
    shared = next((name for name in SHARED if name in text), "")
    is_starting = file.startswith(STARTING_FOLDERS) or any(mark in text for mark in STARTING_MARKS)
    return shared or (file if is_starting else "")


LONGEST = "tests/upgrade/test_rolling_upgrade.py"
"""A single test that takes minutes: it would begin last, and all processes but one would wait for it."""


class FilesOfPlanesTogether(LoadScopeScheduling):  # type: ignore[misc]  # xdist has no types here
    """Each test alone, but for those of files that start something together: the more of them, the earlier."""

    def _split_scope(self, nodeid: str) -> str:
        return scope_of(nodeid)

    def _assign_work_unit(self, node: Any) -> None:
        """Begin with the longest test."""
        if LONGEST in self.workqueue:
            self.workqueue.move_to_end(LONGEST, last=False)
        super()._assign_work_unit(node)
