"""Follows the snapshot chain for a judge: every marker is kept as it came, and the view is made of them."""

from __future__ import annotations

from schemas.records import ChainRow, FullChain, SnapshotChainRecord
from services.domain.chain_view import ChainView, ChainViewError
from services.runtime.errors import ChainBrokenError
from services.runtime.service import Work
from services.storage.tables import TableDefinition, TablesReader

CHAIN_TABLE = TableDefinition("chainTable", ChainRow)
_FIRST, _BEYOND = b"", b"\xff"


def chain_key(version: int) -> bytes:
    """chainTable: chain version, 16 hex digits, so that the order of keys is the order of versions."""
    return b"%016x" % version


class ChainFollower:
    """The complete view of the shard's chain, up to the newest marker read."""

    def __init__(self) -> None:
        self.view = ChainView()

    def restore(self, tables: Work | TablesReader) -> None:
        """Make the view anew."""
        self.view = ChainView()
        for _, row in tables.table(CHAIN_TABLE).scan(_FIRST, _BEYOND):
            self.view.follow(row.record)

    def follow(self, record: SnapshotChainRecord, work: Work) -> bool:
        """Take in a marker; says whether it was new.

        Raises:
            ChainBrokenError: one before it is missing, or it contradicts them: nothing may be judged.
        """
        try:
            is_new = self.view.follow(record) is not None
        except ChainViewError as error:
            raise ChainBrokenError(work.shard, str(error)) from error
        if is_new:
            table = work.table(CHAIN_TABLE)
            if isinstance(record.body, FullChain):  # it says all that the markers before it said
                for key, _ in list(table.scan(_FIRST, chain_key(record.version))):
                    table.delete(key)
            table.put(chain_key(record.version), ChainRow(record))
        return is_new
