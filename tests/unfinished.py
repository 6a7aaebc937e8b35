"""What was still running when a run was stopped: a test that hangs is named, where else nobody would know which it was.

``.ci/run`` stops a step that takes too long as Ctrl-C does; pytest then shows the failures so far, and this the rest.
"""

from __future__ import annotations

import time
from typing import Any


class Unfinished:
    """The tests that have begun and not ended, of all processes of a run."""

    def __init__(self) -> None:
        self._begun_seconds: dict[str, float] = {}

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self._begun_seconds[nodeid] = time.monotonic()

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        self._begun_seconds.pop(nodeid, None)

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        """Name what runs still, the longest first."""
        if not self._begun_seconds:
            return
        terminalreporter.section("stopped while these ran")
        for nodeid, begun_seconds in sorted(self._begun_seconds.items(), key=lambda each: each[1]):
            terminalreporter.write_line(f"{time.monotonic() - begun_seconds:6.0f} s  {nodeid}")
