"""Compares snapshotInfoTable with the chain that metadata publishes, in both directions.

Differences are counted and reported, never repaired here: when metadata starts from an older copy, it reads its log
again, and the differences disappear.
"""

from __future__ import annotations

import structlog

from schemas.records import ChainDrop, ChainRow, FullChain, SnapshotChainRecord
from services.domain.chain_view import ChainViewError
from services.runtime.loop.service import Work
from services.runtime.parts.stored_chain import CHAIN_TABLE, StoredChain
from services.snapshots.state.rows import SnapshotRows, is_active
from services.storage.tables import Tables

logger = structlog.get_logger(__name__)

_MISFIT = b"!MISFIT"
"""Key in chainTable: the first marker that did not fit, until a full chain arrives."""
_DROPPED, _BEYOND_DROPPED = b"!DROPPED/", b"!DROPPED0"
"""Keys in chainTable: drops of snapshots that were active here."""
DIFFERENCES = ("unknown_here", "dropped_there", "missing_there")


class ChainCheck:
    """Follows the markers of the chain. A missing marker stops only the comparison: this service judges no rows."""

    def __init__(self, rows: SnapshotRows) -> None:
        self._rows = rows
        self._chain = StoredChain()
        self._dropped: set[str] = set()
        self.is_known = True
        """Whether all markers were applied without a gap."""

    @property
    def version(self) -> int:
        """Return the chain version of the newest applied marker."""
        return self._chain.view.version

    def restore(self, tables: Tables) -> None:
        """Read the chain from the table."""
        self._chain.restore(tables)
        table = tables.table(CHAIN_TABLE)
        self.is_known = table.get(_MISFIT) is None
        self._dropped = {key[len(_DROPPED) :].decode() for key, _ in table.scan(_DROPPED, _BEYOND_DROPPED)}

    def follow(self, record: SnapshotChainRecord, work: Work) -> None:
        """Apply one marker. A full chain of no later version is ignored while a chain is known; after a misfit every
        other marker is. After an accepted loss the chain goes on from a full chain of a much later version.
        """
        body = record.body
        has_chain = self.is_known and self.version > 0
        if has_chain and isinstance(body, FullChain) and record.version <= self.version:
            return
        if not (self.is_known or isinstance(body, FullChain)):
            return
        if isinstance(body, FullChain) and body.part == 1:
            self._chain.clear(work)
        try:
            is_new = self._chain.follow(record, work)
        except ChainViewError as error:
            logger.error("the snapshot chain cannot be compared", reason=str(error))
            self.is_known = False
            work.table(CHAIN_TABLE).put(_MISFIT, ChainRow(record))
            return
        if is_new and not self.is_known:
            work.table(CHAIN_TABLE).delete(_MISFIT)
            self.is_known = True
        if is_new and isinstance(body, ChainDrop):
            self._note_drop(body.snapshot_id, record, work)

    def _note_drop(self, snapshot_id: str, record: SnapshotChainRecord, work: Work) -> None:
        """Store the drop of a snapshot that is active here. Normally a snapshot is marked deleted before its drop."""
        row = self._rows.of(snapshot_id)
        if row is not None and is_active(row):
            self._dropped.add(snapshot_id)
            work.table(CHAIN_TABLE).put(_DROPPED + snapshot_id.encode(), ChainRow(record))
        for other in [one for one in self._dropped if self._rows.of(one) is None]:
            self._dropped.discard(other)
            work.table(CHAIN_TABLE).delete(_DROPPED + other.encode())

    def different_snapshots(self) -> dict[str, list[str]]:
        """Return the ids of the snapshots that differ, by kind of difference; none while the chain is not known."""
        found: dict[str, list[str]] = {difference: [] for difference in DIFFERENCES}
        if not self.is_known:
            return found
        view = self._chain.view
        for bucket_id in view.bucket_ids():
            found["unknown_here"] += [
                snapshot.snapshot_id for snapshot in view.live(bucket_id) if self._rows.of(snapshot.snapshot_id) is None
            ]
        for row in self._rows:
            if not is_active(row) or view.find(row.bucket_id, row.snapshot_id) is not None:
                continue
            if row.snapshot_id in self._dropped:
                found["dropped_there"].append(row.snapshot_id)
            elif row.chain_version_of_reset <= view.version:
                found["missing_there"].append(row.snapshot_id)
        return found
