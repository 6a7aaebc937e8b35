"""Claiming and finishing rows: the third judgement, made in log order.

No undelete or rollback can restore a claimed row. Only then may SCM delete its blocks, which cannot be undone.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from schemas.codec import codec
from schemas.records import (
    BlockGroups,
    BucketIdentity,
    ClaimRows,
    DeletedKind,
    FinishRows,
    KeyHead,
    KeyNames,
    KeyRow,
    RemovalOutcome,
    RowName,
    RowNames,
    RowsClaimed,
    RowsFinished,
)
from services.domain.errors import InvariantError
from services.domain.reclaimability import is_reclaimable_after
from services.domain.row_columns import NO_GROUPS, Row, by_columns, rows
from services.domain.space_matrix import NOBODY
from services.domain.table_keys import bucket_id_key, garbage_key
from services.metadata.collecting.breaker import Gate
from services.metadata.collecting.collection_commands import is_suspended
from services.metadata.collecting.expansion import remove_directory_row
from services.metadata.collecting.freed_rows import ClaimFronts, Ledger, claimed_row, facts_and_numbers
from services.metadata.collecting.shadow import count_version, discount_encoded, has_counted, is_in_shadow
from services.metadata.namespace.garbage import RENAME_CELL, key_cell
from services.metadata.state.deleted_names import forget_death
from services.metadata.state.snapshot_lists import SnapshotList
from services.metadata.state.tables import BUCKET_ID_TABLE, DELETED_TABLE, RECLAIM_TABLE, SNAPSHOT_RENAMED_TABLE
from services.metadata.state.transaction import Transaction
from services.storage.tables import Table

_KEY_HEAD = codec(KeyHead)
_KEY_NAMES = codec(KeyNames)


class _Claim:
    """Claims the rows of one command and collects the outcome of each."""

    def __init__(self, transaction: Transaction, command: ClaimRows) -> None:
        self._transaction = transaction
        self._fronts = ClaimFronts(transaction, command)
        self._sums = _Sums()
        self.groups: list[tuple[int, ...]] = []
        self.removed: list[RowName] = []
        self.missing: list[RowName] = []
        self.refused: list[RowName] = []
        self.suspended: list[RowName] = []
        self._deleted = transaction.work.table(DELETED_TABLE)
        self._reclaim = transaction.work.table(RECLAIM_TABLE)
        # State of the present bucket:
        self._is_suspended = self._was_in_shadow = False
        self._snapshots = SnapshotList.of(())
        self._gates: dict[int, Gate] = {}

    def rows(self, names: RowNames) -> None:
        """Claim rows of one kind."""
        identities = _Identities(self._transaction)
        keys = _read_ahead(self._deleted, names, identities) if names.kind is DeletedKind.KEY else None
        bucket_id = None
        for place, row in enumerate(rows(names)):
            if row[0] != bucket_id:
                bucket_id = row[0]
                self._enter_bucket(bucket_id)
            if keys is not None:
                self._key(row, keys[place])
            elif (identity := identities.of(bucket_id)) is None:
                self.missing.append(RowName(names.kind, *row))
            elif names.kind is DeletedKind.RENAME_ENTRY:
                self._rename_entry(RowName(names.kind, *row), identity)
            else:
                self._directory(RowName(names.kind, *row), identity)

    def _enter_bucket(self, bucket_id: int) -> None:
        """Switch to a bucket: the next rows belong to it."""
        self._is_suspended = is_suspended(self._transaction, bucket_id)
        self._was_in_shadow = has_counted(self._transaction, bucket_id)
        self._snapshots = self._transaction.snapshots.of(self._transaction.work, bucket_id)

    def _is_held(self, birth: int, death: int) -> bool:
        """Return whether a live snapshot holds a row. Birth and death must come from the row, not from the message."""
        return not is_reclaimable_after(birth, self._snapshots.previous(death))

    def _key(self, named: Row, key: bytes) -> None:
        bucket_id, _, birth, death = named
        row, snapshots = self._deleted.get_encoded(key), self._snapshots
        # The name is decoded only if a snapshot, dropped since, may have held the version.
        is_noted = birth <= snapshots.newest_txn
        version = None if row is None else (_KEY_NAMES if is_noted else _KEY_HEAD).decode_head(row)
        if row is None or version is None or version.birth != birth:
            self._claimed_before(named, key)
            return
        # The death comes from the row's key, so it is the row's own.
        if self._is_held(version.birth, death):
            self.refused.append(RowName(DeletedKind.KEY, *named))
            return
        if self._is_suspended:
            if is_in_shadow(self._transaction, bucket_id):
                count_version(self._transaction, bucket_id, key, row)
            self.suspended.append(RowName(DeletedKind.KEY, *named))
            return
        if version.blocks is None:
            self._transaction.space.disagrees(bucket_id, (version.size_bytes, 1, 1, 0, 0))
            self._is_suspended = True
            self.suspended.append(RowName(DeletedKind.KEY, *named))
            return
        if not self._gate(bucket_id).admit(version.size_bytes, death):
            self._is_suspended = True
            self.suspended.append(RowName(DeletedKind.KEY, *named))
            return
        self._deleted.delete(key)
        if self._was_in_shadow:
            discount_encoded(self._transaction, bucket_id, row)
        front = self._fronts.between(snapshots.previous(death), snapshots.next(version.birth))
        if isinstance(version, KeyNames):
            forget_death(self._transaction.work, bucket_id, version, death)
        blocks = _block_fields(named, version)
        self._reclaim.put_encoded(key, claimed_row(front, version.birth, version.size_bytes, blocks, row))
        self._sums.add(bucket_id, version.size_bytes)
        self.groups.append((*named, *blocks))

    def _gate(self, bucket_id: int) -> Gate:
        gate = self._gates.get(bucket_id)
        if gate is None:
            gate = self._gates[bucket_id] = Gate(self._transaction, bucket_id)
        return gate

    def _claimed_before(self, named: Row, key: bytes) -> None:
        """Answer a row that is claimed already with its blocks again, any other as missing."""
        row = self._reclaim.get_encoded(key)
        claimed = None if row is None else self._reclaim.decode(row).version.key
        if claimed is None or claimed.birth != named[2]:
            self.missing.append(RowName(DeletedKind.KEY, *named))
        else:
            self.groups.append((*named, *_block_fields(named, claimed)))

    def _rename_entry(self, name: RowName, identity: BucketIdentity) -> None:
        work = self._transaction.work
        key = garbage_key(identity.volume_id, name.bucket_id, name.death, name.object_id)
        row = work.table(SNAPSHOT_RENAMED_TABLE).get(key)
        if row is None:
            self.missing.append(name)
        elif self._is_held(row.birth, row.death):
            self.refused.append(name)
        elif self._is_suspended:
            self.suspended.append(name)
        else:
            work.table(SNAPSHOT_RENAMED_TABLE).delete(key)
            self._transaction.space.subtract(name.bucket_id, NOBODY, RENAME_CELL)
            self.removed.append(name)

    def _directory(self, name: RowName, identity: BucketIdentity) -> None:
        outcome = remove_directory_row(self._transaction, identity, name).outcome
        if outcome is RemovalOutcome.REMOVED:
            self.removed.append(name)
        elif outcome is RemovalOutcome.HELD:
            self.refused.append(name)
        elif outcome is RemovalOutcome.SUSPENDED:
            self.suspended.append(name)
        else:
            self.missing.append(name)

    def count(self) -> None:
        """Add the claimed versions to the figures."""
        for bucket_id, size_bytes, versions in self._sums.of_buckets():
            # A row that no snapshot holds is counted in the cell NOBODY.
            self._transaction.space.subtract(bucket_id, NOBODY, key_cell(size_bytes, versions))
            self._transaction.figures.claim(bucket_id, size_bytes, versions)

    def answer(self, task: int) -> RowsClaimed:
        """Return the outcomes of all rows."""
        for gate in self._gates.values():
            gate.close()
        self._transaction.counters.refused_rows += len(self.refused)
        return RowsClaimed(
            task,
            BlockGroups(*zip(*self.groups, strict=True)) if self.groups else NO_GROUPS,
            by_columns(self.removed),
            by_columns(self.missing),
            by_columns(self.refused),
            by_columns(self.suspended),
        )


class _Sums:
    """Sizes and numbers of one command's versions by bucket, for figures that are updated once after it."""

    def __init__(self) -> None:
        self._sizes: dict[int, list[int]] = {}

    def add(self, bucket_id: int, size_bytes: int) -> None:
        """Count a version."""
        sizes = self._sizes.get(bucket_id)
        if sizes is None:
            sizes = self._sizes[bucket_id] = []
        sizes.append(size_bytes)

    def of_buckets(self) -> Iterator[tuple[int, int, int]]:
        """Yield id, bytes and versions of each bucket."""
        for bucket_id, sizes in self._sizes.items():
            yield bucket_id, sum(sizes), len(sizes)


