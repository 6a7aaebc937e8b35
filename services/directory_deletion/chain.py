"""Follows the snapshot chain: every marker is kept as it came, and the view is made of them."""

from __future__ import annotations

from schemas.records import ChainDrop, ChainRow, ChainTake, SnapshotChainRecord
from services.directory_deletion.tables import BEYOND, CHAIN_TABLE, FIRST, Tables, number_key
from services.domain.chain_view import ChainView, ChainViewError
from services.runtime.errors import ChainBrokenError
from services.runtime.service import Work


class ChainFollower:
    """The complete view of the shard's chain, up to the newest marker read."""

    def __init__(self) -> None:
        self.view = ChainView()

    def restore(self, tables: Tables) -> None:
        """Make the view anew."""
        self.view = ChainView()
        for _, row in tables.table(CHAIN_TABLE).scan(FIRST, BEYOND):
            _follow(self.view, row.record)

    def follow(self, record: SnapshotChainRecord, work: Work) -> bool:
        """Take in a marker; says whether it was new.

        Raises:
            ChainBrokenError: one before it is missing, or it contradicts them: nothing may be judged.
        """
        try:
            is_new = _follow(self.view, record)
        except ChainViewError as error:
            raise ChainBrokenError(work.shard, str(error)) from error
        if is_new:
            table = work.table(CHAIN_TABLE)
            if not isinstance(record.body, ChainTake | ChainDrop):
                for key, _ in list(table.scan(FIRST, number_key(record.version))):
                    table.delete(key)
            table.put(number_key(record.version), ChainRow(record))
        return is_new


def _follow(view: ChainView, record: SnapshotChainRecord) -> bool:
    body = record.body
    if isinstance(body, ChainTake):
        return view.take(
            record.version, record.predecessor_version, body.bucket_id, body.snapshot_id, body.ordinal, body.txn
        )
    if isinstance(body, ChainDrop):
        return view.drop(record.version, record.predecessor_version, body.bucket_id, body.snapshot_id)
    return view.full(record.version, body.buckets)
