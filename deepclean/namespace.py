"""Reads that a bucket and a snapshot have in common: both show keys and directories at paths."""

from __future__ import annotations

import io
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import BinaryIO

from deepclean.calls import Calls
from schemas.answers import ListedEntry, ListedVersion
from schemas.records import DirectoryRow, KeyRow
from services.client.errors import InvalidRequestError, PlaneError
from services.client.tasks.key_bytes import runs_of_key
from services.client.tasks.key_reader import KeyReader
from services.client.wire.paging import PAGE_ROWS

READ_AHEAD_BYTES = 1 << 20
"""What ``open`` reads from datanodes at a time, at least."""
_BEYOND_NAMES = "\U0010ffff"
"""No name sorts behind it: a listing that starts here continues behind a directory."""


class Namespace(ABC):
    """Keys and directories at paths: of a bucket now, or as a snapshot shows them.

    Paths have no slash at their beginning. Each read shows one moment. If a listing of a bucket has several pages,
    these may show different moments. All pages of a listing of a snapshot show the same moment.
    """

    def __init__(self, calls: Calls, volume: str, bucket: str) -> None:
        self._calls = calls
        self.volume = volume
        """Name of the volume."""
        self.bucket = bucket
        """Name of the bucket."""

    @abstractmethod
    def _snapshot_id(self) -> str:
        """Return the id of the snapshot to read; empty for the active namespace."""

    def list(self, prefix: str = "", *, start_after: str = "", limit: int | None = None) -> Iterator[ListedEntry]:
        """Yield the keys and directories whose paths begin with a prefix, a directory before its contents.

        Pages are fetched while the caller iterates. ``start_after`` is the path after which the listing begins;
        ``limit`` is the most entries that it has.

        Raises:
            NotFoundError: the bucket or the snapshot does not exist.
        """
        snapshot_id, left = self._snapshot_id(), limit
        while left is None or left > 0:
            wanted = PAGE_ROWS if left is None else min(left, PAGE_ROWS)
            page = self._page(snapshot_id, prefix, start_after, wanted)
            yield from page
            if len(page) < wanted:
                return
            start_after = page[-1].path
            left = None if left is None else left - len(page)

    def listdir(self, path: str = "") -> Iterator[ListedEntry]:
        """Yield what is directly below a directory, or below the root, by name.

        In a flat bucket, names are divided at slashes. What stands before a slash is shown once, as a directory without
        an id and a time, for all keys that begin with it. Each entry has its whole path. An empty name between two
        slashes is no directory of its own: the key ``a//b`` is an entry directly below ``a``. The key ``dir/`` is an
        entry below ``dir``. What lies below the directories that are listed is not listed, and most of it is not even
        read.

        Raises:
            NotFoundError: there is nothing at the path, or no such bucket or snapshot.
            InvalidRequestError: a key is at the path.
        """
        snapshot_id, path = self._snapshot_id(), path.rstrip("/")
        base = f"{path}/" if path else ""
        start_after, inside = "", ""
        while page := self._page(snapshot_id, base, start_after, PAGE_ROWS):
            for entry in page:
                if inside and entry.path.startswith(inside):
                    continue
                name, is_shared = _first_part(entry.path[len(base) :])
                if is_shared:  # of a flat bucket: in a tree the directory itself comes before what is below it
                    yield ListedEntry(base + name, True, 0, "", 0, -1)
                else:
                    yield entry
                inside = f"{base}{name}/" if is_shared or entry.is_directory else ""
            if len(page) < PAGE_ROWS:
                return
            start_after = inside + _BEYOND_NAMES if inside else page[-1].path
        if path.startswith("/") and not start_after:  # no key of a flat bucket has it
            yield from self.listdir(path.lstrip("/"))
        elif path and not start_after:
            self._check_directory(path, snapshot_id)

    def _check_directory(self, path: str, snapshot_id: str) -> None:
        """Raise the error of a path that has nothing below it, unless it is an empty directory."""
        row = self._calls.metadata(self.volume).stat(self.volume, self.bucket, path, snapshot_id=snapshot_id)
        if isinstance(row, KeyRow):
            raise InvalidRequestError("NOT_A_FILE", f"{path} is a key, not a directory")

    def _page(self, snapshot_id: str, prefix: str, start_after: str, limit: int) -> Sequence[ListedEntry]:
        return self._calls.metadata(self.volume).entries(
            self.volume, self.bucket, snapshot_id=snapshot_id, prefix=prefix, start_after=start_after, limit=limit
        )

    def stat(self, path: str, *, version: int = 0) -> KeyRow | DirectoryRow:
        """Return the row of a key or directory, or of one version of a key by its id.

        Raises:
            NotFoundError: there is nothing at the path, or no such version, bucket or snapshot.
        """
        return self._calls.metadata(self.volume).stat(
            self.volume, self.bucket, path, snapshot_id=self._snapshot_id(), version=version
        )

    def has(self, path: str) -> bool:
        """Return whether a key or directory is at a path.

        Raises:
            NotFoundError: the bucket or the snapshot does not exist.
        """
        try:
            self.stat(path)
        except PlaneError as error:
            if error.code != "KEY_NOT_FOUND":
                raise
            return False
        return True

    def versions(self, key: str) -> Sequence[ListedVersion]:
        """Return the versions of a key, oldest first; the last one is the current."""
        return self._calls.metadata(self.volume).versions(
            self.volume, self.bucket, key, snapshot_id=self._snapshot_id()
        )

    def open(self, key: str) -> BinaryIO:
        """Open a key for reading its bytes, with ``seek``; on a plane with datanodes.

        The file shows the version that was current when it was opened. Only in a snapshot is this version kept: the
        blocks of a live key that is deleted meanwhile may be freed before they are read.

        Raises:
            NotFoundError: there is no such key.
            NotSupportedError: the plane is in memory. On any other plane without datanodes, reading raises
                ``MissingBytesError``.
        """
        return io.BufferedReader(self.open_raw(key), READ_AHEAD_BYTES)

    def read(self, key: str, *, offset: int = 0, length: int | None = None) -> bytes:
        """Return the bytes of a key, or ``length`` of them from ``offset`` on, under the conditions of ``open``.

        Raises:
            MissingBytesError: no datanode has a block, for example because the key was put without bytes.
        """
        with self.open_raw(key) as reader:
            reader.seek(offset)
            return reader.read(-1 if length is None else length)

    def open_raw(self, key: str) -> KeyReader:
        """Open a key for reading, as ``open``, without a buffer: each read asks the datanodes."""
        store, reads = self._calls.block_store(self.volume), self._calls.metadata(self.volume)
        runs, size_bytes = runs_of_key(reads, self.volume, self.bucket, key, snapshot_id=self._snapshot_id())
        return KeyReader(store, runs, size_bytes)


def _first_part(path: str) -> tuple[str, bool]:
    """Return the first part of a path, with empty ones before it, and whether others follow."""
    empty = len(path) - len(path.lstrip("/"))
    end = path.find("/", empty)
    return (path, False) if end < 0 else (path[:end], True)
