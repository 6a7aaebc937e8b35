"""Scripts that bring about what chance seldom does: each for a fault that few simulated runs notice, or none."""

from __future__ import annotations

from dataclasses import replace

from schemas import records
from schemas.codec import codec
from schemas.records import BucketLayout
from schemas.topics import METADATA_PROGRESS, SNAPSHOT_CHAIN, SNAPSHOTS_COMMANDS, SWEEP_RESULTS
from services.log.port import LogRecord
from services.metadata.state.tables import DELETED_TABLE
from services.storage.memory import MemoryStore
from tests.simulation.breaker_watch import LIMITS
from tests.simulation.checks import rows
from tests.simulation.model import HOUR_MS, MONTH_MS
from tests.simulation.scripts import BUCKET, MOST_ROUNDS, Stage
from tests.simulation.simulator import Simulation


def twice_live(simulation: Simulation) -> None:
    """A version dies as itself, an older one of the same object comes back by a rollback, and then it comes back."""
    stage = Stage(simulation)
    stage.put_in_snapshot("snap-1", "k")
    stage.put("k")
    stage.run()
    stage.delete("k")
    stage.run()
    undelete_second = stage.deleted("k")
    stage.request(records.RollBackBucket, "snap-1", "")
    stage.run()
    stage.submit(replace(undelete_second, path="k-again"))
    stage.run()


def a_quiet_delete(simulation: Simulation) -> None:
    """A key and a tree die, and nobody settles."""
    stage = Stage(simulation, BucketLayout.FILE_SYSTEM_OPTIMIZED)
    stage.put("k", "a/b/x", "a/y")
    stage.delete("k")
    stage.submit(records.DeleteDirectory(stage.volume, BUCKET, "a"))
    simulation.state.waits = True


def a_settle_that_is_held_up(simulation: Simulation) -> None:
    """One half of a settle's mark is behind a delete that came after it."""
    stage = Stage(simulation)
    stage.put("k")
    stage.hold("key_deletion", SWEEP_RESULTS.name)
    stage.shard.actor.request(records.Settle("held-up"))
    stage.run()
    stage.delete("k")
    stage.run()
    stage.release("key_deletion", SWEEP_RESULTS.name)
    simulation.state.waits = True


def a_block_store_that_fails_once(simulation: Simulation) -> None:
    """The block store fails to delete something, and is well again; nobody settles."""
    stage = Stage(simulation)
    simulation.plane.switches[0].fail_share = 1.0
    stage.put("k")
    stage.delete("k")
    stage.run()
    simulation.state.waits = True


def a_clock_that_is_set_back(simulation: Simulation) -> None:
    """The block store fails once, and the clock, which was a month ahead, is corrected; nobody settles."""
    a_block_store_that_fails_once(simulation)
    simulation.plane.clock.advance(-MONTH_MS)


def a_range_that_is_found_unclean(simulation: Simulation) -> None:
    """A sweep finds a row that can go; its store is clean once that was seen to be gone."""
    stage = Stage(simulation)
    stage.put_in_snapshot("snap-1", "k")
    stage.delete("k")
    stage.request(records.CreateSnapshot, "snap-2")
    stage.run()
    stage.request(records.DeleteSnapshot, "snap-1")
    simulation.state.waits = True


def a_lost_page(simulation: Simulation) -> None:
    """The page of a sweep is asked for, and its answer never comes."""
    stage = Stage(simulation)
    stage.put("k")
    stage.hold("key_deletion", METADATA_PROGRESS.name)
    stage.request(records.CreateSnapshot, "snap-1")
    stage.run()
    pages = [one for one in simulation.plane.log.records(METADATA_PROGRESS.name, 0) if _is_page(one)]
    assert pages, "no page was sent"
    for one in pages:
        simulation.state.faults.holes.add(("key_deletion", 0, METADATA_PROGRESS.name, one.value))
    simulation.state.waits = True


def _is_page(record: LogRecord) -> bool:
    body = codec(records.MetadataProgress).decode_message(record.value).body
    return isinstance(body, records.SweepPageSent)


def crashes_amid_captures(simulation: Simulation) -> None:
    """Metadata dies just when a take was told of, again and again; the log takes in what it is sent in its own time."""
    stage = Stage(simulation)
    simulation.state.faults.resume()
    for number in range(30):
        stage.request(records.CreateSnapshot, f"snap-{number}")
        stage.run("snapshots", rounds=5)
        simulation.state.faults.countdowns["metadata", 0] = 3  # before and after the write, the marker, the answer
        stage.run("metadata", rounds=5)
        simulation.state.faults.countdowns.clear()
        stage.restart("metadata")
        stage.run("metadata", "snapshots")


