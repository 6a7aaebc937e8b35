"""What dropping snapshots would free is what is then freed: random sets on random histories, to the byte."""

from __future__ import annotations

from random import Random

import pytest

from schemas import records
from services.metadata.state.tables import OPEN_FILE_TABLE, OPEN_KEY_TABLE, PART_TABLE, UPLOAD_TABLE
from services.snapshots.reads.retention_queries import tag_rows
from services.storage.tables import TablesReader
from tests.simulation.faults import FaultMix
from tests.simulation.model import Incarnation
from tests.simulation.simulator import Simulation
from tests.simulation.space_checks import BucketSpaceCheck, SpaceCheck, deleted_bytes

HISTORIES = 60
MOST_ROUNDS = 4


def _name(incarnation: Incarnation) -> tuple[str, str]:
    return incarnation.volume, incarnation.name


def unfinished(tables: TablesReader, incarnation: Incarnation) -> tuple[int, int]:
    """Bytes and runs of blocks that belong to no version yet: they are freed if nobody goes on with them in time."""
    uploads = {row.upload_id for _, row in tables.table(UPLOAD_TABLE).scan() if row.bucket_id == incarnation.bucket_id}
    parts = [row.runs for key, row in tables.table(PART_TABLE).scan() if key[:-5].decode() in uploads]
    keys = [row for table in (OPEN_KEY_TABLE, OPEN_FILE_TABLE) for _, row in tables.table(table).scan()]
    parts += [row.runs for row in keys if row.bucket_id == incarnation.bucket_id]
    sizes = [run.blocks.size_bytes for runs in parts for run in runs]
    return sum(sizes), len(sizes)


def freed_and_unfinished(simulation: Simulation, shard: int, incarnation: Incarnation) -> tuple[int, int]:
    """Bytes and runs that are freed, or will be if nobody goes on with them: expiry does not change the sums."""
    freed = deleted_bytes(simulation.plane, shard, incarnation)
    open_bytes, open_runs = unfinished(simulation.plane.tables("metadata", shard), incarnation)
    return freed[0] + open_bytes, freed[1] + open_runs


@pytest.mark.long
@pytest.mark.parametrize("number", range(HISTORIES))
def test_a_what_if_is_what_is_then_freed(seed: int, number: int) -> None:
    """The snapshots are deleted for good, the plane settles, and the block store has given back exactly that."""
    simulation = Simulation(seed * 1_000 + number, mix=FaultMix())
    simulation.run()
    random = Random(seed * 1_000 + number)
    for _ in range(MOST_ROUNDS):
        asked = []
        for shard in simulation.shards:
            check = SpaceCheck(simulation.plane, shard.model, random, is_quiet=True)
            check.run()
            names = simulation.snapshot_names(shard)
            for incarnation in shard.model.live_buckets():
                tags = tag_rows(simulation.plane.tables("snapshots", shard.model.shard), *_name(incarnation))
                tagged = {tag.snapshot_id for tag in tags}  # these refuse to go
                free = [view for view in incarnation.snapshots.values() if view.snapshot_id not in tagged]
                dropped = [view for view in free if random.random() < 0.4]
                freed = BucketSpaceCheck(check, incarnation).what_if(dropped)
                before = freed_and_unfinished(simulation, shard.model.shard, incarnation)
                asked.append((shard, incarnation, freed, before))
                random.shuffle(dropped)  # the order of the drops does not matter
                for view in dropped:
                    shard.actor.request(records.DeleteSnapshot(*names[view.snapshot_id]))
        simulation.settle_and_check()  # and nothing else: being quiet may let snapshots expire
        for shard, incarnation, freed, (bytes_before, versions_before) in asked:
            bytes_after, versions_after = freed_and_unfinished(simulation, shard.model.shard, incarnation)
            assert (bytes_after - bytes_before, versions_after - versions_before) == (
                freed.freed_bytes,
                freed.freed_versions,
            )
