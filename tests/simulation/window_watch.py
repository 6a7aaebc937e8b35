"""The undo window: what was deleted can be brought back for so long, unless a settle has ended its window."""

from __future__ import annotations

from schemas import records
from schemas.records import ExpansionOutcome, MetadataProgress
from services.domain.row_columns import block_groups
from tests.simulation.errors import SafetyError
from tests.simulation.run_state import RunState, ShardRun


class WindowWatch:
    """Looks at when each death, and its claim or expansion, came."""

    def __init__(self, state: RunState) -> None:
        self.state = state

    def look(self, shard: ShardRun, progress: MetadataProgress) -> None:
        """Hold an answer against the moment of each death that it names.

        Log times are compared, so nothing is asked where clocks are set back; nor where forged commands come, whoever
        may have sent which.
        """
        body, limits = progress.body, self.state.limits
        if self.state.mix.clock_back or self.state.mix.forgeries:
            return
        if isinstance(body, records.RowsClaimed):
            for group in block_groups(body.groups):
                if group.blocks.first_local_id not in shard.claimed:
                    self._check(shard, progress.txn, group.death, limits.key_deletion.undo_window_ms, "claimed")
        elif isinstance(body, records.DirectoryExpanded) and body.outcome is not ExpansionOutcome.MISSING:
            window_ms = limits.directory_deletion.undo_window_ms
            if body.moved_directories or body.moved_files:
                self._check(shard, progress.txn, body.death, window_ms, "expanded")

    def _check(self, shard: ShardRun, txn: int, death: int, window_ms: int, what: str) -> None:
        if not window_ms or death <= shard.model.settled_txn:
            return
        passed_ms = shard.model.time_of(txn) - shard.model.time_of(death)
        if passed_ms < window_ms:
            raise SafetyError(
                f"shard {shard.model.shard}: {what} {passed_ms} ms after its death at txn {death}: "
                f"it may be brought back for {window_ms} ms"
            )
