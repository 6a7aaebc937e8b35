"""Groups the states of a bucket by how they are read: together from the table files that they share, or side by side.

A state that shares nearly all of its files with other states is read as a set of files (``SharedFiles``), and all such
states in one go: what they share is read once. Reading a file ourselves costs more than having RocksDB read it. So a
state that shares little, or one with files of an unknown form, is read by RocksDB beside others (``SideBySide``).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, Self

from streaming.audit.reach import state_bit
from streaming.audit.shard import DIRECTORIES, KEY_PARTS, KEY_VERSIONS, AuditedBucket, AuditedShard
from streaming.rocksdb.checkpoint_rows import CheckpointFile
from streaming.rocksdb.shared_files import COST_OF_AN_ENTRY, FilesByFamily, SharedFiles
from streaming.rocksdb.side_by_side import Marked, SideBySide
from streaming.rocksdb.table_file import TableFile, UnknownTableFileError

STATES_AT_ONCE = 64
"""Most copies that a task has open at once: each needs two or three megabytes, most of them for reading ahead."""


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
            yield SharedFiles(self.files)
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
    families = _Families()
    return {bucket_id: _groups(shard, bucket, families) for bucket_id, bucket in shard.buckets.items()}


def _groups(shard: AuditedShard, bucket: AuditedBucket, families: _Families) -> list[StateGroup]:
    states = in_order(bucket)
    if len(states) <= COST_OF_AN_ENTRY:  # so few cannot share enough
        return side_by_side(states)
    places = shard.places(bucket)
    wanted = (bucket.keys_family, DIRECTORIES, KEY_PARTS, KEY_VERSIONS)
    files: dict[int, Sequence[CheckpointFile]] = {}
    for state in states:
        with shard.open(places[state], wanted) as rows:
            if (found := rows.table_files()) and all(map(families.of, found)):
                files[state] = found
    sharing = _sharing(files)
    groups = side_by_side([state for state in states if state not in sharing])
    return [*groups, StateGroup(tuple(sharing), _files_of(sharing, families))] if sharing else groups


def _sharing(files: Mapping[int, Sequence[CheckpointFile]]) -> dict[int, Sequence[CheckpointFile]]:
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


def _files_of(sharing: Mapping[int, Sequence[CheckpointFile]], families: _Families) -> FilesByFamily:
    masks: defaultdict[CheckpointFile, int] = defaultdict(int)
    for state, found in sharing.items():
        for file in found:
            masks[file] |= state_bit(state)
    by_family: defaultdict[str, list[tuple[int, str]]] = defaultdict(list)
    for file, mask in masks.items():
        by_family[families.of(file)].append((mask, file.path))
    return dict(by_family)


class _Families:
    """The column families of table files."""

    def __init__(self) -> None:
        self._known: dict[CheckpointFile, str] = {}

    def of(self, file: CheckpointFile) -> str:
        """Return the family of a file; empty if RocksDB has to read it."""
        if file not in self._known:
            try:
                self._known[file] = TableFile(Path(file.path)).family
            except UnknownTableFileError:
                self._known[file] = ""
        return self._known[file]
