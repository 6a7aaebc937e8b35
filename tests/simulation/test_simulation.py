"""Runs of the whole plane under faults: nothing is lost, nothing leaks, everything is counted.

The seeds follow from the session's, which is new each time; a failure names its own. More of them:
``DEEPCLEAN_SIMULATION_RUNS=3000 make test`` or ``python -m tests.simulation.run_seeds --count 3000``.
"""

from __future__ import annotations

import os
from dataclasses import asdict, replace

import pytest

from schemas import records
from schemas.records import BucketLayout, BucketVersioning, DeletedKind
from schemas.topics import METADATA_COMMANDS, SNAPSHOT_CHAIN
from services.domain.durations import HOUR_MS
from services.metadata.state.tables import DELETED_DIRECTORY_TABLE, DELETED_TABLE, FILE_TABLE
from services.storage.tables import TablesReader
from tests.simulation.checks import rows
from tests.simulation.faults import CHAIN_READERS, FaultMix
from tests.simulation.quota_checks import check_what_quotas_count
from tests.simulation.scripts import BUCKET, PLAIN, WITH_WINDOW, Stage
from tests.simulation.simulator import Simulation, simulate
from tests.simulation.undeletes import metadata_replies

RUNS = int(os.environ.get("DEEPCLEAN_SIMULATION_RUNS", "20"))
GROUPS = 5
RUNS_OF_EACH_FAULT = 3


@pytest.mark.parametrize("group", range(GROUPS))
def test_nothing_is_lost_and_nothing_leaks(seed: int, group: int) -> None:
    """The first run of the first group is that of the session's seed itself."""
    for number in range(group, RUNS, GROUPS):
        simulate(seed + number)


_ONE_FAULT = {
    "nothing": FaultMix(),
    "crashes": FaultMix(crash=0.5, stay_down=0.1),
    "long absences": FaultMix(pause=0.1, stay_down=0.7),
    "older copies": FaultMix(restore=0.1),
    "topics that come late": FaultMix(hold=0.2),
    "repeats": FaultMix(repeat=0.4),
    "lost acknowledgements": FaultMix(unacknowledged=0.3),
    "unreadable messages": FaultMix(garbage=0.1),
    "forgeries": FaultMix(forgeries=0.1),
    "strangers among those who sign": FaultMix(forgeries=0.2, crash=0.1, is_secured=True),
    "a lost answer": FaultMix(has_lost_answer=True),
    "an SCM that fails groups": FaultMix(scm_fail_share=0.7),
    "an SCM that is slow": FaultMix(scm_delay_ms=30_000),
    "an SCM that answers twice": FaultMix(scm_answers_twice=True),
    "an SCM that is out": FaultMix(scm_outage=0.05),
    "units that fail whole": FaultMix(unit_failure=0.5),
    "clocks that differ": FaultMix(clock_skew_ms=600_000),
    "clocks that are set back": FaultMix(clock_back=0.02),
    "shards that are added": FaultMix(added_shards=2, crash=0.2, takeover=0.01),
    "owners that are replaced": FaultMix(takeover=0.03),
    "owners that are replaced amid crashes": FaultMix(takeover=0.1, crash=0.2, unacknowledged=0.3, start_crash=0.1),
    "crashes while starting": FaultMix(crash=0.2, start_crash=0.3),
    **{
        f"a chain that comes late for {reader}": FaultMix(hold=0.03, held_topics={reader: (SNAPSHOT_CHAIN.name,)})
        for reader in CHAIN_READERS
    },
    **{f"a hole for {reader}": FaultMix(hole=reader, crash=0.1) for reader in (*CHAIN_READERS, "everyone")},
}


@pytest.mark.long
def test_runs_are_drawn_that_trim_sign_replace_owners_and_add_shards() -> None:
    reports = [simulate(number) for number in range(1, 41)]
    assert sum(report.trimmed > 0 for report in reports) >= 5
    assert sum(report.mix.is_secured for report in reports) >= 2
    assert sum(report.takeovers > 0 and report.refused > 0 for report in reports) >= 4
    assert sum(report.added_shards for report in reports) >= 2


@pytest.mark.long
@pytest.mark.parametrize("fault", _ONE_FAULT)
def test_one_fault_alone_and_often(seed: int, fault: str) -> None:
    for number in range(RUNS_OF_EACH_FAULT):
        simulate(seed + number, mix=_ONE_FAULT[fault])


@pytest.mark.parametrize("way", ["rewind", "copy_or_restore"])
def test_what_spark_is_made_to_read_again_is_not_trimmed_away(way: str, seed: int) -> None:
    def script(simulation: Simulation) -> None:
        for _ in range(40):
            simulation.shards[0].actor.act()
            for _ in range(12):
                simulation.move()
            simulation.trims.back_up(0)
            getattr(simulation.disturbances, way)(("streaming", 0))
            simulation.trims.trim(0)

    trimmed = 0
    for number in range(RUNS_OF_EACH_FAULT):
        simulation = Simulation(seed + number, mix=FaultMix(crash=0.2))
        simulation.run(script)
        trimmed += simulation.state.trimmed
    assert trimmed


