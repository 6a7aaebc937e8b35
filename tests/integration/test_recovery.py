"""Backup, rebuild, restore, trimming and a lost tail, on a real broker and real databases, by the command line.

The five services run as in their processes, but in threads of this one; Spark is left out, since it keeps no state. The
broker of a home stays from one plane to the next, and commands are told of it: to start it takes longer than most.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry
from typer.testing import CliRunner, Result

from schemas.records import BucketLayout, CreateBucket, CreateSnapshot, CreateVolume, DeleteSnapshot, PutKey
from schemas.topics import METADATA_COMMANDS, SNAPSHOT_CHAIN
from services.cli.main import app
from services.cli.session import Session
from services.client.kafka_plane import KafkaPlane
from services.directory_deletion.__main__ import build as build_directory_deletion
from services.key_deletion.__main__ import build as build_key_deletion
from services.log.kafka import KafkaLog
from services.log.reads import end_of_records
from services.metadata.__main__ import build as build_metadata
from services.metadata.recovery.digest import digest_shard
from services.mock_scm.__main__ import build as build_mock_scm
from services.plane.broker.embedded import EmbeddedBroker
from services.plane.broker.topics import create_plane_topics
from services.plane.machine.processes import identify
from services.plane.stack.plane_file import PlaneFile, PlaneProcess, PlaneState, remove_plane_file, write_plane_file
from services.plane.stack.plane_lock import acquire_plane_lock
from services.plane.stack.process_names import METADATA, SERVICES
from services.plane.stack.stack import running_client
from services.plane.upkeep.backups import backups_directory
from services.plane.upkeep.shard_databases import database_directory, open_database
from services.runtime.copies.manifests import MANIFEST, placed_backups
from services.runtime.process.process import ServiceProcess
from services.runtime.process.settings import ServiceSettings
from services.snapshots.__main__ import build as build_snapshots
from services.storage.digest import ShardDigest
from tests.waiting import PATIENCE_SECONDS, eventually

pytestmark = [pytest.mark.timeout(240), pytest.mark.long]
BUILDERS = {
    "metadata": build_metadata,
    "snapshots": build_snapshots,
    "key_deletion": build_key_deletion,
    "directory_deletion": build_directory_deletion,
    "mock_scm": build_mock_scm,
}


@pytest.fixture
def home_broker(tmp_path: Path) -> Iterator[EmbeddedBroker]:
    """That of the home: the first plane starts it, and so does the first one after it was stopped."""
    made = EmbeddedBroker(tmp_path / "broker")
    yield made
    made.stop()


@contextlib.contextmanager
def plane_running(home: Path, broker: EmbeddedBroker) -> Iterator[KafkaPlane]:
    """A plane without Spark on a home; metadata has applied every command when it is left."""
    with acquire_plane_lock(home):
        servers = broker.start().bootstrap_servers
        create_plane_topics(servers, 1)
        given = {"directory": home / "data", "bootstrap_servers": servers, "poll_seconds": 0.02}
        settings = ServiceSettings.model_validate(given)
        started = {}
        for name in SERVICES:
            registry = CollectorRegistry()
            parts = BUILDERS[name](settings, registry)
            process = ServiceProcess(name, parts, settings, registry, KafkaLog(servers, f"deepclean.{name}"))
            thread = threading.Thread(target=process.run, name=name)
            thread.start()
            started[name] = (process, thread)
        me = identify(os.getpid())
        processes = {name: PlaneProcess(me, process.url, "") for name, (process, _) in started.items()}
        write_plane_file(home, PlaneFile(PlaneState.RUNNING, str(home), 1, me, servers, processes))
        try:
            with running_client(home) as plane:
                shards = [shard for process, _ in started.values() for shard in process._shards]
                eventually(lambda: not any(shard.why_unready() for shard in shards))
                yield plane
        finally:
            for name in reversed(SERVICES):  # metadata last: it takes in what the others have sent
                process, thread = started[name]
                if name == METADATA:
                    eventually(partial(_is_at_the_end, process, broker))
                process.stop()
                thread.join(PATIENCE_SECONDS)
            remove_plane_file(home)


def _is_at_the_end(process: ServiceProcess, broker: EmbeddedBroker) -> bool:
    (shard,) = process._shards
    if shard.failure or shard._runner is None:
        return True
    end = end_of_records(KafkaLog(broker.bootstrap_servers, "test"), METADATA_COMMANDS.name, 0)
    return shard._runner.positions()[METADATA_COMMANDS.name] == end


def deepclean(home: Path, *arguments: str) -> Result:
    return CliRunner().invoke(app, list(arguments), obj=Session(home))


def on_broker(broker: EmbeddedBroker) -> tuple[str, str]:
    """What tells a command of a broker that runs: otherwise it starts one."""
    return "--bootstrap-servers", broker.bootstrap_servers


def done(home: Path, *arguments: str) -> str:
    result = deepclean(home, *arguments)
    assert result.exit_code == 0, result.output
    return result.output


def refused(home: Path, *arguments: str) -> str:
    result = deepclean(home, *arguments)
    assert result.exit_code == 1
    said = [line for line in result.output.strip().splitlines() if not line.startswith("rebuild: applying")]
    assert len(said) == 1, result.output
    return said[0]


def put(plane: KafkaPlane, first: int, count: int) -> None:
    numbers = [plane.submit(0, PutKey("vol", "bucket", f"key-{key:05}", 10)) for key in range(first, first + count)]
    assert {plane.answer(0, number).error for number in numbers} == {""}


def request(plane: KafkaPlane, body: CreateSnapshot | DeleteSnapshot) -> None:
    assert plane.request(0, body).error == ""


def lost_digest(home: Path, directory: Path | None = None) -> ShardDigest:
    store = open_database(directory or database_directory(home, METADATA, 0), METADATA)
    try:
        return digest_shard(store)
    finally:
        store.close()


def make_a_past(plane: KafkaPlane) -> None:
    for body in (CreateVolume("vol"), CreateBucket("vol", "bucket", BucketLayout.OBJECT_STORE)):
        assert plane.answer(0, plane.submit(0, body)).error == ""
    for number in range(4):
        put(plane, 150 * number, 200)
        request(plane, CreateSnapshot("vol", "bucket", f"snap-{number}"))
    request(plane, DeleteSnapshot("vol", "bucket", "snap-1"))


def test_what_is_lost_is_made_again(tmp_path: Path, home_broker: EmbeddedBroker) -> None:
    home = tmp_path
    with plane_running(home, home_broker) as plane:
        make_a_past(plane)
        said = refused(home, "rebuild", "0")
        assert "A plane runs on" in said
        assert "deepclean down" in said
        assert "Without a backup only gc.deleted-entries can be trimmed" in done(home, "trim-log", "--yes")
        backed_up = done(home, "backup")
        assert "metadata, shard 0: txn" in backed_up
        running_digest = done(home, "digest", "0").split()[0]
        put(plane, 1_000, 200)
        request(plane, CreateSnapshot("vol", "bucket", "after-backup"))
    assert not list((home / "data").glob("*/*/copies/*"))
    (placed,) = placed_backups(backups_directory(home))
    backup = placed.backup
    copy = backup.copy_of(METADATA, 0)
    assert copy is not None
    assert copy.digest is not None
    assert running_digest in backed_up
    lost = lost_digest(home)
    assert len(lost.checkpoints) == 4

    # From the log alone, in batches of another size, with a broker that is started for it.
    home_broker.stop()
    place = database_directory(home, METADATA, 0)
    assert "holds a database: move it away" in refused(home, "rebuild", "0")
    place.rename(home / "lost")
    rebuilt = done(home, "rebuild", "0", "--compare-with", str(home / "lost"), "--max-batch-messages", "7")
    assert f"Equal to backup {backup.name}" in rebuilt
    assert f"Equal to {home / 'lost'}" in rebuilt
    assert lost_digest(home).digest == lost.digest
    assert lost.digest in done(home, "digest", "0")

    # A lost row is seen.
    place.rename(home / "rebuilt")
    store = open_database(home / "lost", METADATA)
    store.write({"keyTable": {b"/vol/bucket/key-00001": None}})
    store.close()
    home_broker.start()
    differs = deepclean(home, "rebuild", "0", "--compare-with", str(home / "lost"), *on_broker(home_broker))
    assert differs.exit_code == 1
    assert "(keyTable): keep both" in differs.output

    # From the newest complete backup and the rest of the log: all services.
    assert "is not empty: move it away first" in refused(home, "restore-backup")
    shutil.rmtree(home / "data")
    cut_off = backups_directory(home) / "20990101T000000Z"
    shutil.copytree(backups_directory(home) / backup.name, cut_off)
    (cut_off / MANIFEST).unlink()
    assert f"restored from {backup.name}" in done(home, "restore-backup")
    assert lost_digest(home) == copy.digest
    with plane_running(home, home_broker) as plane:
        put(plane, 2_000, 10)
        request(plane, CreateSnapshot("vol", "bucket", "after-restore"))
    place.rename(home / "restored")
    done(home, "rebuild", "0", "--compare-with", str(home / "restored"), *on_broker(home_broker))


def test_a_trimmed_log_needs_a_backup(tmp_path: Path, home_broker: EmbeddedBroker) -> None:
    home = tmp_path
    with plane_running(home, home_broker) as plane:
        make_a_past(plane)
        done(home, "trim-log", "--yes", "--full-chain", "--dry-run")
        put(plane, 1_000, 10)
    with plane_running(home, home_broker) as plane:
        done(home, "backup")
        put(plane, 2_000, 10)
        before = done(home, "trim-log", "--yes", "--dry-run")
        done(home, "trim-log", "--yes")
        servers = plane.address.bootstrap_servers
        log = KafkaLog(servers, "test")
        assert log.first_offset(METADATA_COMMANDS.name, 0) > 100
        assert log.first_offset(SNAPSHOT_CHAIN.name, 0) > 0
        assert METADATA_COMMANDS.name in before
    lost = lost_digest(home)
    database_directory(home, METADATA, 0).rename(home / "lost")
    home_broker.stop()  # that it has trimmed is on its disk
    said = refused(home, "rebuild", "0")
    home_broker.start()
    assert "restore a later backup (deepclean restore-backup); then rebuild the rest from the log" in said
    shutil.rmtree(database_directory(home, METADATA, 0))
    done(home, "restore-backup", "--service", METADATA)
    done(home, "rebuild", "0", "--go-on", "--compare-with", str(home / "lost"), *on_broker(home_broker))
    assert lost_digest(home).digest == lost.digest
    # A judge that knows nothing reads the chain from its new beginning.
    with plane_running(home, home_broker) as plane:
        request(plane, CreateSnapshot("vol", "bucket", "after-trim"))


def test_a_lost_tail_is_named_and_accepted(tmp_path: Path, home_broker: EmbeddedBroker) -> None:
    home = tmp_path
    with plane_running(home, home_broker) as plane:
        make_a_past(plane)
    nothing = done(home, "accept-lost-tail", "0", *on_broker(home_broker))
    assert "No loss was found that is not accepted: the topics of shard 0" in nothing
    home_broker.stop()
    shutil.copytree(home / "broker", home / "older-broker")
    with plane_running(home, home_broker) as plane:
        put(plane, 1_000, 50)
        request(plane, CreateSnapshot("vol", "bucket", "in-the-lost-tail"))
    lost = lost_digest(home)
    home_broker.stop()
    shutil.rmtree(home / "broker")
    (home / "older-broker").rename(home / "broker")
    shown = done(home, "accept-lost-tail", "0")
    assert METADATA_COMMANDS.name in shown
    assert "--yes" in shown
    accepted = done(home, "accept-lost-tail", "0", "--yes", "--reason", "an older disk")
    assert "in epoch 1" in accepted
    assert lost_digest(home).differences(lost) == ["transactionInfoTable"], "it is carried out, and nothing else is"
    with plane_running(home, home_broker) as plane:
        put(plane, 2_000, 10)
        request(plane, CreateSnapshot("vol", "bucket", "after-the-loss"))
        names = {row.name for row in plane.snapshots(0).snapshots("vol", "bucket")}
        assert {"in-the-lost-tail", "after-the-loss"} <= names
        done(home, "backup")
        put(plane, 3_000, 10)
    after = lost_digest(home)
    database_directory(home, METADATA, 0).rename(home / "lost")
    assert "built without them" in refused(home, "rebuild", "0", *on_broker(home_broker))
    shutil.rmtree(database_directory(home, METADATA, 0))
    done(home, "restore-backup", "--service", METADATA)
    done(home, "rebuild", "0", "--go-on", *on_broker(home_broker))
    assert lost_digest(home).digest == after.digest


def test_a_tail_that_is_lost_with_the_database_is_noticed_and_accepted(
    tmp_path: Path, home_broker: EmbeddedBroker
) -> None:
    home, partition = tmp_path, f"{METADATA_COMMANDS.name}-0"
    with plane_running(home, home_broker) as plane:
        make_a_past(plane)
    home_broker.stop()
    shutil.copytree(home / "broker", home / "older-broker")
    with plane_running(home, home_broker) as plane:
        put(plane, 1_000, 50)
    home_broker.stop()
    (found,) = (home / "broker").rglob(partition)
    (older,) = (home / "older-broker").rglob(partition)
    shutil.rmtree(found)
    shutil.copytree(older, found)
    home_broker.start()
    place = database_directory(home, METADATA, 0)
    place.rename(home / "lost")
    assert "nothing can be compared: the broker has lost its tail" in refused_at_last(
        home, "rebuild", "0", "--compare-with", str(home / "lost"), *on_broker(home_broker)
    )
    shutil.rmtree(place)
    assert "has published txn" in refused_at_last(home, "rebuild", "0", *on_broker(home_broker))
    accept = ("accept-lost-tail", "0", *on_broker(home_broker))
    assert "other processes know txn" in done(home, *accept)
    assert "in epoch 1" in done(home, *accept, "--yes")
    assert "No loss was found that is not accepted: the topics of shard 0" in done(home, *accept)
    with plane_running(home, home_broker) as plane:
        put(plane, 2_000, 10)
        request(plane, CreateSnapshot("vol", "bucket", "after-the-loss"))


def refused_at_last(home: Path, *arguments: str) -> str:
    result = deepclean(home, *arguments)
    assert result.exit_code == 1, result.output
    return result.output
