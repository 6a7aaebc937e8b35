"""Blocks that somebody holds: nobody may give them away, delete them before their claim, or lose them."""

from __future__ import annotations

from schemas import records
from schemas.records import DeletedKind, MetadataProgress, RemovalOutcome, RowName
from schemas.topics import SCM_COMMANDS
from services.domain.row_columns import block_groups, row_names
from services.domain.table_keys import local_id_txn
from services.mock_scm.sequences import scm_state
from services.mock_scm.tables import INVENTORY_TABLE, inventory_key
from services.storage.tables import TablesReader
from tests.simulation.errors import DefectError, SafetyError
from tests.simulation.run_state import RunState, ShardRun


class LossWatch:
    """Looks at all that frees blocks."""

    def __init__(self, state: RunState) -> None:
        self.state = state

    def progress(self, shard: ShardRun, progress: MetadataProgress) -> None:
        """An answer to a claim or purge: nothing of it was held at its txn."""
        body, asked = progress.body, self.state.oracles.asked
        if isinstance(body, records.RowsClaimed):
            with asked("given_away"):
                for group in block_groups(body.groups):
                    shard.claimed_rows[group.object_id, group.birth, group.death] = group.blocks
                    shard.model.check_claimed(progress.txn, group.blocks, group.death, f"claim {body.task}")
                for name in row_names(body.removed):
                    shard.model.check_removed(progress.txn, name)
            with asked("refusals"):
                if body.refused and not self.state.mix.forgeries:
                    raise DefectError(f"shard {shard.model.shard}: a claim was refused: {body.refused}")
        elif isinstance(body, records.DirectoriesRemoved):
            self._removed(shard, progress.txn, body)

    def _removed(self, shard: ShardRun, txn: int, body: records.DirectoriesRemoved) -> None:
        with self.state.oracles.asked("given_away"):
            for row in body.rows:
                if row.outcome is RemovalOutcome.REMOVED:
                    name = RowName(DeletedKind.DIRECTORY, row.bucket_id, row.object_id, 0, row.death)
                    shard.model.check_removed(txn, name)
        with self.state.oracles.asked("refusals"):
            held = [row for row in body.rows if row.outcome is RemovalOutcome.HELD]
            if held and not self.state.mix.forgeries:
                raise DefectError(f"shard {shard.model.shard}: a purge was refused: {held}")

    def after_metadata(self, shard: ShardRun) -> None:
        """What was claimed stays out of reach."""
        with self.state.oracles.asked("claimed_stays"):
            shard.model.check_claimed_stay()

    def deletion(self, shard: ShardRun, deletion: records.DeleteBlocks) -> None:
        """What the block store is told: of all that, nothing is held now, and everything was claimed."""
        for group in block_groups(deletion.groups):
            self.state.deleted_groups += 1
            with self.state.oracles.asked("given_away"):
                shard.model.check_given_away(group.blocks, f"deletion {deletion.task}")
            with self.state.oracles.asked("claimed_first"):
                if group.blocks.first_local_id not in shard.claimed:
                    raise SafetyError(f"shard {shard.model.shard}: SCM was told of a row that was not claimed: {group}")

    def finish(self, shard: ShardRun, finish: records.FinishRows) -> None:
        """Metadata forgets a row only when SCM has said that its blocks are gone."""
        with self.state.oracles.asked("finish"):
            self._check_finish(shard, finish)

    def _check_finish(self, shard: ShardRun, finish: records.FinishRows) -> None:
        inventory = self.state.plane.tables("mock_scm", shard.model.shard).table(INVENTORY_TABLE)
        # One that was put back to an older state has again what it will delete again.
        is_behind = self.state.plane.position("mock_scm", shard.model.shard, SCM_COMMANDS.name) < shard.scm_read_to
        for row in row_names(finish.rows):
            run = shard.claimed_rows[row.object_id, row.birth, row.death]
            is_there = inventory.get(inventory_key(run.container_id, run.first_local_id)) is not None
            if is_there and not is_behind:
                raise SafetyError(f"shard {shard.model.shard}: finished before SCM has confirmed: {row}")

    def inventory(self, shard: ShardRun) -> None:
        """Whenever SCM has deleted something, look whether it still has all that is held."""
        position = self.state.plane.position("mock_scm", shard.model.shard, SCM_COMMANDS.name)
        shard.scm_read_to = max(shard.scm_read_to, position)
        tables = self.state.plane.tables("mock_scm", shard.model.shard)
        state = scm_state(tables)
        if state.deleted_blocks == shard.scm_deletions:
            return
        shard.scm_deletions = state.deleted_blocks
        with self.state.oracles.asked("inventory"):
            self._check_inventory(shard, tables, state.mark_local_id)

    def _check_inventory(self, shard: ShardRun, tables: TablesReader, mark_local_id: int) -> None:
        inventory = tables.table(INVENTORY_TABLE)
        pieces, mark_txn = shard.model.pieces.by_number, local_id_txn(mark_local_id)
        for number in shard.model.held:
            piece, run = pieces[number], pieces[number].run
            # What one command has shown may be told of in several messages.
            is_told = piece.birth <= mark_txn if piece.is_put else piece.birth < mark_txn
            if run is None or not is_told:
                continue
            if inventory.get(inventory_key(run.container_id, run.first_local_id)) is None:
                named = shard.model.named(number)
                raise SafetyError(f"shard {shard.model.shard}: SCM has lost the blocks of a held version: {named}")