class _Identities:
    """Identities of the buckets of one command's rows, with the last one cached: most commands have one bucket."""

    def __init__(self, transaction: Transaction) -> None:
        self._table = transaction.work.table(BUCKET_ID_TABLE)
        self._bucket_id: int | None = None
        self._identity: BucketIdentity | None = None

    def of(self, bucket_id: int) -> BucketIdentity | None:
        """Return the identity of a bucket; None if it never existed."""
        if bucket_id != self._bucket_id:
            self._bucket_id, self._identity = bucket_id, self._table.get(bucket_id_key(bucket_id))
        return self._identity


def _read_ahead(table: Table[Any], names: RowNames, identities: _Identities) -> list[bytes]:
    """Read the rows of one kind in one call. Return their keys; for a bucket that never existed an empty key."""
    keys, bucket_id, identity = [], None, None
    for row_bucket_id, object_id, _, death in rows(names):
        if row_bucket_id != bucket_id:
            bucket_id, identity = row_bucket_id, identities.of(row_bucket_id)
        keys.append(b"" if identity is None else garbage_key(identity.volume_id, row_bucket_id, death, object_id))
    table.read_ahead(keys)
    return keys


def _block_fields(named: Row, version: KeyHead | KeyNames | KeyRow) -> tuple[int, int, int, int, int]:
    """Return the fields of the blocks of a version in deletedTable or reclaimTable."""
    run = version.blocks
    if run is None:
        raise InvariantError(f"deletedTable has a version without blocks: {named}; report it with the log")
    return run.container_id, run.first_local_id, run.block_count, run.block_size_bytes, run.size_bytes


