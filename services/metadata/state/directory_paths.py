"""Ids of directories by their paths, in memory: commands come to the same directories again and again.

An entry holds until a directory on its path is moved or deleted: then it is forgotten, with all that is below. So is
what a command has remembered that is undone, since it may have made those directories. What is not here is looked up
in directoryTable.

Entries are in two halves: when the younger one is full, the older one is let go of as a whole, and what was asked for
since has moved over. So no command pays for more than half of them, and none for what another one was refused.
"""

from __future__ import annotations

from services.metadata.state.batch_sums import PresentTxn

MAX_PATHS = 50_000
"""Over both halves, with the directories on the way to them."""
_ROOT = ""
_Place = tuple[int, str]
"""A bucket's id and the path of a directory in it."""


class _Half:
    """Some entries, and from each directory on their paths the way down to them."""

    def __init__(self) -> None:
        self.ids: dict[_Place, int] = {}
        self.below: dict[_Place, dict[str, None]] = {}
        """The paths of the next directories down, of which entries are, or are below."""

    def __len__(self) -> int:
        return max(len(self.ids), len(self.below))

    def remember(self, bucket_id: int, path: str, directory_id: int) -> None:
        """Add an entry, and the way to it."""
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
        """Remove the entry of a path and all below it."""
        waiting = [path]
        while waiting:
            place = bucket_id, waiting.pop()
            self.ids.pop(place, None)
            waiting += self.below.pop(place, ())
        siblings = self.below.get((bucket_id, path.rpartition("/")[0]))
        if siblings is not None:
            siblings.pop(path, None)


class DirectoryPaths:
    """What was found or made, and not moved or deleted since."""

    def __init__(self, present: PresentTxn, max_paths: int = MAX_PATHS) -> None:
        self._present = present
        self._max_of_half = max(1, max_paths // 2)
        self._young, self._old = _Half(), _Half()
        self._noted_txn = 0
        self._noted: list[_Place] = []
        """What the command of that txn has remembered."""

    def find(self, bucket_id: int, path: str) -> int | None:
        """Id of the directory of a path, if it is known here."""
        found = self._young.ids.get((bucket_id, path))
        if found is None:
            found = self._old.ids.get((bucket_id, path))
            if found is not None:
                self._keep(bucket_id, path, found)
        return found

    def remember(self, bucket_id: int, path: str, directory_id: int) -> None:
        """A directory is in the bucket at this path."""
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
        """A directory was moved or deleted, or all of a bucket may have been."""
        self._young.forget(bucket_id, path)
        self._old.forget(bucket_id, path)

    def undo_message(self) -> None:
        """The present message was not applied: what it has remembered may not be there."""
        if self._noted_txn == self._present.txn:
            for place in self._noted:  # what is below a directory that it has made, it has remembered itself
                self._young.ids.pop(place, None)
                self._old.ids.pop(place, None)
            self._noted.clear()

    def clear(self) -> None:
        """Forget all of them: a unit of work was thrown away."""
        self._young, self._old = _Half(), _Half()
        self._noted.clear()
