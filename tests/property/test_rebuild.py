"""A database made again from its log equals the one that was lost, whatever the batches and whatever went wrong."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schemas.topics import METADATA_COMMANDS
from services.metadata.recovery.digest import digest_shard
from services.plane.in_memory.client import InMemoryClient
from services.plane.in_memory.plane import InMemoryPlane
from services.snapshots.settings import SnapshotsSettings
from services.workloads.replay import Replay
from tests.rollback_workload import random_workload
from tests.shard_copies import rebuilt_digest
from tests.simulation.simulator import Simulation

pytestmark = pytest.mark.long

BATCHES = (1, 2, 3, 17, 2_000, 100_000)


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**32), batch=st.sampled_from(BATCHES), rebuilt_batch=st.sampled_from(BATCHES))
def test_a_rebuilt_shard_has_the_digest_of_the_lost_one(seed: int, batch: int, rebuilt_batch: int) -> None:
    """Puts, deletes, trees, renames, snapshots taken and dropped, rollbacks: all that a plane does with them."""
    page = Random(seed).choice((1, 3, 10, 2_000))
    plane = InMemoryPlane(
        snapshots_settings=SnapshotsSettings(max_rollback_page_entries=page), max_batch_messages=batch
    )
    list(Replay(InMemoryClient(plane)).run(random_workload(seed, "vol")))
    lost = digest_shard(plane.processes["metadata", 0].store)
    assert rebuilt_digest(plane.log, rebuilt_batch).differences(lost) == []


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 2**32), rebuilt_batch=st.sampled_from(BATCHES))
def test_crashes_and_older_copies_leave_the_state_that_the_log_says(seed: int, rebuilt_batch: int) -> None:
    simulation = Simulation(seed)
    simulation.run()
    for shard in range(len(simulation.shards)):
        process = simulation.plane.processes["metadata", shard]
        position = process.runner.positions()[METADATA_COMMANDS.name]
        lost = digest_shard(process.store)
        assert rebuilt_digest(simulation.plane.log, rebuilt_batch, shard, position).differences(lost) == []
