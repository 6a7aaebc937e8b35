"""The time for which what was deleted can still be brought back: it begins when its message arrives.

Deaths rise with the log, so one number tells whose time is over: whoever's window has ended was preceded by all that
died before it. A settle ends the windows of all that died before it passed metadata, and of nothing that died later
and came here sooner. What is of such a death does not wait again: files of a tree that was held back, rows that a sweep
sends once more, rows that a dropped snapshot had held for long. The number outlives a restart; so do due times, which
are kept with what waits.
"""

from __future__ import annotations

from services.runtime.loop.service import Work
from services.runtime.parts.counts import count, set_count
from services.storage.tables import TablesReader

_MARK = b"undoWindowMark"


class UndoWindow:
    """One service's view of whose window is over."""

    def __init__(self, window_ms: int) -> None:
        self.window_ms = window_ms
        self._mark = 0

    def restore(self, tables: Work | TablesReader) -> None:
        """Read the mark anew."""
        self._mark = count(_MARK, tables)

    def is_over(self, death: int) -> bool:
        """Whether something that died then need not wait."""
        return not self.window_ms or death <= self._mark

    def ended(self, death: int, work: Work) -> None:
        """The window of something that died then is over, and so is that of all that died before."""
        if self.window_ms and death > self._mark:
            self._mark = death
            set_count(_MARK, death, work)
