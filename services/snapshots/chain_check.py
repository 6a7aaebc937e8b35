"""Compares snapshotInfoTable with the chain that metadata tells, both ways.

Differences are counted and shown, never mended here: after a start of metadata from an older copy it takes in its log
again, and the differences go away by themselves.
"""

from __future__ import annotations

import structlog

from schemas.records import ChainRow, FullChain, SnapshotChainRecord
from services.domain.chain_view import ChainGapError, ChainOrderError, ChainView
from services.runtime.chain_follower import CHAIN_TABLE, chain_key
from services.runtime.service import Work
from services.snapshots.rows import SnapshotRows, is_active, is_complete
from services.snapshots.tables import BEYOND, FIRST, ReadableTables

logger = structlog.get_logger(__name__)

DIFFERENCES = ("unknown_here", "dropped_there", "missing_there")


class ChainCheck:
    """Follows the markers of the chain. A missing one ends the comparison, and nothing else: nobody judges here."""

    def __init__(self, rows: SnapshotRows) -> None:
        self._rows = rows
        self._view = ChainView()
        self.is_known = True
        """Whether the chain could be followed without a gap."""

    @property
    def version(self) -> int:
        """Chain version up to which the chain was followed."""
        return self._view.version

    def restore(self, tables: ReadableTables) -> None:
        """Follow the stored markers anew."""
        self._view = ChainView()
        self.is_known = True
        for _, row in tables.table(CHAIN_TABLE).scan(FIRST, BEYOND):
            self._advance(row.record)

    def follow(self, record: SnapshotChainRecord, work: Work) -> None:
        """Take in one marker; one that is known already does nothing."""
        if not self._advance(record):
            return
        table = work.table(CHAIN_TABLE)
        if isinstance(record.body, FullChain):
            for key, _ in list(table.scan(FIRST, BEYOND)):
                table.delete(key)
        table.put(chain_key(record.version), ChainRow(record))

    def _advance(self, record: SnapshotChainRecord) -> bool:
        """Whether a marker is worth keeping: the next one, or the first that does not fit."""
        try:
            if isinstance(record.body, FullChain):
                return self._start_from(record)
            return self.is_known and self._view.follow(record) is not None
        except (ChainGapError, ChainOrderError) as error:
            logger.error("the snapshot chain cannot be compared", reason=str(error))
            self.is_known = False
            return True

    def _start_from(self, record: SnapshotChainRecord) -> bool:
        if self.is_known and self._view.version:
            return False
        view = ChainView()
        view.follow(record)
        self._view, self.is_known = view, True
        return True

    def different_snapshots(self) -> dict[str, list[str]]:
        """Per kind of difference the ids of the snapshots; nothing while the chain is not known."""
        found: dict[str, list[str]] = {difference: [] for difference in DIFFERENCES}
        if not self.is_known:
            return found
        for bucket_id in self._view.bucket_ids():
            found["unknown_here"] += [
                snapshot.snapshot_id
                for snapshot in self._view.live(bucket_id)
                if self._rows.of(snapshot.snapshot_id) is None
            ]
        for row in self._rows:
            if not is_complete(row):
                continue
            viewed = self._view.find(row.bucket_id, row.snapshot_id)
            if viewed is None and row.chain_version_of_reset <= self._view.version:
                found["missing_there"].append(row.snapshot_id)
            elif viewed is not None and not viewed.is_live and is_active(row):
                found["dropped_there"].append(row.snapshot_id)
        return found

    def differences(self) -> dict[str, int]:
        """How many snapshots differ, by kind of difference."""
        return {difference: len(ids) for difference, ids in self.different_snapshots().items()}
