"""Copies of a running shard's database, made on request by the writer between two batches.

So a copy is of one moment, and needs no lock. The caller waits for the copy; if it has timed out, the copy is removed.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from pathlib import Path
from queue import Empty, SimpleQueue

from services.domain.words import counted
from services.runtime.copies.kept_copies import KeptCopies
from services.runtime.http.reads import ReadError
from services.storage.rocks import RocksStore


class AskedCopies:
    """The copies of one shard: at most ``max_copies`` at a time, each under a name that its caller chose."""

    def __init__(self, kept: KeptCopies, max_copies: int) -> None:
        self.kept = kept
        self._max_copies = max_copies
        self._asked: SimpleQueue[tuple[str, Future[Path]]] = SimpleQueue()

    def ask(self, name: str, timeout_seconds: float) -> Path:
        """Request a copy, wait for it and return its path. Not for the writer's thread, which makes the copy.

        Raises:
            TimeoutError: the writer did not make it in time; no copy remains.
            ReadError: there are too many copies, or one of that name.
            StoreError: the disk cannot be used.
        """
        made: Future[Path] = Future()
        self._asked.put((name, made))
        try:
            return made.result(timeout_seconds)
        except FutureTimeoutError:
            if not made.cancel():  # it is being made, and its caller has timed out
                made.add_done_callback(self._remove_unwanted)
            raise

    def _remove_unwanted(self, made: Future[Path]) -> None:
        if made.exception() is None:
            self.kept.remove(made.result().name)

    def make_next(self, store: RocksStore, may_be_copied: Callable[[], bool] = lambda: True) -> None:
        """Make the oldest requested copy, if any. For the writer's thread alone, so that the count is exact.

        While ``may_be_copied`` returns False, a request waits for a later call.
        """
        if self._asked.empty() or not may_be_copied():
            return
        with contextlib.suppress(Empty):
            name, made = self._asked.get_nowait()
            if not made.set_running_or_notify_cancel():
                return
            try:
                made.set_result(self._make(store, name))
            except Exception as error:  # for the caller: a writer that cannot continue fails by itself
                made.set_exception(error)

    def _make(self, store: RocksStore, name: str) -> Path:
        place = self.kept.directory
        others = self.kept.others(name)
        if (place / name).exists():
            raise ReadError("COPY_EXISTS", f"{place / name} already exists: choose another name for this copy")
        if others >= self._max_copies:
            raise ReadError(
                "TOO_MANY_COPIES",
                f"{place} has {counted(others, 'copy', 'copies')} in use, and DEEPCLEAN_MAX_COPIES is "
                f"{self._max_copies}: wait until the backups end, or release copies (DELETE). The service removes "
                f"copies after {self.kept.kept_seconds:g} seconds and at its next start",
            )
        store.back_up_to(place / name)
        return place / name
