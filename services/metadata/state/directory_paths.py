"""A cache of directory ids by path: commands use the same directories again and again.

An entry is valid until a directory on its path is moved or deleted, which removes the entry and all entries below it.
The entries of an undone command are removed, too, since it may have created those directories. Paths that are not in
the cache are looked up in directoryTable.

Entries are in two halves. When the younger half is full, the older one is discarded as a whole; entries used since have
moved to the younger half. So no command discards more than half of the entries, and a refused one costs others nothing.
"""

from __future__ import annotations

from services.metadata.state.batch_sums import PresentTxn

MAX_PATHS = 50_000
"""Maximum paths in both halves, the directories above them included."""
_ROOT = ""
_Place = tuple[int, str]
"""A bucket's id and the path of a directory in it."""


class _Half:
    """Some entries, and for each directory on their paths the way down to them."""

    def __init__(self) -> None:
        self.ids: dict[_Place, int] = {}
        self.below: dict[_Place, dict[str, None]] = {}
        """For each directory the paths of the next directories down that are entries or have entries below them."""

    def __len__(self) -> int:
        return max(len(self.ids), len(self.below))

    def remember(self, bucket_id: int, path: str, directory_id: int) -> None:
        """Add an entry and the way to it."""
        self.ids[bucket_id, path] = directory_id
        while path:
            parent = path.rpartition("/")[0]
            below = self.below.get((bucket_id, parent))
            if below is not None:
                below[path] = None
                return
            self.below[bucket_id, parent] = {path: None}
            path = parent

    def forget(self, bucket_id: int, path: str) -> None:
        """Remove the entry of a path and all entries below it."""
        waiting = [path]
        while waiting:
            place = bucket_id, waiting.pop()
            self.ids.pop(place, None)
            waiting += self.below.pop(place, ())
        siblings = self.below.get((bucket_id, path.rpartition("/")[0]))
        if siblings is not None:
            siblings.pop(path, None)


class DirectoryPaths:
    """The ids of directories that were found or created, and not moved or deleted since."""

    def __init__(self, present: PresentTxn, max_paths: int = MAX_PATHS) -> None:
        self._present = present
        self._max_of_half = max(1, max_paths // 2)
        self._young, self._old = _Half(), _Half()
        self._noted_txn = 0
        self._noted: list[_Place] = []
        """The entries that the command of ``_noted_txn`` added."""

    def find(self, bucket_id: int, path: str) -> int | None:
        """Return the id of the directory of a path, or None if it is not cached."""
        found = self._young.ids.get((bucket_id, path))
        if found is None:
            found = self._old.ids.get((bucket_id, path))
            if found is not None:
                self._keep(bucket_id, path, found)
        return found

    def remember(self, bucket_id: int, path: str, directory_id: int) -> None:
        """Add the directory at a path of the bucket."""
        if self._noted_txn != self._present.txn:
            self._noted_txn = self._present.txn
            self._noted.clear()
        self._noted.append((bucket_id, path))
        self._keep(bucket_id, path, directory_id)

    def _keep(self, bucket_id: int, path: str, directory_id: int) -> None:
        if len(self._young) >= self._max_of_half:
            self._old, self._young = self._young, _Half()
        self._young.remember(bucket_id, path, directory_id)

    def forget(self, bucket_id: int, path: str = _ROOT) -> None:
        """Remove a directory that was moved or deleted, with all below it; without a path, the whole bucket."""
        self._young.forget(bucket_id, path)
        self._old.forget(bucket_id, path)

    def undo_message(self) -> None:
        """Remove the entries of the present message, which was not applied: their directories may not exist."""
        if self._noted_txn == self._present.txn:
            for place in self._noted:  # entries below a directory that the message created are among its own notes
                self._young.ids.pop(place, None)
                self._old.ids.pop(place, None)
            self._noted.clear()

    def clear(self) -> None:
        """Discard all entries: a unit of work was aborted."""
        self._young, self._old = _Half(), _Half()
        self._noted.clear()
