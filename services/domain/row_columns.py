"""Conversions of garbage table rows between columns, as in messages, and single rows, as rules use them.

A message about a thousand rows has a few long lists instead of a thousand small records: encoding and decoding a
record takes several times as long as its numbers alone.
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
    """The lists of a message differ in length: nothing of the message may be used."""


@dataclass(frozen=True, slots=True)
class BlockGroup:
    """One claimed row and its blocks, which SCM deletes as a whole or not at all."""

    bucket_id: int
    object_id: int
    birth: int
    death: int
    blocks: BlockRun


@dataclass(frozen=True, slots=True)
class DeletedEntry:
    """One row of a ``DeletedEntries``: a deletion from a bucket's active namespace, or its repeat by a sweep."""

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
    """Refuse columns of different lengths.

    Raises:
        ColumnsError: the columns differ in length.
    """
    lengths = {len(column) for column in columns}
    if len(lengths) > 1:
        raise ColumnsError(f"the lists of a message have {sorted(lengths)} items; they must have the same length")


def rows(names: RowNames) -> Iterator[Row]:
    """Return the rows of one kind.

    Raises:
        ColumnsError: the lists differ in length.
    """
    four = columns(names)
    check_lengths(*four)
    return zip(*four, strict=True)


def columns(names: RowNames) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    """Return the columns in the order of a ``Row``."""
    return names.bucket_ids, names.object_ids, names.births, names.deaths


def names_between(names: RowNames, first: int, beyond: int) -> RowNames:
    """Return the rows from the place ``first`` up to, not including, ``beyond``."""
    return RowNames(names.kind, *(column[first:beyond] for column in columns(names)))


def row_count(names: Iterable[RowNames]) -> int:
    """Return the number of rows."""
    return sum(len(one.object_ids) for one in names)


def row_names(names: Iterable[RowNames]) -> list[RowName]:
    """Return the rows one by one.

    Raises:
        ColumnsError: the lists differ in length.
    """
    return [RowName(one.kind, *row) for one in names for row in rows(one)]


def names_of_kind(kind: DeletedKind, found: Sequence[Row]) -> RowNames:
    """Return rows of one kind by columns."""
    return RowNames(kind, *zip(*found, strict=True)) if found else RowNames(kind, (), (), (), ())


def by_columns(named: Iterable[RowName]) -> tuple[RowNames, ...]:
    """Return rows by columns, grouped by kind."""
    kinds: dict[DeletedKind, list[Row]] = {}
    for name in named:
        kinds.setdefault(name.kind, []).append((name.bucket_id, name.object_id, name.birth, name.death))
    return tuple(names_of_kind(kind, found) for kind, found in kinds.items())


def each_once(names: Iterable[RowNames]) -> tuple[RowNames, ...]:
    """Return the rows grouped by kind, without duplicates."""
    kinds: dict[DeletedKind, dict[Row, None]] = {}
    for one in names:
        kinds.setdefault(one.kind, {}).update(dict.fromkeys(rows(one)))
    return tuple(names_of_kind(kind, list(found)) for kind, found in kinds.items() if found)


def group_rows(groups: BlockGroups) -> Iterator[tuple[int, ...]]:
    """Return the fields of each group: a ``Row``, then a ``BlockRun``.

    Raises:
        ColumnsError: the lists differ in length.
    """
    nine = group_columns(groups)
    check_lengths(*nine)
    return zip(*nine, strict=True)


def group_columns(groups: BlockGroups) -> tuple[tuple[int, ...], ...]:
    """Return the columns in the order of their fields."""
    return (
        *(groups.bucket_ids, groups.object_ids, groups.births, groups.deaths),
        *(groups.container_ids, groups.first_local_ids, groups.block_counts),
        *(groups.block_sizes_bytes, groups.sizes_bytes),
    )


def block_groups(groups: BlockGroups) -> list[BlockGroup]:
    """Return the groups one by one.

    Raises:
        ColumnsError: the lists differ in length.
    """
    return [
        BlockGroup(bucket_id, object_id, birth, death, BlockRun(*blocks))
        for bucket_id, object_id, birth, death, *blocks in group_rows(groups)
    ]


def groups_at(groups: BlockGroups, places: Sequence[int]) -> BlockGroups:
    """Return the groups at some places."""
    return BlockGroups(*(tuple([column[place] for place in places]) for column in group_columns(groups)))


def names_of_groups(groups: BlockGroups) -> RowNames:
    """Return the rows of the groups."""
    return RowNames(DeletedKind.KEY, groups.bucket_ids, groups.object_ids, groups.births, groups.deaths)


def deleted_entries(message: DeletedEntries) -> list[DeletedEntry]:
    """Return the entries of a message one by one.

    Raises:
        ColumnsError: the lists differ in length.
    """
    names, befores = message.rows, message.snapshots_before_death
    check_lengths(names.object_ids, befores)
    page = (message.chain_version, message.sweep_id, message.sweep_page, message.sweep_txn, message.sweep_part)
    return [
        DeletedEntry(bucket_id, object_id, names.kind, birth, death, before, *page)
        for (bucket_id, object_id, birth, death), before in zip(rows(names), befores, strict=True)
    ]


def entries_by_columns(entries: Sequence[DeletedEntry]) -> DeletedEntries:
    """Return a message of entries that share kind, chain version and part of a sweep's page."""
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
