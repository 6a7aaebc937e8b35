"""Rows of garbage tables by columns, as messages carry them, and one by one, as rules look at them.

A message about a thousand rows is a few long lists rather than a thousand small records: to write and to read a
record takes several times as long as to write and to read its numbers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from schemas.records import BlockGroups, BlockRun, DeletedEntries, DeletedKind, RowName, RowNames

NO_ROWS = RowNames(DeletedKind.KEY, (), (), (), ())
NO_GROUPS = BlockGroups((), (), (), (), (), (), (), (), ())

Row = tuple[int, int, int, int]
"""bucketId, objectID, birth, death."""


class ColumnsError(ValueError):
    """Lists that belong together are not as long as each other: nothing of the message may be used."""


@dataclass(frozen=True, slots=True)
class BlockGroup:
    """One claimed row and its blocks: deleted by SCM as a whole or not at all."""

    bucket_id: int
    object_id: int
    birth: int
    death: int
    blocks: BlockRun


@dataclass(frozen=True, slots=True)
class DeletedEntry:
    """Something left a bucket's active namespace, or a sweep looks at it again: one row of a ``DeletedEntries``."""

    bucket_id: int
    object_id: int
    kind: DeletedKind
    birth: int
    death: int
    snapshots_before_death: int
    chain_version: int
    sweep_id: int = 0
    sweep_page: int = 0
    sweep_txn: int = 0
    sweep_part: int = 0


def check_lengths(*columns: Sequence[int]) -> None:
    """Refuse columns that do not have a place for each row.

    Raises:
        ColumnsError: they are not as long as each other.
    """
    lengths = {len(column) for column in columns}
    if len(lengths) > 1:
        raise ColumnsError(f"lists of {sorted(lengths)} items belong together: each row needs its place in all of them")


def rows(names: RowNames) -> Iterator[Row]:
    """The rows of one kind.

    Raises:
        ColumnsError: not every row has its place in all lists.
    """
    four = columns(names)
    check_lengths(*four)
    return zip(*four, strict=True)


def columns(names: RowNames) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    """The columns in the order of a ``Row``."""
    return names.bucket_ids, names.object_ids, names.births, names.deaths


def names_between(names: RowNames, first: int, beyond: int) -> RowNames:
    """Rows from one place up to another."""
    return RowNames(names.kind, *(column[first:beyond] for column in columns(names)))


def row_count(names: Iterable[RowNames]) -> int:
    """How many rows are named."""
    return sum(len(one.object_ids) for one in names)


def row_names(names: Iterable[RowNames]) -> list[RowName]:
    """The rows one by one.

    Raises:
        ColumnsError: not every row has its place in all lists.
    """
    return [RowName(one.kind, *row) for one in names for row in rows(one)]


def names_of_kind(kind: DeletedKind, found: Sequence[Row]) -> RowNames:
    """Rows of one kind by columns."""
    return RowNames(kind, *zip(*found, strict=True)) if found else RowNames(kind, (), (), (), ())


def by_columns(named: Iterable[RowName]) -> tuple[RowNames, ...]:
    """Rows by columns, those of each kind together."""
    kinds: dict[DeletedKind, list[Row]] = {}
    for name in named:
        kinds.setdefault(name.kind, []).append((name.bucket_id, name.object_id, name.birth, name.death))
    return tuple(names_of_kind(kind, found) for kind, found in kinds.items())


def each_once(names: Iterable[RowNames]) -> tuple[RowNames, ...]:
    """The same rows, those of each kind together, and none of them twice."""
    kinds: dict[DeletedKind, dict[Row, None]] = {}
    for one in names:
        kinds.setdefault(one.kind, {}).update(dict.fromkeys(rows(one)))
    return tuple(names_of_kind(kind, list(found)) for kind, found in kinds.items() if found)


def group_rows(groups: BlockGroups) -> Iterator[tuple[int, ...]]:
    """The fields of each group: a ``Row``, then a ``BlockRun``.

    Raises:
        ColumnsError: not every group has its place in all lists.
    """
    nine = group_columns(groups)
    check_lengths(*nine)
    return zip(*nine, strict=True)


def group_columns(groups: BlockGroups) -> tuple[tuple[int, ...], ...]:
    """The columns in their order."""
    return (
        *(groups.bucket_ids, groups.object_ids, groups.births, groups.deaths),
        *(groups.container_ids, groups.first_local_ids, groups.block_counts),
        *(groups.block_sizes_bytes, groups.sizes_bytes),
    )


def block_groups(groups: BlockGroups) -> list[BlockGroup]:
    """The groups one by one.

    Raises:
        ColumnsError: not every group has its place in all lists.
    """
    return [
        BlockGroup(bucket_id, object_id, birth, death, BlockRun(*blocks))
        for bucket_id, object_id, birth, death, *blocks in group_rows(groups)
    ]


def groups_by_columns(found: Iterable[BlockGroup]) -> BlockGroups:
    """Groups by columns."""
    fields = [
        (
            *(group.bucket_id, group.object_id, group.birth, group.death, group.blocks.container_id),
            *(group.blocks.first_local_id, group.blocks.block_count),
            *(group.blocks.block_size_bytes, group.blocks.size_bytes),
        )
        for group in found
    ]
    return BlockGroups(*zip(*fields, strict=True)) if fields else NO_GROUPS


def groups_at(groups: BlockGroups, places: Sequence[int]) -> BlockGroups:
    """Some of the groups, by their places."""
    return BlockGroups(*(tuple([column[place] for place in places]) for column in group_columns(groups)))


def names_of_groups(groups: BlockGroups) -> RowNames:
    """The rows of the groups."""
    return RowNames(DeletedKind.KEY, groups.bucket_ids, groups.object_ids, groups.births, groups.deaths)


def deleted_entries(message: DeletedEntries) -> list[DeletedEntry]:
    """The entries of a message one by one.

    Raises:
        ColumnsError: not every entry has its place in all lists.
    """
    names, befores = message.rows, message.snapshots_before_death
    check_lengths(names.object_ids, befores)
    page = (message.chain_version, message.sweep_id, message.sweep_page, message.sweep_txn, message.sweep_part)
    return [
        DeletedEntry(bucket_id, object_id, names.kind, birth, death, before, *page)
        for (bucket_id, object_id, birth, death), before in zip(rows(names), befores, strict=True)
    ]


def entries_by_columns(entries: Sequence[DeletedEntry]) -> DeletedEntries:
    """Entries of one kind, one chain version and one part of a sweep's page, as a message."""
    first = entries[0]
    found = [(one.bucket_id, one.object_id, one.birth, one.death) for one in entries]
    return DeletedEntries(
        first.chain_version,
        names_of_kind(first.kind, found),
        tuple([one.snapshots_before_death for one in entries]),
        first.sweep_id,
        first.sweep_page,
        None,
        first.sweep_txn,
        first.sweep_part,
    )
