"""Groups the states of a bucket by how they are read: together from the table files that they share, or side by side.

A state that shares nearly all of its files with other states is read as a set of files (``SharedFiles``), and all such
states in one go: what they share is read once. Reading a file ourselves costs more than having RocksDB read it. So a
state that shares little, or one with files of an unknown form, is read by RocksDB beside others (``SideBySide``).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, Self

from streaming.audit.reach import state_bit
from streaming.audit.shard import (
    DIRECTORIES,
    FILES,
    FLAT_KEYS,
    KEY_PARTS,
    KEY_VERSIONS,
    AuditedBucket,
    AuditedShard,
)
from streaming.rocksdb.checkpoint_rows import CheckpointFile
from streaming.rocksdb.shared_files import COST_OF_AN_ENTRY, FilesByFamily, SharedFiles
from streaming.rocksdb.side_by_side import Marked, SideBySide
from streaming.rocksdb.table_file import TableFile, UnknownTableFileError

STATES_AT_ONCE = 64
"""Most copies that a task has open at once: each needs two or three megabytes, most of them for reading ahead."""
LEAST_SHARING = COST_OF_AN_ENTRY + 1
"""So many states must share all of their files at least, so that reading these costs less."""
READ_FAMILIES = (FILES, FLAT_KEYS, DIRECTORIES, KEY_PARTS, KEY_VERSIONS)
"""The column families that are read in all states."""


class States(Protocol):
    """Some states of a bucket, each with a bit (``state_bit``)."""

    def distinct_rows(self, family: str, start: bytes, end: bytes) -> Iterator[Marked]:
        """Yield each row of a range with the bits of the states that have it, in lists in the order of the keys."""
        ...

    def only(self, mask: int) -> Self:
        """Return those of the states whose bits a mask has."""
        ...


@dataclass(frozen=True, slots=True)
class StateGroup:
    """States that are read together; with ``files``, from these."""

    states: tuple[int, ...]
    files: FilesByFamily | None = None

    @contextmanager
    def opened(self, shard: AuditedShard, bucket: AuditedBucket, families: Sequence[str]) -> Iterator[States]:
        """Open some column families of the states."""
        if self.files is not None:
            yield SharedFiles({family: self.files[family] for family in families})
            return
        places = shard.places(bucket)
        with ExitStack() as opened:
            yield SideBySide(
                [(state_bit(state), opened.enter_context(shard.open(places[state], families))) for state in self.states]
            )


NO_STATES = StateGroup(())


def in_order(bucket: AuditedBucket) -> tuple[int, ...]:
    """Return the states of a bucket in the order of their times."""
    return *range(1, 1 + len(bucket.snapshots)), 0


def side_by_side(states: Sequence[int]) -> list[StateGroup]:
    """Return groups that are read side by side."""
    return [
        StateGroup(tuple(states[start : start + STATES_AT_ONCE])) for start in range(0, len(states), STATES_AT_ONCE)
    ]


def groups_of(shard: AuditedShard) -> dict[int, list[StateGroup]]:
    """Return the states of each bucket in groups.

    Raises:
        BrokenTableFileError: a file of a copy is damaged.
    """
    files = _Files(shard)
    return {bucket_id: _groups(shard, bucket, files) for bucket_id, bucket in shard.buckets.items()}


def how_read(groups: Iterable[Sequence[StateGroup]]) -> str:
    """Say how many states of all buckets are read from shared files. An audit that reads many alone takes long."""
    found = [group for some in groups for group in some]
    states = sum(len(group.states) for group in found)
    sharing = sum(len(group.states) for group in found if group.files is not None)
    return f"reading {states:,} states, {sharing:,} of them from files that they share"


def _groups(shard: AuditedShard, bucket: AuditedBucket, files: _Files) -> list[StateGroup]:
    states = in_order(bucket)
    if len(states) < LEAST_SHARING:
        return side_by_side(states)
    places = shard.places(bucket)
    found = {state: files.of(places[state], bucket) for state in states}
    sharing = sharing_states({state: some for state, some in found.items() if some is not None})
    groups = side_by_side([state for state in states if state not in sharing])
    return [*groups, StateGroup(tuple(sharing), files.by_family(sharing))] if sharing else groups


def sharing_states(files: Mapping[int, Sequence[CheckpointFile]]) -> dict[int, Sequence[CheckpointFile]]:
    """Return the states that are read from their files: for which that costs less than a reading of their own.

    A state's share of a file is smaller the more states have it. When some states are left out, the shares of the
    others grow, and are looked at again.
    """
    sharing = dict(files)
    while True:
        links = Counter(file for found in sharing.values() for file in found)
        kept = {
            state: found
            for state, found in sharing.items()
            if COST_OF_AN_ENTRY * sum(file.size_bytes / links[file] for file in found)
            < sum(file.size_bytes for file in found)
        }
        if len(kept) == len(sharing):
            return kept
        sharing = kept


class _Files:
    """The table files of the copies of a shard, and their column families."""

    def __init__(self, shard: AuditedShard) -> None:
        self._shard = shard
        self._of_place: dict[str, Sequence[CheckpointFile] | None] = {}
        self._families: dict[CheckpointFile, str] = {}

    def of(self, place: str, bucket: AuditedBucket) -> Sequence[CheckpointFile] | None:
        """Return the files of a copy that may have rows of a bucket; None if RocksDB has to read the copy."""
        if place not in self._of_place:
            with self._shard.open(place, READ_FAMILIES) as rows:
                self._of_place[place] = rows.table_files()
        found = self._of_place[place]
        if found is None:
            return None
        ranges = {bucket.keys, bucket.rows_of_tree}
        own = [file for file in found if any(file.first_key < end and start <= file.last_key for start, end in ranges)]
        return own if all(map(self._family, own)) else None

    def by_family(self, sharing: Mapping[int, Sequence[CheckpointFile]]) -> FilesByFamily:
        """Return the files of some states by family, each with the bits of the states."""
        masks: defaultdict[CheckpointFile, int] = defaultdict(int)
        for state, found in sharing.items():
            for file in found:
                masks[file] |= state_bit(state)
        by_family: dict[str, list[tuple[int, str]]] = {family: [] for family in READ_FAMILIES}
        for file, mask in masks.items():
            by_family[self._family(file)].append((mask, file.path))
        return by_family

    def _family(self, file: CheckpointFile) -> str:
        """Return the family of a file; empty if RocksDB has to read it."""
        if file not in self._families:
            try:
                opened = TableFile(Path(file.path))
                opened.check_entries()
                self._families[file] = opened.family if opened.family in READ_FAMILIES else ""
            except UnknownTableFileError:
                self._families[file] = ""
        return self._families[file]