def a_death_under_load(simulation: Simulation) -> None:
    """Metadata has more to do than it takes at once, and dies again and again while what it has said is on its way."""
    stage = Stage(simulation)
    faults = simulation.state.faults
    keys = [f"k{number}" for number in range(160)]
    stage.put(*keys)
    faults.resume()
    in_a_row = deaths = 0
    for _ in keys:
        stage.run("metadata", rounds=1)
        in_a_row = in_a_row + 1 if any(sink.left() for sink in faults.sinks["metadata", 0]) else 0
        if in_a_row == 3:  # so that a unit was written behind the one that was sent
            simulation.state.goes_down(("metadata", 0))
            faults.late.clear()
            stage.restart("metadata")
            in_a_row, deaths = 0, deaths + 1
    assert deaths, "it has never had anything on its way for long"
    simulation.disturbances.heal()
    stage.delete(*keys)


def a_sweep_of_repeats(simulation: Simulation) -> None:
    """Everything that is said while a sweep runs comes twice, each row in a message of its own."""
    stage = Stage(simulation)
    stage.put_in_snapshot("snap-1", "k1", "k2", "k3")
    stage.delete("k1", "k2", "k3")
    stage.run()
    faults = simulation.state.faults
    faults.mix = replace(faults.mix, repeat=1.0)
    faults.resume()
    stage.request(records.DeleteSnapshot, "snap-1")
    stage.run("snapshots", "metadata", "key_deletion")
    for _ in range(MOST_ROUNDS):  # few are judged at a time, and the sweep hears of them at once
        stage.run("streaming", rounds=1)
        stage.run("key_deletion", rounds=2)
    simulation.disturbances.heal()


def a_forged_drop(simulation: Simulation) -> None:
    """Amid a rollback somebody wants to drop the snapshot that it goes to."""
    stage = Stage(simulation)
    stage.put_in_snapshot("snap-1", "k1", "k2", "k3")
    stage.put("k4", "k5", "k6")
    stage.delete("k1", "k2", "k3")
    stage.request(records.RollBackBucket, "snap-1", "")
    stage.run("metadata", "snapshots", rounds=2)
    stage.shard.forger._drop_target(stage.shard.model)
    stage.run()


def a_forged_rollback(simulation: Simulation) -> None:
    """Somebody wants a bucket back as it was before a snapshot that is still there."""
    stage = Stage(simulation)
    stage.put_in_snapshot("snap-1", "k1")
    stage.put_in_snapshot("snap-2", "k2")
    stage.shard.forger._roll_back_past(stage.shard.model)
    stage.run()


def a_purge_before_its_marker(simulation: Simulation) -> None:
    """A verdict comes to the second judge before the marker of the snapshot that was there at the death."""
    stage = Stage(simulation)
    simulation.state.waits = False  # or a later sweep would bring it back
    stage.put("k1")
    stage.hold("key_deletion", SNAPSHOT_CHAIN.name)
    stage.request(records.CreateSnapshot, "snap-1")
    stage.run()
    stage.put("k2")
    stage.delete("k2")
    stage.run()
    stage.release("key_deletion", SNAPSHOT_CHAIN.name)
    stage.run()


def a_crash_between_claims(simulation: Simulation) -> None:
    """As much is claimed as an hour allows, metadata starts anew, and more is to be claimed."""
    stage = Stage(simulation)
    stage.submit(records.SetBreaker("", "", LIMITS))
    stage.put("k1", "k2", "k3")
    stage.delete("k1", "k2")
    stage.run()
    stage.restart("metadata")
    stage.delete("k3")
    stage.run()
    simulation.state.has_breaker, simulation.state.operations = True, 1.0  # its trips are reset at the end


def an_undelete_behind_the_claim(simulation: Simulation) -> None:
    """A client brings back what was claimed since it was listed."""
    stage = Stage(simulation)
    stage.put("k")
    stage.delete("k")
    stage.run("metadata")
    undelete = stage.deleted("k")
    stage.run_until_claimed()
    stage.submit(undelete)
    stage.run("metadata")
    stage.run()


def a_decision_that_is_not_sent(simulation: Simulation) -> None:
    """snapshots refuses a rollback beside a take, and dies when it has said so; on an empty disk it hears of the end of
    the take first.
    """
    stage = Stage(simulation)
    stage.request(records.CreateSnapshot, "snap-1")
    stage.run()
    stage.request(records.CreateSnapshot, "snap-2")
    stage.run("snapshots")
    stage.request(records.RollBackBucket, "snap-1", "")
    simulation.state.faults.countdowns["snapshots", 0] = 2  # before and after the write, the first message
    stage.run("snapshots", rounds=1)
    stage.run("metadata")
    stage.restart("snapshots", MemoryStore())
    stage.hold("snapshots", SNAPSHOTS_COMMANDS.name)
    stage.run("snapshots")
    stage.release("snapshots", SNAPSHOTS_COMMANDS.name)
    stage.run()


