"""Claiming and finishing rows: the third judgement, in the one place where order is certain.

A claimed row is out of reach of everything that could bring it back; only then may SCM delete its blocks, because
after that nothing can be undone.
"""

from __future__ import annotations

from schemas.records import (
    BlockGroup,
    BucketIdentity,
    ClaimedRow,
    ClaimRows,
    DeletedKind,
    FinishRows,
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
        row = work.table(DELETED_TABLE).get(key)
        if row is None or row.key.birth != name.birth:
            self._claimed_before(name, key)
            return
        if self._transaction.counters.claims_stopped or self._is_held(name.bucket_id, row.key.birth, row.death):
            self.refused.append(name)
            return
        work.table(DELETED_TABLE).delete(key)
        if row.key.blocks is None:
            raise InvariantError(f"a version without blocks is in deletedTable: {key!r}; stop and look at it")
        claimed = ClaimedRow(row.key.birth, self._transaction.txn, row.key.blocks)
        work.table(RECLAIM_TABLE).put(key, claimed)
        # A row that nobody holds is in the cell of nobody.
        self._transaction.space.subtract(name.bucket_id, NOBODY, key_cell(row.key))
        self._transaction.figures.claim(name.bucket_id, row.key.size_bytes)
        self._group(name, claimed)

    def _claimed_before(self, name: RowName, key: bytes) -> None:
        """A row that is claimed already is answered with its blocks again; anything else is gone."""
        claimed = self._transaction.work.table(RECLAIM_TABLE).get(key)
        if claimed is None or claimed.birth != name.birth:
            self.gone.append(name)
        else:
            self._group(name, claimed)

    def _group(self, name: RowName, claimed: ClaimedRow) -> None:
        self.groups.append(BlockGroup(name.bucket_id, name.object_id, name.birth, name.death, claimed.blocks))

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
        claimed = work.table(RECLAIM_TABLE).get(key)
        if claimed is None or claimed.birth != name.birth:
            continue
        work.table(RECLAIM_TABLE).delete(key)
        transaction.figures.finish(name.bucket_id, claimed.blocks.size_bytes)
    return RowsFinished(command.task)
