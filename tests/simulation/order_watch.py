"""What must be so in a certain order: markers before all that knows of them, and time that never goes back."""

from __future__ import annotations

from schemas import records
from schemas.topics import DELETED_ENTRIES, METADATA_PROGRESS, SNAPSHOT_CHAIN
from services.domain.table_keys import snapshot_id_key, snapshot_list_key
from services.metadata.state.tables import (
    SNAPSHOT_LIST_TABLE,
    TRANSACTION_INFO_KEY,
    TRANSACTION_INFO_TABLE,
)
from tests.simulation.errors import DefectError, SafetyError
from tests.simulation.run_state import RunState, ShardRun


class OrderWatch:
    """Looks at what metadata has written and sent after each of its steps."""

    def __init__(self, state: RunState) -> None:
        self.state = state

    def look(self, shard: ShardRun) -> None:
        """Look at all of it."""
        with self.state.oracles.asked("chain_order"):
            self._check_chain_order(shard)
        if self.state.metadata_position(shard) < shard.model.position:
            return  # started from an older copy, and not yet back
        with self.state.oracles.asked("log_time"):
            self._check_log_time(shard)
        with self.state.oracles.asked("rollback_target"):
            self._check_rollback_targets(shard)

    def _check_chain_order(self, shard: ShardRun) -> None:
        """Who reads that the chain has come to a version can read every marker up to it."""
        for _, marker in self.state.new_records(shard, SNAPSHOT_CHAIN, "order"):
            shard.chain_version = max(shard.chain_version, marker.version)
        known = [entry.chain_version for _, entry in self.state.new_records(shard, DELETED_ENTRIES, "order")]
        for _, progress in self.state.new_records(shard, METADATA_PROGRESS, "order"):
            if isinstance(progress.body, records.SnapshotCaptured | records.SnapshotDropped):
                known.append(progress.body.chain_version)
        newest = max(known, default=0)
        if newest > shard.chain_version:
            raise DefectError(
                f"shard {shard.model.shard}: chain version {newest} is told of before its marker can be read, "
                f"the newest one is {shard.chain_version}"
            )

    def _check_log_time(self, shard: ShardRun) -> None:
        """The shard's time is the newest that its log has seen, however clocks were set."""
        row = self.state.plane.tables("metadata", shard.model.shard).table(TRANSACTION_INFO_TABLE)
        stored = row.get(TRANSACTION_INFO_KEY)
        if stored is None or not shard.model.log_time_ms:
            return
        if stored.log_time_ms < shard.model.log_time_ms:
            raise DefectError(
                f"shard {shard.model.shard}: log time went back to {stored.log_time_ms} from {shard.model.log_time_ms}"
            )

    def _check_rollback_targets(self, shard: ShardRun) -> None:
        """The snapshot that a rollback goes to stays until that is done."""
        tables = self.state.plane.tables("metadata", shard.model.shard)
        for incarnation in shard.model.live_buckets():
            if incarnation.rollback is None:
                continue
            snapshot_id = incarnation.rollback[1].snapshot_id
            captured = tables.table(SNAPSHOT_LIST_TABLE).get(snapshot_id_key(snapshot_id))
            row = captured and tables.table(SNAPSHOT_LIST_TABLE).get(
                snapshot_list_key(captured.bucket_id, captured.ordinal)
            )
            if row is None or not row.is_live:
                raise SafetyError(
                    f"shard {shard.model.shard}: {snapshot_id} was dropped while its bucket is rolled back to it"
                )
