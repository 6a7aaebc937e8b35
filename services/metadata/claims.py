"""Claiming and finishing rows: the third judgement, in the one place where order is certain.

A claimed row is out of reach of everything that could bring it back; only then may SCM delete its blocks, because
after that nothing can be undone.
"""

from __future__ import annotations

from schemas.codec import codec
from schemas.records import (
    BlockGroup,
    BucketIdentity,
    ClaimedRow,
    ClaimRows,
    DeletedKind,
    FinishRows,
    KeyHead,
    PurgeOutcome,
    RowName,
    RowsClaimed,
    RowsFinished,
)
from services.domain.reclaimability import is_reclaimable_after
from services.domain.space_matrix import NOBODY
from services.domain.table_keys import bucket_id_key, garbage_key
from services.metadata.expansion import purge_one
from services.metadata.garbage import RENAME_CELL, key_cell
from services.metadata.tables import (
    BUCKET_ID_TABLE,
    DELETED_TABLE,
    RECLAIM_TABLE,
    SNAPSHOT_RENAMED_TABLE,
)
from services.metadata.transaction import Transaction
from services.runtime.errors import InvariantError

_KEY_HEAD = codec(KeyHead)
_CLAIMED_ROW = codec(ClaimedRow)


class _Claim:
    """Collects what became of each row of one command."""

    def __init__(self, transaction: Transaction) -> None:
        self._transaction = transaction
        self.groups: list[BlockGroup] = []
        self.removed: list[RowName] = []
        self.gone: list[RowName] = []
        self.refused: list[RowName] = []

    def row(self, name: RowName) -> None:
        """Claim one row."""
        identity = self._transaction.work.table(BUCKET_ID_TABLE).get(bucket_id_key(name.bucket_id))
        if identity is None:
            self.gone.append(name)
        elif name.kind is DeletedKind.KEY:
            self._key(name, identity)
        elif name.kind is DeletedKind.RENAME_ENTRY:
            self._rename_entry(name, identity)
        else:
            self._directory(name, identity)

    def _is_held(self, bucket_id: int, birth: int, death: int) -> bool:
        """Whether a live snapshot holds a row; birth and death are the row's own, never the message's."""
        snapshots = self._transaction.snapshots.of(self._transaction.work, bucket_id)
        return not is_reclaimable_after(birth, snapshots.previous(death))

    def _key(self, name: RowName, identity: BucketIdentity) -> None:
        work = self._transaction.work
        key = garbage_key(identity.volume_id, name.bucket_id, name.death, name.object_id)
        row = work.table(DELETED_TABLE).get_encoded(key)
        version = None if row is None else _KEY_HEAD.decode_head(row)
        if row is None or version is None or version.birth != name.birth:
            self._claimed_before(name, key)
            return
        # The row's key holds its death: it is the row's own.
        if self._transaction.counters.claims_stopped or self._is_held(name.bucket_id, version.birth, name.death):
            self.refused.append(name)
            return
        work.table(DELETED_TABLE).delete(key)
        claimed = _CLAIMED_ROW.encode_around(row, {"claim_txn": self._transaction.txn})
        work.table(RECLAIM_TABLE).put_encoded(key, claimed)
        # A row that nobody holds is in the cell of nobody.
        self._transaction.space.subtract(name.bucket_id, NOBODY, key_cell(version))
        self._transaction.figures.claim(name.bucket_id, version.size_bytes)
        self._group(name, version)

    def _claimed_before(self, name: RowName, key: bytes) -> None:
        """A row that is claimed already is answered with its blocks again; anything else is gone."""
        claimed = _claimed_version(self._transaction, key, name)
        if claimed is None:
            self.gone.append(name)
        else:
            self._group(name, claimed)

    def _group(self, name: RowName, version: KeyHead) -> None:
        if version.blocks is None:
            raise InvariantError(f"a version without blocks is in deletedTable: {name}; stop and look at it")
        self.groups.append(BlockGroup(name.bucket_id, name.object_id, name.birth, name.death, version.blocks))

    def _rename_entry(self, name: RowName, identity: BucketIdentity) -> None:
        work = self._transaction.work
        key = garbage_key(identity.volume_id, name.bucket_id, name.death, name.object_id)
        row = work.table(SNAPSHOT_RENAMED_TABLE).get(key)
        if row is None:
            self.gone.append(name)
        elif self._transaction.counters.claims_stopped or self._is_held(name.bucket_id, row.birth, row.death):
            self.refused.append(name)
        else:
            work.table(SNAPSHOT_RENAMED_TABLE).delete(key)
            self._transaction.space.subtract(name.bucket_id, NOBODY, RENAME_CELL)
            self.removed.append(name)

    def _directory(self, name: RowName, identity: BucketIdentity) -> None:
        outcome = purge_one(self._transaction, identity, name).outcome
        if outcome is PurgeOutcome.PURGED:
            self.removed.append(name)
        elif outcome is PurgeOutcome.HELD:
            self.refused.append(name)
        else:
            self.gone.append(name)


def _claimed_version(transaction: Transaction, key: bytes, name: RowName) -> KeyHead | None:
    """The claimed version of that name; None when there is none."""
    row = transaction.work.table(RECLAIM_TABLE).get_encoded(key)
    version = None if row is None else _KEY_HEAD.decode_head(row)
    return version if version is not None and version.birth == name.birth else None


def claim_rows(transaction: Transaction, command: ClaimRows) -> RowsClaimed:
    """Move rows that nobody holds out of reach; every row of the command gets an answer."""
    claim = _Claim(transaction)
    for name in command.rows:
        claim.row(name)
    return RowsClaimed(command.task, tuple(claim.groups), tuple(claim.removed), tuple(claim.gone), tuple(claim.refused))


def finish_rows(transaction: Transaction, command: FinishRows) -> RowsFinished:
    """Remove claimed rows whose blocks SCM has confirmed; what is not there is finished."""
    work = transaction.work
    for name in command.rows:
        identity = work.table(BUCKET_ID_TABLE).get(bucket_id_key(name.bucket_id))
        if identity is None:
            continue
        key = garbage_key(identity.volume_id, name.bucket_id, name.death, name.object_id)
        claimed = _claimed_version(transaction, key, name)
        if claimed is None:
            continue
        work.table(RECLAIM_TABLE).delete(key)
        transaction.figures.finish(name.bucket_id, claimed.size_bytes)
    return RowsFinished(command.task)
