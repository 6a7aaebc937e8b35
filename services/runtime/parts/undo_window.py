"""The undo window: the time for which a deletion can still be undone. It begins when the deletion's message arrives.

Deaths rise with the log, so one mark is enough: when the window of a death has ended, the windows of all earlier deaths
have ended, too. A settle ends the windows of all deaths before the settle passed metadata, and of no later death.
Rows whose death is at or below the mark skip the window: files of a tree that was suspended, rows that a sweep sends
again, rows that a dropped snapshot had held. The mark survives a restart. Due times are stored with the waiting rows
and survive it, too.
"""

from __future__ import annotations

from services.runtime.loop.service import Work
from services.runtime.parts.counts import count, set_count
from services.storage.tables import Tables

_MARK = b"undoWindowMark"


class UndoWindow:
    """The mark of one service: the highest death whose window is over."""

    def __init__(self, window_ms: int) -> None:
        self.window_ms = window_ms
        self._mark = 0

    def restore(self, tables: Tables) -> None:
        """Read the mark from the database."""
        self._mark = count(_MARK, tables)

    def is_over(self, death: int) -> bool:
        """Return whether the window of this death is over."""
        return not self.window_ms or death <= self._mark

    def ended(self, death: int, work: Work) -> None:
        """Record that the windows of this death and of all earlier deaths are over."""
        if self.window_ms and death > self._mark:
            self._mark = death
            set_count(_MARK, death, work)
