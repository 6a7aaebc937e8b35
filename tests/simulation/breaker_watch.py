"""Pauses and the breaker: nothing goes that is held back, and nothing is held back without a reason."""

from __future__ import annotations

from schemas import records
from services.domain.row_columns import BlockGroup, block_groups, row_names
from tests.simulation.errors import DefectError, SafetyError
from tests.simulation.run_state import RunState, ShardRun

HOUR_MS = 3_600_000
LIMITS = records.BreakerLimits(share_percent=1, floor_bytes=6_000, floor_versions=2)
"""So low that the breaker trips; one percent of what a run has is less than the floors."""


class BreakerWatch:
    """Looks at what goes, and at what is held back."""

    def __init__(self, state: RunState) -> None:
        self.state = state

    def pauses(self, shard: ShardRun, progress: records.MetadataProgress) -> None:
        """While a bucket is paused nothing of it goes, and nothing else is held back."""
        body, model = progress.body, shard.model
        if isinstance(body, records.DirectoriesRemoved):
            removed = {row.bucket_id for row in body.rows if row.outcome == records.RemovalOutcome.REMOVED}
            suspended = {row.bucket_id for row in body.rows if row.outcome == records.RemovalOutcome.SUSPENDED}
        elif isinstance(body, records.RowsClaimed):
            groups = block_groups(body.groups)
            news = [group for group in groups if group.blocks.first_local_id not in shard.claimed]
            removed = {group.bucket_id for group in news}
            self._hours(shard, progress.txn, news)
            removed |= {row.bucket_id for row in row_names(body.removed)}
            suspended = {row.bucket_id for row in row_names(body.suspended)}
            shard.claimed.update(group.blocks.first_local_id for group in groups)
        else:
            return
        if any(model.was_paused(progress.txn, bucket_id) for bucket_id in removed):
            raise SafetyError(f"shard {model.shard}: freed while it is paused: {progress}")
        for bucket_id in suspended:
            if not model.was_paused(progress.txn, bucket_id):
                self._trip(shard, progress, bucket_id)

    def _hours(self, shard: ShardRun, txn: int, news: list[BlockGroup]) -> None:
        """Within an hour no more of a bucket goes than its limits say."""
        moment = shard.model.breaker_at.get(txn)
        if moment is None:
            return
        for group in news:
            tripped_txn = shard.trips.get(group.bucket_id)
            if tripped_txn is not None:
                reset = moment.reset_after(tripped_txn)
                if reset is None:
                    raise SafetyError(f"shard {shard.model.shard}: claimed though the breaker has tripped: {group}")
                del shard.trips[group.bucket_id]
                shard.hours.pop(group.bucket_id, None)
                shard.released.pop(group.bucket_id, None)
                reset_txn, reset_ms = reset
                if reset_ms >= 0:
                    shard.hours[group.bucket_id] = [reset_ms, 0, 0]
                    shard.released[group.bucket_id] = reset_txn
            if not moment.is_limited:
                continue
            hour = shard.hours.get(group.bucket_id)
            if hour is None or moment.log_time_ms - hour[0] >= HOUR_MS:
                hour = shard.hours[group.bucket_id] = [moment.log_time_ms, 0, 0]
            if group.death <= shard.released.get(group.bucket_id, 0):
                continue
            hour[1] += group.blocks.size_bytes
            hour[2] += 1
            if hour[1] > LIMITS.floor_bytes or hour[2] > LIMITS.floor_versions:
                raise SafetyError(f"shard {shard.model.shard}: more goes within an hour than may: {hour}, {group}")

    def _trip(self, shard: ShardRun, progress: records.MetadataProgress, bucket_id: int) -> None:
        moment = shard.model.breaker_at.get(progress.txn)
        if moment is None:
            raise DefectError(f"shard {shard.model.shard}: held back for no reason: {progress}")
        tripped_txn = shard.trips.get(bucket_id)
        if tripped_txn is None or moment.reset_after(tripped_txn) is not None:
            if not moment.is_limited:
                raise DefectError(f"shard {shard.model.shard}: the breaker has tripped without limits: {progress}")
            shard.trips[bucket_id] = progress.txn
            self.state.tripped += 1
