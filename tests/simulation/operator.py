"""What an operator does in a run: pauses, resumes, limits, resets."""

from __future__ import annotations

from schemas import records
from tests.simulation.breaker_watch import LIMITS
from tests.simulation.run_state import RunState, ShardRun


class Operator:
    """Pauses and resumes the collector; in half of the runs that have an operator, through the breaker alone."""

    def __init__(self, state: RunState) -> None:
        self.state = state

    def may_act(self, shard: ShardRun) -> None:
        """Now and then do something."""
        if self.state.operating.random() < self.state.operations:
            self._act(shard)

    def _act(self, shard: ShardRun) -> None:
        """Pause or resume the collector, of a bucket or of everything; mostly with effect."""
        if self.state.operating.random() < 0.25:
            self._control(shard)
            return
        if self.state.has_breaker and self.state.operating.random() < 0.5:
            is_set = self.state.operating.random() < 0.6
            shard.actor.submit(records.SetBreaker("", "", LIMITS if is_set else None))
            shard.actor.submit(records.ResetBreaker("", "", "all of it was meant"))
            self.state.trace.append("limits" if is_set else "no limits")
            return
        buckets = [] if self.state.has_breaker else [(shard.actor.volume, f"bucket-{one}") for one in "aab"]
        volume, bucket = self.state.operating.choice([("", ""), *buckets])
        is_pause = self.state.operating.random() < 0.5
        suspended = self.state.operating.choice((records.CollectionState.PAUSED, records.CollectionState.SHADOW))
        state = suspended if is_pause else records.CollectionState.RUNNING
        shard.actor.submit(records.SetCollection(volume, bucket, state, "an operator's whim"))
        self.state.trace.append(f"{state.lower()} {bucket or 'everything'}")
        self.state.pauses += is_pause

    def _control(self, shard: ShardRun) -> None:
        """Have the whole chain written, stop all claims, or let them go on."""
        what = self.state.operating.choice(("full chain", "stop", "go on"))
        if what == "stop":
            shard.actor.control(records.StopClaims("an operator's doubt"))
        elif what == "go on":
            running = records.CollectionState.RUNNING
            shard.actor.submit(records.SetCollection("", "", running, "no doubt is left", ends_stop=True))
        elif not self.state.mix.hole:  # it would mend the hole
            shard.actor.control(records.PublishFullChain("an operator's wish"))
        self.state.trace.append(what)

    def release_tripped(self, shard: ShardRun) -> None:
        """Resume whatever is paused, and whatever may be by commands that are still on their way."""
        if not self.state.operations:
            return
        names = {("", "")}
        if not self.state.has_breaker:
            names |= {(shard.actor.volume, f"bucket-{one}") for one in "ab"}
        for volume, bucket in sorted(names):
            shard.actor.submit(
                records.SetCollection(
                    volume, bucket, records.CollectionState.RUNNING, "all is well", ends_stop=not volume
                )
            )
        shard.actor.submit(records.SetBreaker("", "", None))
        shard.actor.submit(records.ResetBreaker("", "", "all is well"))
