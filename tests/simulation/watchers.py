"""What is looked at after each step of a service, whatever it was."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from schemas import records
from schemas.records import SnapshotReply
from schemas.topics import (
    DEAD_LETTERS,
    METADATA_COMMANDS,
    METADATA_PROGRESS,
    METADATA_REPLIES,
    PURGE_DIRECTORIES,
    PURGE_KEYS,
    SCM_COMMANDS,
    SNAPSHOT_CHAIN,
    SNAPSHOTS_REPLIES,
    SWEEP_RESULTS,
)
from tests.simulation.breaker_watch import BreakerWatch
from tests.simulation.checks import check_accounts
from tests.simulation.errors import AnswerError, DefectError
from tests.simulation.faults import Address
from tests.simulation.figure_checks import check_that_figures_agree
from tests.simulation.loss_watch import LossWatch
from tests.simulation.losses import Losses
from tests.simulation.order_watch import OrderWatch
from tests.simulation.quota_checks import check_what_quotas_count
from tests.simulation.repeat_watch import RepeatWatch
from tests.simulation.run_state import RunState, ShardRun
from tests.simulation.space_checks import SpaceCheck
from tests.simulation.window_watch import WindowWatch


class Watchers:
    """Has everybody look who has something to look at."""

    def __init__(self, state: RunState) -> None:
        self.state = state
        self._losses = Losses(state)
        self._loss_watch = LossWatch(state)
        self._repeat_watch = RepeatWatch(state)
        self._order_watch = OrderWatch(state)
        self._window_watch = WindowWatch(state)
        self._breaker_watch = BreakerWatch(state)

    def watch(self, address: Address) -> None:
        """Hold what a service has done in its step against the model."""
        name, shard = address[0], self.state.shards[address[1]]
        if name == "metadata":
            with self.state.oracles.asked("services"):
                check_that_figures_agree(self.state.plane.tables(*address), address[1])
            self._watch_metadata(shard)
        elif name == "snapshots":
            for _, reply in self.state.new_records(shard, SNAPSHOTS_REPLIES):
                with self.state.oracles.asked("answers"):
                    self._on_reply(shard, reply)
        elif name == "key_deletion":
            self._watch_answers(shard)  # a new owner's start may commit what the former one has sent
            self._watch_key_deletion(shard)
        elif name == "mock_scm":
            self._loss_watch.inventory(shard)
        with self.state.oracles.asked("flags"):
            shard.flags.look(name)
        with self.state.oracles.asked("sweeps"):
            shard.sweeps.look(name, is_done=self.state.is_published.get(address, False))
        with self.state.oracles.asked("dead_letters"):
            self._watch_dead_letters(shard)
        if self.state.mix.hole:
            with self.state.oracles.asked("holes"):
                self._watch_hole(shard)

    def _watch_answers(self, shard: ShardRun) -> int:
        """Look at all that metadata has published. Return the offset up to which it has applied its log."""
        position = self.state.metadata_position(shard)
        asked = self.state.oracles.asked
        with asked("repeats"):
            self._repeat_watch.repeats(shard, position)
        with asked("answers", ends_run=True):
            shard.model.follow(self.state.plane.log.entries(METADATA_COMMANDS.name, shard.model.shard), position)
        for _, reply in self.state.new_records(shard, METADATA_REPLIES):
            with asked("answers"):
                shard.model.check_reply(reply)
        self._order_watch.look(shard)
        for offset, progress in self.state.new_records(shard, METADATA_PROGRESS):
            self._loss_watch.progress(shard, progress)
            with asked("undo_window"):
                self._window_watch.look(shard, progress)
            with asked("pauses"):
                self._breaker_watch.pauses(shard, progress)
            if self.state.loses_change:
                self._losses.lose_change(shard, offset, progress.body)
            if self.state.mix.has_lost_answer:
                self._losses.lose_answer(shard, offset, progress.body)
        return position

    def _watch_metadata(self, shard: ShardRun) -> None:
        position = self._watch_answers(shard)
        asked = self.state.oracles.asked
        self._loss_watch.after_metadata(shard)
        if shard.quotas.random.random() < 0.05 and position == shard.model.position:
            with asked("quotas"):
                check_what_quotas_count(self.state.plane.tables("metadata", shard.model.shard), shard.model)
        if shard.model.is_rolling_back:
            return
        if self.state.random.random() < 0.1 and position == shard.model.position:
            with asked("accounts"):
                check_accounts(self.state.plane, shard.model)
        if self.state.asking.random() < 0.05 and position == shard.model.position:
            with asked("space"):
                SpaceCheck(self.state.plane, shard.model, self.state.asking, is_quiet=False).run()

    def _watch_key_deletion(self, shard: ShardRun) -> None:
        for _, command in self.state.new_records(shard, SCM_COMMANDS):
            if isinstance(command.body, records.DeleteBlocks):
                self._loss_watch.deletion(shard, command.body)
        for offset, command in self.state.new_records(shard, METADATA_COMMANDS):
            is_forged = (METADATA_COMMANDS.name, shard.model.shard, offset) in shard.forger.places
            if isinstance(command.body, records.FinishRows) and not is_forged:
                self._loss_watch.finish(shard, command.body)

    def _on_reply(self, shard: ShardRun, reply: SnapshotReply) -> None:
        if reply.error == "OLD_REQUEST":
            return
        unauthorized = shard.forger.unauthorized
        if (
            unauthorized
            and (reply.client_id, reply.number) in unauthorized.requests
            and reply.error != "PERMISSION_DENIED"
        ):
            raise AnswerError(f"shard {shard.model.shard}: a stranger was answered {reply}")
        before = shard.replies.setdefault((reply.client_id, reply.number), reply)
        if before is not reply and reply.error == "PERMISSION_DENIED" and self.state.mix.garbage:
            return  # among the noise is a request that was answered, once more: signed too long ago by now
        if replace(before, rounds=0) != replace(reply, rounds=0):
            raise AnswerError(f"shard {shard.model.shard}: first {before}, then {reply}")

    def _watch_dead_letters(self, shard: ShardRun) -> None:
        for _, letter in self.state.new_records(shard, DEAD_LETTERS):
            place = (letter.topic, letter.partition, letter.offset)
            is_expected = (
                place in self.state.injected
                or place in shard.forger.places
                or (letter.topic == METADATA_COMMANDS.name and letter.offset in shard.model.unreadable)
            )
            if not is_expected:
                raise DefectError(f"{letter.service} has put aside a message of its own plane: {letter}")
            shard.dead_letters.add((letter.service, letter.topic, letter.offset))

    def _watch_hole(self, shard: ShardRun) -> None:
        """Nobody judges with a view that has a hole."""
        if self.state.new_records(shard, SNAPSHOT_CHAIN):
            self._losses.hide_marker(shard)
        if not shard.hidden_version:
            return
        judged: list[tuple[str, Any]] = []
        for topic in (PURGE_KEYS, PURGE_DIRECTORIES, SWEEP_RESULTS):
            judged += [("streaming", message) for _, message in self.state.new_records(shard, topic)]
        for _, command in self.state.new_records(shard, METADATA_COMMANDS, "hole"):
            if isinstance(command.body, records.ClaimRows):
                judged.append(("key_deletion", command.body))
            elif isinstance(command.body, records.RemoveDirectories):
                judged.append(("directory_deletion", command.body))
        for name, message in judged:
            if self.state.mix.hole in (name, "everyone") and message.chain_version >= shard.hidden_version:
                raise DefectError(f"{name} judged without marker {shard.hidden_version}: {message}")