def claim_rows(transaction: Transaction, command: ClaimRows) -> RowsClaimed:
    """Claim the rows that no snapshot holds. Every row of the command gets an answer."""
    claim = _Claim(transaction, command)
    for names in command.rows:
        claim.rows(names)
    claim.count()
    return claim.answer(command.task)


def finish_rows(transaction: Transaction, command: FinishRows) -> RowsFinished:
    """Remove claimed rows whose blocks SCM has confirmed, and enter them in the ledger. Missing rows are finished."""
    claimed_rows, identities = transaction.work.table(RECLAIM_TABLE), _Identities(transaction)
    ledger, sums = Ledger(), _Sums()
    freed: dict[int, list[tuple[int, int, bytes]]] = {}
    for names in command.rows:
        for named, key in zip(rows(names), _read_ahead(claimed_rows, names, identities), strict=True):
            bucket_id, _, birth, death = named
            row = claimed_rows.get_encoded(key)
            if row is None:
                continue
            facts, (claimed_birth, size_bytes, *blocks) = facts_and_numbers(row)
            if claimed_birth != birth:
                continue
            claimed_rows.delete(key)
            sums.add(bucket_id, size_bytes)
            ledger.enter(named, blocks, facts)
            freed.setdefault(bucket_id, []).append((birth, death, row))
    for bucket_id, size_bytes, versions in sums.of_buckets():
        transaction.figures.finish(bucket_id, size_bytes, versions)
    ledger.send(transaction)
    for bucket_id, of_bucket in freed.items():
        transaction.freed.note(transaction.work, transaction.log_time_ms, bucket_id, of_bucket)
    return RowsFinished(command.task)