def a_pause_that_ends(simulation: Simulation) -> None:
    """Rows of a paused bucket come to the judges; then the pause ends."""
    stage = Stage(simulation)
    simulation.state.waits = False
    for state in (records.CollectionState.PAUSED, records.CollectionState.RUNNING):
        stage.submit(records.SetCollection(stage.volume, BUCKET, state, "a pause"))
        stage.put("k")
        stage.delete("k")
        stage.run()


def a_forged_purge(simulation: Simulation) -> None:
    """Somebody wants the row of a directory purged that a snapshot holds, and has it claimed where it was renamed."""
    stage = Stage(simulation, BucketLayout.FILE_SYSTEM_OPTIMIZED)
    stage.put_in_snapshot("snap-1", "a/x", "y")
    stage.submit(records.RenameKey(stage.volume, BUCKET, "y", "z"))
    stage.submit(records.DeleteDirectory(stage.volume, BUCKET, "a"))
    stage.run()
    for _ in range(8):
        stage.shard.forger._send_directory_verdicts()
        stage.shard.forger._claim_others()
        stage.run()


def a_key_judged_ahead_of_the_chain(simulation: Simulation) -> None:
    """Somebody wants a deleted key purged, by a chain that there never is."""
    stage = Stage(simulation)
    stage.put("k")
    stage.delete("k")
    stage.run("metadata")
    stage.shard.forger.judge_ahead_of_the_chain()
    stage.run()


def a_directory_judged_ahead_of_the_chain(simulation: Simulation) -> None:
    """Somebody wants a deleted directory purged, by a chain that there never is."""
    stage = Stage(simulation, BucketLayout.FILE_SYSTEM_OPTIMIZED)
    stage.put("a/x")
    stage.submit(records.DeleteDirectory(stage.volume, BUCKET, "a"))
    stage.run("metadata")
    stage.shard.forger.judge_ahead_of_the_chain()
    stage.run()


def an_undelete_of_half_a_tree(simulation: Simulation) -> None:
    """A client brings back a directory of which a first page has been taken apart."""
    stage = Stage(simulation, BucketLayout.FILE_SYSTEM_OPTIMIZED)
    stage.put("a/x", "a/y", "a/z")
    stage.submit(records.DeleteDirectory(stage.volume, BUCKET, "a"))
    stage.run("metadata")
    undelete = stage.deleted("a")
    for _ in range(MOST_ROUNDS):
        stage.run("metadata", "streaming", "directory_deletion", rounds=1)
        if rows(simulation.plane.tables("metadata", 0), DELETED_TABLE):
            break
    stage.submit(undelete)
    stage.run()


def a_held_version(simulation: Simulation) -> None:
    """A version dies that a snapshot holds."""
    stage = Stage(simulation)
    stage.put_in_snapshot("snap-1", "k")
    stage.delete("k")
    stage.run()


def a_held_rename(simulation: Simulation) -> None:
    """Something is renamed that a snapshot shows under its old name."""
    stage = Stage(simulation)
    stage.put_in_snapshot("snap-1", "k")
    stage.submit(records.RenameKey(stage.volume, BUCKET, "k", "l"))
    stage.run()


def two_versions_of_an_object(simulation: Simulation) -> None:
    """Of two dead versions of an object a snapshot holds the older one."""
    stage = Stage(simulation)
    stage.put_in_snapshot("snap-1", "k")
    stage.put("k")
    stage.delete("k")
    stage.run()


def _rolled_back(simulation: Simulation) -> Stage:
    stage = Stage(simulation)
    stage.put_in_snapshot("snap-1", "k")
    stage.delete("k")
    stage.run()
    stage.request(records.RollBackBucket, "snap-1", "")
    stage.run()
    return stage


def a_rollback_and_a_drop(simulation: Simulation) -> None:
    """A version comes back by a rollback, and the snapshot that held it goes."""
    stage = _rolled_back(simulation)
    stage.request(records.DeleteSnapshot, "snap-1")
    stage.run()


def a_tree_that_is_expanded_late(simulation: Simulation) -> None:
    """A snapshot is taken between the deletion of a directory and its expansion."""
    stage = Stage(simulation, BucketLayout.FILE_SYSTEM_OPTIMIZED)
    stage.put("a/b/x")
    stage.submit(records.DeleteDirectory(stage.volume, BUCKET, "a"))
    stage.run("metadata")
    stage.request(records.CreateSnapshot, "snap-1")
    stage.run("snapshots", "metadata")
    stage.run()


