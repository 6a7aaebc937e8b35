"""Faults put into owners and standbys by hand: who publishes, what a standby has, and what counts as published."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from services.runtime.loop import outbox, runner
from services.runtime.loop.outbox import Outbox
from services.runtime.loop.runner import BatchSummary, Runner
from services.runtime.loop.service import Work
from tests.faults.owners import a_unit_that_nobody_has_seen_is_a_lost_tail, services_publish_without_a_name
from tests.faults.standbys import a_standby_publishes
from tests.simulation.faults import FaultMix
from tests.simulation.mutant import Mutant


def snapshots_publishes_without_a_name(patch: pytest.MonkeyPatch) -> None:
    """Two processes of snapshots answer, each by what it knows."""
    original = runner.owner_name
    patch.setattr(runner, "owner_name", lambda name, shard: "" if name == "snapshots" else original(name, shard))


def what_is_polled_counts_as_published(patch: pytest.MonkeyPatch) -> None:
    """A message says that all is published which its owner has read, although some of it waits for its turn."""
    original = Outbox.written

    def written(self: Outbox, added: outbox.Added, first: int | None = None, behind: int = 0) -> None:
        original(self, added, None if first is None else behind + 3, behind)

    patch.setattr(Outbox, "written", written)


def the_end_of_a_published_unit_is_left_out(patch: pytest.MonkeyPatch) -> None:
    """Who follows does not do what is done once for all commands of a unit, if the owner has published its outcome."""
    original = Runner._is_published

    def is_published(self: Runner, batch: BatchSummary) -> bool:
        is_left_out = original(self, batch)
        if is_left_out:
            service, end_batch = self.service, self.service.end_batch

            def put_back(_: Work) -> None:
                setattr(service, "end_batch", end_batch)  # noqa: B010 a method of one object alone

            setattr(service, "end_batch", put_back)  # noqa: B010 a method of one object alone
        return is_left_out

    patch.setattr(Runner, "_is_published", is_published)


_TAKEOVERS = FaultMix(takeover=0.03, crash=0.1)
INSTANCES_MUTANTS: Mapping[str, Mutant] = {
    "a former owner that is not fenced": Mutant(
        services_publish_without_a_name, _TAKEOVERS, "owners", "a former owner of .* has published"
    ),
    "a former snapshots that answers": Mutant(
        *(snapshots_publishes_without_a_name, FaultMix(takeover=0.1, crash=0.1), "answers"),
        "first SnapshotReply.* then SnapshotReply",
    ),
    "a unit that nobody has seen is missed": Mutant(
        a_unit_that_nobody_has_seen_is_a_lost_tail, _TAKEOVERS, "services", "from an abandoned history"
    ),
    "a standby that publishes": Mutant(a_standby_publishes, _TAKEOVERS, "owners", "a standby of .* has published"),
    "a header that says too much": Mutant(what_is_polled_counts_as_published, _TAKEOVERS, "answers", "no answer to"),
    "a standby that ends no unit": Mutant(
        the_end_of_a_published_unit_is_left_out, _TAKEOVERS, "standbys", "differs from its owner"
    ),
}