def test_a_directory_waits_for_a_held_one_below_it_that_died_in_the_same_command(seed: int) -> None:
    def script(simulation: Simulation) -> None:
        stage = Stage(simulation, BucketLayout.FILE_SYSTEM_OPTIMIZED)
        stage.submit(records.MakeDirectory(stage.volume, BUCKET, "held"))
        stage.request(records.CreateSnapshot, "snap-1")
        stage.run()
        stage.submit(records.MakeDirectory(stage.volume, BUCKET, "new"))
        stage.submit(records.RenameDirectory(stage.volume, BUCKET, "held", "new/held"))
        stage.submit(records.DeleteKeys(stage.volume, BUCKET, ("new/held", "new")))
        stage.run()
        left = rows(simulation.plane.tables("metadata", 0), DELETED_DIRECTORY_TABLE)
        assert sorted(row.directory.name for row in left) == ["held", "new"]
        simulation.state.waits = True

    Simulation(seed, mix=FaultMix()).run(script)


def test_a_noncurrent_version_that_died_with_its_directory_comes_back_as_a_key(seed: int) -> None:
    """It has a name from then on, also after its next death: the model counted none."""

    def script(simulation: Simulation) -> None:
        stage = Stage(simulation, BucketLayout.FILE_SYSTEM_OPTIMIZED)
        stage.submit(records.SetBucketVersioning(stage.volume, BUCKET, BucketVersioning.ENABLED))
        stage.put("old/key", "old/key")
        stage.submit(records.DeleteDirectory(stage.volume, BUCKET, "old", is_recursive=True))
        stage.run()
        deleted = [one for one in stage.shard.actor.list_deleted() if one.kind is DeletedKind.KEY]
        noncurrent = min(deleted, key=lambda one: one.birth)
        stage.submit(noncurrent)
        stage.run()
        (row,) = rows(simulation.plane.tables("metadata", 0), FILE_TABLE)
        assert (row.name, row.birth) == ("key", stage.shard.model.txn)
        stage.submit(records.DeleteKeyVersion(stage.volume, BUCKET, "key", row.birth))
        stage.run()
        check_what_quotas_count(simulation.plane.tables("metadata", 0), stage.shard.model)

    Simulation(seed, mix=FaultMix(), limits=replace(PLAIN, key_deletion=WITH_WINDOW.key_deletion)).run(script)


def test_an_undelete_that_comes_again_an_hour_later_may_be_refused_for_another_reason(seed: int) -> None:
    """Both answers have the name of one command: that of the first time is none of the second."""

    def script(simulation: Simulation) -> None:
        stage = Stage(simulation)
        stage.put_in_snapshot("snap-1", "key")
        stage.delete("key")
        stage.run()
        stage.request(records.CreateSnapshot, "snap-2")
        stage.run()
        log, topic = simulation.plane.log, METADATA_COMMANDS.name
        ((_, row),) = TablesReader(simulation.plane.processes["metadata", 0].store).table(DELETED_TABLE).scan()
        key = row.key
        stage.submit(
            records.Undelete(stage.volume, BUCKET, "key", DeletedKind.KEY, key.object_id, key.birth, row.death)
        )
        stage.run()
        undelete = log.records(topic, 0)[-1]
        stage.request(records.DeleteSnapshot, "snap-1")
        stage.request(records.DeleteSnapshot, "snap-2")
        stage.run()
        simulation.plane.clock.advance(3 * HOUR_MS)
        stage.shard.actor.control(records.PublishFullChain("the hour in which clients are forgotten"))
        stage.run()
        log.append(topic, 0, undelete.value)
        stage.run()
        errors = [reply.error for reply in metadata_replies(simulation.plane, 0) if reply.error]
        assert (errors[0], set(errors[1:])) == ("SNAPSHOT_IN_BETWEEN", {"TOO_LATE"})

    Simulation(seed, mix=FaultMix(), limits=PLAIN).run(script)


@pytest.mark.parametrize("mix", [None, FaultMix(takeover=0.03, crash=0.1, added_shards=1)])
def test_a_seed_gives_the_same_run_again(seed: int, mix: FaultMix | None) -> None:
    assert asdict(simulate(seed, mix=mix)) == asdict(simulate(seed, mix=mix))


def test_a_standby_that_has_to_begin_with_a_backup_at_rest_is_compared_when_it_has_read_all() -> None:
    simulate(5550123, mix=FaultMix(takeover=0.03, crash=0.1, added_shards=1))


def test_a_successor_that_dies_when_it_begins_again_with_a_backup_has_refused_the_owner_already() -> None:
    """Its first start has refused the owner and has found its database outdated."""
    simulate(213790)