def a_forged_orphan(simulation: Simulation) -> None:
    """Somebody calls blocks orphaned that a live version has."""
    stage = Stage(simulation)
    stage.put("k")
    stage.run()
    stage.shard.forger.call_orphaned(stage.shard.model)
    stage.run()


def a_tree_behind_a_pause(simulation: Simulation) -> None:
    """A directory is deleted while its bucket is paused; then the pause ends."""
    stage = Stage(simulation, BucketLayout.FILE_SYSTEM_OPTIMIZED)
    simulation.state.waits = False
    for number in range(8):
        for state in (records.CollectionState.PAUSED, records.CollectionState.RUNNING):
            stage.submit(records.SetCollection("", "", state, "a pause"))
            stage.put(f"a{number}/x")
            stage.submit(records.DeleteDirectory(stage.volume, BUCKET, f"a{number}"))
            stage.run()


def resumes_that_are_lost(simulation: Simulation) -> None:
    """The same, and who expands directories does not hear of some of it."""
    simulation.state.loses_change = "directory_deletion"
    a_tree_behind_a_pause(simulation)


def a_drop_beside_an_older_snapshot(simulation: Simulation) -> None:
    """Two snapshots show a key that is then deleted, and the newer one is dropped."""
    stage = Stage(simulation)
    stage.put_in_snapshot("snap-1", "k")
    stage.put_in_snapshot("snap-2", "l")
    stage.delete("k", "l")
    stage.run()
    stage.request(records.DeleteSnapshot, "snap-2")
    stage.run()


def a_rollback(simulation: Simulation) -> None:
    """A version comes back by a rollback."""
    _rolled_back(simulation)


def a_forged_death(simulation: Simulation) -> None:
    """Somebody says of a version that a snapshot holds that it died before the snapshot was taken."""
    stage = Stage(simulation)
    stage.put("k")
    stage.put_in_snapshot("snap-1", "l")
    stage.delete("k")
    stage.run()
    stage.shard.forger.forge_early_deaths()
    stage.run()


def a_backup_behind_a_trim(simulation: Simulation) -> None:
    """The log is trimmed, and metadata goes back to a backup of before."""
    stage = Stage(simulation)
    stage.put_in_snapshot("snap-1", "k")
    simulation.trims.back_up(0)
    stage.put_in_snapshot("snap-2", "l")
    simulation.trims.trim(0)
    assert simulation.state.trimmed, "there was nothing to trim"
    stage.restart("metadata", simulation.state.backups["metadata", 0].clone())
    stage.run()


def a_trim_amid_a_start(simulation: Simulation) -> None:
    """Every service starts again, and before it has looked for what it read last the log is trimmed."""
    stage = Stage(simulation)
    stage.put_in_snapshot("snap-1", "k")
    stage.delete("k")
    stage.run()
    simulation.trims.back_up(0)
    for service, shard in simulation.plane.addresses:
        if shard == 0:
            stage.restart(service)
    simulation.trims.trim(0)
    assert simulation.state.trimmed, "there was nothing to trim"
    stage.run()


def a_drop_amid_deletions(simulation: Simulation) -> None:
    """A snapshot that alone holds something is dropped, and many times as much is deleted beside."""
    stage = Stage(simulation)
    simulation.state.waits = False
    held, others = [f"k{number}" for number in range(4)], [f"l{number}" for number in range(40)]
    stage.put_in_snapshot("snap-1", *held)
    stage.put(*others)
    stage.delete(*held)
    stage.run()
    stage.delete(*others)
    stage.run(rounds=5)
    stage.request(records.DeleteSnapshot, "snap-1")
    stage.run()


def a_command_of_long_ago(simulation: Simulation) -> None:
    """Somebody sends a client's command again when nobody remembers the client."""
    stage = Stage(simulation)
    stage.put("k")
    stage.run()
    simulation.plane.clock.advance(2 * HOUR_MS)
    stage.shard.actor.control(records.PublishFullChain("time passes"))
    stage.run()
    stage.shard.actor._send_again()
    stage.run()


def a_pause_and_an_older_drop(simulation: Simulation) -> None:
    """What nobody holds lies in a store while nothing may be claimed, and an older snapshot is dropped."""
    stage = Stage(simulation)
    stage.put_in_snapshot("snap-1", "k")
    stage.submit(records.SetCollection("", "", records.CollectionState.PAUSED, "wait"))
    stage.run()
    stage.put("l")
    stage.delete("l")
    stage.request(records.CreateSnapshot, "snap-2")
    stage.run()
    stage.request(records.DeleteSnapshot, "snap-1")
    stage.run()
    stage.submit(records.SetCollection("", "", records.CollectionState.RUNNING, "go on"))
