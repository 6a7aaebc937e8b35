"""Claiming and finishing rows: the third judgement, made in log order, and the ledger of the freed versions.

No undelete or rollback can restore a claimed row. Only then may SCM delete its blocks, which cannot be undone.

The ledger has, for every freed version, the facts that show why freeing it was safe. A claim writes them in front of
the claimed version, encoded once for all rows between the same two snapshots. When the block store has confirmed a
version, one write removes its row and enters it in the ledger. All fields of the version that this needs are in front
of it, too, so it is not decoded a second time.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from itertools import compress, filterfalse
from operator import eq, methodcaller
from struct import Struct
from typing import Any

from schemas.codec import DecodeError, codec
from schemas.records import (
    BlockGroups,
    ClaimedHead,
    ClaimedRow,
    ClaimFacts,
    ClaimRows,
    DeletedKind,
    FinishRows,
    KeyHead,
    KeyNames,
    KeyRow,
    LedgerRows,
    RemovalOutcome,
    RowName,
    RowNames,
    RowsClaimed,
    RowsFinished,
)
from schemas.stored_rows import row_codec
from schemas.topics import LEDGER
from services.domain.errors import InvariantError
from services.domain.reclaimability import is_reclaimable_after
from services.domain.replication import redundancy_bytes
from services.domain.row_columns import NO_GROUPS, Row, by_columns, rows
from services.domain.space_matrix import NOBODY
from services.domain.table_keys import bucket_id_key, garbage_key
from services.metadata.collecting.breaker import Gate
from services.metadata.collecting.collection_commands import is_suspended
from services.metadata.collecting.expansion import key_of_row, remove_directory_row
from services.metadata.collecting.shadow import count_version, discount_version, has_counted, is_in_shadow
from services.metadata.namespace.garbage import ONE_RUN, RENAME_CELL, key_cell
from services.metadata.state.deleted_names import forget_death
from services.metadata.state.figures import BucketFigures
from services.metadata.state.snapshot_lists import SnapshotList
from services.metadata.state.tables import BUCKET_ID_TABLE, DELETED_TABLE, RECLAIM_TABLE, SNAPSHOT_RENAMED_TABLE
from services.metadata.state.transaction import Transaction
from services.storage.tables import Table

_KEY_HEAD = codec(KeyHead)
_KEY_NAMES = codec(KeyNames)
_CLAIMED_ROW = codec(ClaimedRow)
_CLAIMED_HEAD = codec(ClaimedHead)
_FACTS = row_codec(ClaimFacts)
_NUMBERS = Struct(">7q")
"""Birth, size and the fields of ``BlockRun`` of a claimed version."""
_NO_NUMBERS = bytes(_NUMBERS.size)


class _Claim:
    """Claims the rows of one command and collects the outcome of each."""

    def __init__(self, transaction: Transaction, command: ClaimRows) -> None:
        self._transaction = transaction
        self._command = command
        self._fronts: dict[tuple[int, int], bytes] = {}
        self._sizes: defaultdict[int, list[int]] = defaultdict(list)
        """Sizes of the claimed versions by bucket."""
        self._redundancies: defaultdict[int, int] = defaultdict(int)
        self.groups: list[tuple[int, ...]] = []
        self.removed: list[RowName] = []
        self.missing: list[RowName] = []
        self.refused: list[RowName] = []
        self.suspended: list[RowName] = []
        self._deleted = transaction.work.table(DELETED_TABLE)
        self._reclaim = transaction.work.table(RECLAIM_TABLE)
        self._gates: dict[int, Gate] = {}
        # State of the present bucket:
        self._is_suspended = self._was_in_shadow = False
        self._snapshots = SnapshotList.of(())

    def rows(self, names: RowNames) -> None:
        """Claim rows of one kind."""
        keys = _read_ahead(self._transaction, self._deleted, names) if names.kind is DeletedKind.KEY else None
        bucket_id = None
        for place, row in enumerate(rows(names)):
            if row[0] != bucket_id:
                bucket_id = row[0]
                self._enter_bucket(bucket_id)
            if keys is not None:
                self._key(row, keys[place])
            elif names.kind is DeletedKind.RENAME_ENTRY:
                self._rename_entry(RowName(names.kind, *row))
            else:
                self._directory(RowName(names.kind, *row))

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
                count_version(self._transaction, bucket_id, key, self._deleted.decode(row))
        elif version.blocks is None:
            self._transaction.space.disagrees(bucket_id, key_cell(version.size_bytes))
            self._is_suspended = True
        else:
            self._is_suspended = not self._gate(bucket_id).admit(version.size_bytes, death)
        if self._is_suspended:
            self.suspended.append(RowName(DeletedKind.KEY, *named))
            return
        self._deleted.delete(key)
        if self._was_in_shadow:
            discount_version(self._transaction, bucket_id, self._deleted.decode(row))
        front = self._front(snapshots.previous(death), snapshots.next(version.birth))
        if isinstance(version, KeyNames):
            forget_death(self._transaction.work, bucket_id, version, death)
        blocks = _block_fields(named, version)
        self._reclaim.put_encoded(key, claimed_row(front, version.birth, version.size_bytes, blocks, row))
        self._sizes[bucket_id].append(version.size_bytes)
        if self._transaction.counters.has_redundancy:
            self._redundancies[bucket_id] += redundancy_bytes(blocks[0], *blocks[2:])
        self.groups.append((*named, *blocks))

    def _gate(self, bucket_id: int) -> Gate:
        gate = self._gates.get(bucket_id)
        if gate is None:
            gate = self._gates[bucket_id] = Gate(self._transaction, bucket_id)
        return gate

    def _front(self, previous_txn: int, next_txn: int) -> bytes:
        """Return the beginning of a claimed row, up to the version's own numbers. Most rows have the same neighbours.

        ``previous_txn`` is the newest live snapshot before the death, ``next_txn`` the oldest one after the birth; 0
        for none.
        """
        front = self._fronts.get((previous_txn, next_txn))
        if front is None:
            transaction, command = self._transaction, self._command
            facts = ClaimFacts(
                claim_txn=transaction.txn,
                claim_time_ms=transaction.log_time_ms,
                chain_version=transaction.counters.chain_version,
                previous_txn=previous_txn,
                next_txn=next_txn,
                task=command.task,
                first_judge_version=command.first_judge_version,
                second_judge_version=command.chain_version,
            )
            fields = {"facts": _FACTS.oldest_form(_FACTS.encode(facts)), "numbers": _NO_NUMBERS}
            front = _CLAIMED_ROW.encode_before_last(fields).removesuffix(_NO_NUMBERS)
            self._fronts[previous_txn, next_txn] = front
        return front

    def _claimed_before(self, named: Row, key: bytes) -> None:
        """Answer a row that is claimed already with its blocks again, any other as missing."""
        row = self._reclaim.get_encoded(key)
        claimed = None if row is None else self._reclaim.decode(row).version.key
        if claimed is None or claimed.birth != named[2]:
            self.missing.append(RowName(DeletedKind.KEY, *named))
        else:
            self.groups.append((*named, *_block_fields(named, claimed)))

    def _rename_entry(self, name: RowName) -> None:
        table, key = self._transaction.work.table(SNAPSHOT_RENAMED_TABLE), key_of_row(self._transaction, name)
        row = table.get(key)
        if row is None:
            self.missing.append(name)
        elif self._is_held(row.birth, row.death):
            self.refused.append(name)
        elif self._is_suspended:
            self.suspended.append(name)
        else:
            table.delete(key)
            self._transaction.space.subtract(name.bucket_id, NOBODY, RENAME_CELL)
            self.removed.append(name)

    def _directory(self, name: RowName) -> None:
        outcome = remove_directory_row(self._transaction, name).outcome
        if outcome is RemovalOutcome.REMOVED:
            self.removed.append(name)
        elif outcome is RemovalOutcome.HELD:
            self.refused.append(name)
        elif outcome is RemovalOutcome.SUSPENDED:
            self.suspended.append(name)
        else:
            self.missing.append(name)

    def finish(self) -> RowsClaimed:
        """Add the claimed versions to the figures, and return the outcomes of all rows."""
        transaction = self._transaction
        for bucket_id, sizes in self._sizes.items():
            # A row that no snapshot holds is counted in the cell NOBODY.
            redundancy = self._redundancies[bucket_id]
            transaction.space.subtract(bucket_id, NOBODY, key_cell(sum(sizes), len(sizes), redundancy))
            transaction.figures.claim(bucket_id, sum(sizes), len(sizes))
            if redundancy:
                transaction.figures.add_redundancy(bucket_id, claimed=redundancy)
        for gate in self._gates.values():
            gate.close()
        transaction.counters.refused_rows += len(self.refused)
        return RowsClaimed(
            self._command.task,
            BlockGroups(*zip(*self.groups, strict=True)) if self.groups else NO_GROUPS,
            by_columns(self.removed),
            by_columns(self.missing),
            by_columns(self.refused),
            by_columns(self.suspended),
            transaction.counters.reported_local_id,
        )


def claim_rows(transaction: Transaction, command: ClaimRows) -> RowsClaimed:
    """Claim the rows that no snapshot holds. Every row of the command gets an answer."""
    claim = _Claim(transaction, command)
    for names in command.rows:
        claim.rows(names)
    return claim.finish()


@dataclass(slots=True)
class _FinishedRows:
    """The finished rows of one bucket by columns, and what they take from its figures."""

    births: list[int] = field(default_factory=list)
    deaths: list[int] = field(default_factory=list)
    sizes: list[int] = field(default_factory=list)
    """Bytes of each version."""
    rows: list[bytes] = field(default_factory=list)
    """Each encoded row."""
    redundancies: list[int] = field(default_factory=list)
    """Bytes of redundancy of each version, if the shard has any."""

    def count(self, figures: BucketFigures, bucket_id: int) -> None:
        """Count the rows as freed."""
        block_rows = sum(map(_is_nameless, filterfalse(methodcaller("endswith", ONE_RUN), self.rows)))
        spare_bytes = self._spare(self.sizes)
        figures.finish(bucket_id, sum(self.sizes), len(self.rows), spare_bytes=spare_bytes, block_rows=block_rows)
        if freed := sum(self.redundancies):
            spare = -self._spare(self.redundancies)
            figures.add_redundancy(bucket_id, 0, -freed, spare=spare, claimed=-freed, freed=freed, stored=-freed)

    def _spare(self, amounts: list[int]) -> int:
        """Return the sum of the amounts of those rows whose blocks never belonged to a version."""
        return sum(compress(amounts, map(eq, self.births, self.deaths)))


def _is_nameless(row: bytes) -> bool:
    """Return whether a claimed row has no name in the figures: it had blocks only, or was a noncurrent version."""
    version = _CLAIMED_ROW.decode_head(row).version
    return version.part_of != 0 or version.version_of != 0


def finish_rows(transaction: Transaction, command: FinishRows) -> RowsFinished:
    """Remove claimed rows whose blocks SCM has confirmed, and enter them in the ledger. Missing rows are finished."""
    table = transaction.work.table(RECLAIM_TABLE)
    finished, has_redundancy = defaultdict[int, _FinishedRows](_FinishedRows), transaction.counters.has_redundancy
    groups: list[tuple[int, ...]] = []
    claims: dict[bytes, int] = {}
    claim_places: list[int] = []
    facts = front = b""
    for names in command.rows:
        for named, key in zip(rows(names), _read_ahead(transaction, table, names), strict=True):
            bucket_id, _, birth, death = named
            row = table.get_encoded(key)
            if row is None:
                continue
            if not front or not row.startswith(front):  # those between the same snapshots begin alike
                facts, front = facts_and_front(row)
            numbers = _NUMBERS.unpack_from(row, len(front))
            if numbers[0] != birth:
                continue
            table.delete(key)
            of_bucket = finished[bucket_id]
            of_bucket.births.append(birth)
            of_bucket.deaths.append(death)
            of_bucket.sizes.append(numbers[1])
            of_bucket.rows.append(row)
            if has_redundancy:
                of_bucket.redundancies.append(redundancy_bytes(numbers[2], *numbers[4:]))
            groups.append(named + numbers[2:])
            claim_places.append(claims.setdefault(facts, len(claims)))
    for bucket_id, of_bucket in finished.items():
        of_bucket.count(transaction.figures, bucket_id)
        births, deaths, of_rows = of_bucket.births, of_bucket.deaths, of_bucket.rows
        transaction.freed.note(transaction.work, transaction.log_time_ms, bucket_id, births, deaths, of_rows)
    if groups:
        entered = LedgerRows(
            finish_txn=transaction.txn,
            finish_time_ms=transaction.log_time_ms,
            claims=tuple([_FACTS.decode(facts) for facts in claims]),
            claim_places=tuple(claim_places),
            groups=BlockGroups(*zip(*groups, strict=True)),
        )
        transaction.work.send(LEDGER, entered)
    return RowsFinished(command.task)


def _read_ahead(transaction: Transaction, table: Table[Any], names: RowNames) -> list[bytes]:
    """Read the rows of one kind in one call. Return their keys; for a bucket that never existed an empty key."""
    identities = transaction.work.table(BUCKET_ID_TABLE)
    keys, bucket_id, identity = [], None, None
    for row_bucket_id, object_id, _, death in rows(names):
        if row_bucket_id != bucket_id:
            bucket_id, identity = row_bucket_id, identities.get(bucket_id_key(row_bucket_id))
        keys.append(b"" if identity is None else garbage_key(identity.volume_id, row_bucket_id, death, object_id))
    table.read_ahead(keys)
    return keys


def _block_fields(named: Row, version: KeyHead | KeyNames | KeyRow) -> tuple[int, int, int, int, int]:
    """Return the fields of the blocks of a version in deletedTable or reclaimTable."""
    run = version.blocks
    if run is None:
        raise InvariantError(f"deletedTable has a version without blocks: {named}; report it with the log")
    return run.container_id, run.first_local_id, run.block_count, run.block_size_bytes, run.size_bytes


def claimed_row(front: bytes, birth: int, size_bytes: int, blocks: tuple[int, ...], version: bytes) -> bytes:
    """Return an encoded claimed row: the shared beginning, its own numbers, and the encoded version."""
    return front + _NUMBERS.pack(birth, size_bytes, *blocks) + version


def facts_and_numbers(row: bytes) -> tuple[bytes, tuple[int, ...]]:
    """Return from an encoded claimed row its encoded facts, and the version's birth, size and ``BlockRun`` fields.

    Raises:
        DecodeError: the bytes are not a claimed row.
    """
    head = _CLAIMED_HEAD.decode_head(row)
    return head.facts, unpacked_numbers(head.numbers)


def facts_and_front(row: bytes) -> tuple[bytes, bytes]:
    """Return the encoded facts of an encoded claimed row, and all that is before its numbers.

    Raises:
        DecodeError: the bytes are not a claimed row.
    """
    head = _CLAIMED_HEAD.decode_head(row)
    unpacked_numbers(head.numbers)
    return head.facts, _CLAIMED_HEAD.encode(head)[: -_NUMBERS.size]


def unpacked_numbers(numbers: bytes) -> tuple[int, ...]:
    """Return a claimed version's birth, size and ``BlockRun`` fields. Raise DecodeError for other bytes."""
    if len(numbers) != _NUMBERS.size:
        raise DecodeError(f"a claimed row has {len(numbers)} bytes of numbers, not {_NUMBERS.size}")
    return _NUMBERS.unpack(numbers)


def claim_txn(claimed: ClaimedRow) -> int:
    """Return the txn of a row's claim."""
    return _FACTS.decode(claimed.facts).claim_txn
