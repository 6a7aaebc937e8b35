"""The quiet end of a run: everything is healed, settled, and held against the model."""

from __future__ import annotations

from collections import Counter

from schemas import records
from services.runtime.loop.runner import RUNTIME_TABLES
from services.snapshots.reads import retention_queries
from services.snapshots.state.tables import SNAPSHOT_INFO_TABLE
from tests.simulation.answers import check_answers, snapshot_names
from tests.simulation.checks import QuietCheck, check_accounts
from tests.simulation.disturbances import Disturbances
from tests.simulation.errors import AnswerError, DefectError, LivenessError
from tests.simulation.instances import Instances
from tests.simulation.liveness import Liveness
from tests.simulation.model import Incarnation
from tests.simulation.operator import Operator
from tests.simulation.protections import Protections, some_policy
from tests.simulation.quota_checks import check_what_quotas_count
from tests.simulation.run_state import RunState, ShardRun
from tests.simulation.scheduler import MINUTE_MS, Scheduler
from tests.simulation.space_checks import SpaceCheck

MAX_QUIET_ROUNDS, QUICK_ROUNDS = 1_500, 750


class Settling:
    """Brings a run to rest."""

    def __init__(
        self,
        state: RunState,
        scheduler: Scheduler,
        disturbances: Disturbances,
        operator: Operator,
        instances: Instances,
    ) -> None:
        self.state = state
        self._scheduler = scheduler
        self._disturbances = disturbances
        self._operator = operator
        self._instances = instances

    def be_quiet(self) -> None:
        """Heal, settle, and hold everything against the model."""
        self._instances.be_quiet()
        self._disturbances.heal()
        # A healthy SCM deletes what a sick one fails: read again by a sick one, that would be another past.
        self.state.copies = {address: copy for address, copy in self.state.copies.items() if address[0] != "mock_scm"}
        if self.state.operations and self.state.operating.random() < 0.5:
            self.settle()  # what is paused is not waited for
        for shard in self.state.shards:
            self._operator.release_tripped(shard)
            if shard.forger.claimed:
                while self._scheduler.step(("metadata", shard.model.shard)):
                    pass  # what was claimed is so by the chain of that time
                shard.forger.confess()
            shard.actor.unset_policies()
        if self.state.waits:
            Liveness(self.state, self._scheduler).wait()
        self.settle_and_check()
        if self.state.closing.random() < 0.5 and not self.state.mix.is_secured:
            for shard in self.state.shards:
                shard.writer.close_everything()
            self.settle_and_check()
        if self.state.random.random() < 0.3:
            self._expire_when_quiet()
            self.settle_and_check()

    def settle_and_check(self) -> None:
        """Settle, and hold everything against the model."""
        self._settle_until_nothing_expires()
        asked = self.state.oracles.asked
        for shard in self.state.shards:
            with asked("pauses"):
                if shard.model.is_paused:
                    raise DefectError(f"shard {shard.model.shard}: resumed, and paused nevertheless")
            with asked("answers", ends_run=True):
                check_answers(self.state, shard)
            with asked("protections"):
                Protections.after(shard.model, shard.actor.requests, shard.replies)
            with asked("accounts"):
                check_accounts(self.state.plane, shard.model)
            with asked("quotas"):
                check_what_quotas_count(self.state.plane.tables("metadata", shard.model.shard), shard.model)
            QuietCheck(self.state.plane, shard.model, snapshot_names(self.state, shard), asked).run()
            with asked("space"):
                SpaceCheck(self.state.plane, shard.model, self.state.asking, is_quiet=True).run()
        self._instances.check()

    def _settle_until_nothing_expires(self) -> None:
        """Settle until no open key has expired meanwhile: a settle does not wait for what dies after its beginning."""
        before = -1
        while before != (expired := sum(shard.model.writes.expired for shard in self.state.shards)):
            before = expired
            self.settle()

    def settle(self) -> None:
        """Wait until the plane says that it has nothing to do."""
        self.state.settles += 1
        settles = []
        for shard in self.state.shards:
            request = shard.actor.request(records.Settle(f"settle-{self.state.settles}"))
            settles.append((shard, request.client_id, request.number))
        with self.state.oracles.asked("settling", ends_run=True):
            self._run_until_answered(settles)
            for shard, client_id, number in settles:
                if shard.replies[client_id, number].error:
                    raise AnswerError(f"settling failed: {shard.replies[client_id, number]}")

    def _run_until_answered(self, asked: list[tuple[ShardRun, str, int]]) -> None:
        most_rounds = MAX_QUIET_ROUNDS if self.state.oracles.are_asked("settling") else MAX_QUIET_ROUNDS // 5
        for number in range(most_rounds):
            self.state.steps += 1
            messages = sum(self._scheduler.step(address) for address in self.state.plane.addresses)
            if all((client_id, number) in shard.replies for shard, client_id, number in asked):
                return
            self.state.plane.clock.advance(self._round_ms(number) if messages else MINUTE_MS)
        raise LivenessError(f"not answered after {MAX_QUIET_ROUNDS} rounds: {self._open_work()}")

    def _round_ms(self, number: int) -> int:
        """How long a round takes: what is asked or told again once an hour must come within the rounds that there are.

        Quick ones come first: slow ones would have who was not told of something look for himself, and hide it.
        """
        is_slow = self.state.mix.has_lost_answer or self.state.set_back_ms  # what was due in an hour is in two
        return 20_000 if is_slow or number >= QUICK_ROUNDS else 1_000

    def _expire_when_quiet(self) -> None:
        """With nothing on its way, what expires is what the rules say, and what a preview has said."""
        for shard in self.state.shards:
            for incarnation in shard.model.live_buckets():
                for prepare in (shard.actor.create_some, shard.actor.protect_some):
                    asked = prepare(incarnation.name)
                    with self.state.oracles.asked("settling", ends_run=True):
                        self._run_until_answered([(shard, one.client_id, one.number) for one in asked])
                with self.state.oracles.asked("protections"):
                    self._expire_bucket(shard, incarnation)

    def _expire_bucket(self, shard: ShardRun, incarnation: Incarnation) -> None:
        tables = self.state.plane.tables("snapshots", shard.model.shard)
        infos = {row.snapshot_id: row for _, row in tables.table(SNAPSHOT_INFO_TABLE).scan()}
        policy = some_policy(self.state.random)
        made_ms = [infos[snapshot_id].creation_time_ms for snapshot_id in incarnation.snapshots]
        now_ms = (
            self.state.random.choice(made_ms or [0]) + policy.time_retained_ms + self.state.random.choice((0, 1, 2))
        )
        protections = Protections.after(shard.model, shard.actor.requests, shard.replies)
        expected = protections.expected_expiry(incarnation, infos, policy, now_ms)
        place = (incarnation.volume, incarnation.name)
        shown = retention_queries.preview(tables, *place, now_ms, policy)
        request = shard.actor.request(records.ExpireSnapshots(*place, policy, now_ms))
        self._run_until_answered([(shard, request.client_id, request.number)])
        reply = shard.replies[request.client_id, request.number]
        done = reply.expired.snapshot_ids if reply.expired else ()
        if not done == expected == tuple(one.snapshot_id for one in shown.expired):
            raise AnswerError(f"shard {shard.model.shard}: expected {expected}, shown {shown}, done {reply}")
        self.state.expired += len(done)

    def _open_work(self) -> dict[str, Counter[str]]:
        """What every service still has in its tables."""
        left: dict[str, Counter[str]] = {}
        runtime = {table.name for table in RUNTIME_TABLES}
        for name, shard in self.state.plane.addresses:
            process = self.state.plane.processes[name, shard]
            counts = Counter(
                {
                    table.name: sum(1 for _ in process.store.scan(table.name, b"", b"\xff" * 9))
                    for table in process.service.tables
                    if table.name not in runtime
                }
            )
            left[f"{name}/{shard}"] = +counts
        return left

    def run_out(self) -> None:
        """The end of a run with a hole: nobody waits for it to become quiet, only for harm."""
        self._instances.be_quiet()
        self._disturbances.heal()
        for _ in range(60):
            self.state.steps += 1
            for address in self.state.plane.addresses:
                if address in self.state.down:
                    del self.state.down[address]
                    self.state.start(address)
                self._scheduler.step(address)
            self.state.plane.clock.advance(MINUTE_MS)
