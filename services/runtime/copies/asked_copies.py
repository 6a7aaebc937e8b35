"""Copies of a shard's database that others ask for while it runs: made by the writer between two of its batches.

So a copy is of one moment, and needs no lock. Whoever asks waits; whoever has gone meanwhile leaves nothing behind.
"""

from __future__ import annotations

import contextlib
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from dataclasses import dataclass
from pathlib import Path
from queue import Empty, SimpleQueue

from services.domain.errors import DeepcleanError
from services.runtime.copies.kept_copies import KeptCopies
from services.storage.rocks import RocksStore
from services.storage.store import StoreError


class CopyRefusedError(DeepcleanError):
    """A copy of the database that is not made; ``code`` says to a program why."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


@dataclass(frozen=True, slots=True)
class _AskedCopy:
    name: str
    made: Future[Path]


class AskedCopies:
    """The copies of one shard: so many at a time, each under a name that somebody has chosen."""

    def __init__(self, kept: KeptCopies, max_copies: int) -> None:
        self.kept = kept
        self._max_copies = max_copies
        self._asked: SimpleQueue[_AskedCopy] = SimpleQueue()

    def ask(self, name: str, timeout_seconds: float) -> Path:
        """Have a copy made under a name, and say where it is. Not in the writer's thread, which makes it.

        Raises:
            TimeoutError: the writer did not come to it in time; then there will be none.
            CopyRefusedError: there are too many, or there is one of that name.
            StoreError: the disk refuses it.
        """
        asked = _AskedCopy(name, Future())
        self._asked.put(asked)
        try:
            return asked.made.result(timeout_seconds)
        except FutureTimeoutError:
            if not asked.made.cancel():  # it is being made just now, and nobody will take it
                asked.made.add_done_callback(self._remove_unwanted)
            raise

    def _remove_unwanted(self, made: Future[Path]) -> None:
        if made.exception() is None:
            self.kept.remove(made.result().name)

    def make_next(self, store: RocksStore) -> None:
        """Make the copy that was asked for first, if any. For the writer, so that nobody counts beside it."""
        with contextlib.suppress(Empty):
            asked = self._asked.get_nowait()
            if not asked.made.set_running_or_notify_cancel():
                return
            try:
                made = self._make(store, asked.name)
            except Exception as error:  # whoever asked hears of it; the writer finds out by itself whether it can go on
                asked.made.set_exception(error)
            else:
                asked.made.set_result(made)

    def _make(self, store: RocksStore, name: str) -> Path:
        place = self.kept.directory
        try:
            others = self.kept.others(name)
        except OSError as error:
            raise StoreError(f"{place} cannot be used: free some space there or repair the disk ({error})") from error
        if (place / name).exists():
            raise CopyRefusedError("COPY_EXISTS", f"{place / name} is there already: choose another name for this copy")
        if others >= self._max_copies:
            raise CopyRefusedError(
                "TOO_MANY_COPIES",
                f"{others} copies that nobody has given back are in {place}, and DEEPCLEAN_MAX_COPIES is "
                f"{self._max_copies}: let the backups end that use them, or give them back (DELETE); after "
                f"{self.kept.kept_seconds:g} seconds, and at the next start, they go by themselves",
            )
        store.back_up_to(place / name)
        return place / name
