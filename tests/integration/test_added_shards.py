"""Shards are added to a running plane: nothing restarts, writers go on, and the new shards do all that others do."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from schemas.records import (
    BucketLayout,
    CreateBucket,
    CreateSnapshot,
    CreateVolume,
    DeleteKey,
    DeleteSnapshot,
    PutKey,
    Settle,
)
from schemas.topics import TOPICS
from services.cli.main import app
from services.client.kafka_plane import KafkaPlane
from services.client.tasks.volume_shards import VolumeShards
from services.log.kafka import KafkaLog
from services.plane.broker import topics as broker_topics
from services.plane.machine.errors import StackError
from services.plane.stack.description import read_description
from services.plane.stack.plane_file import running_plane
from services.plane.stack.stack import Stack
from services.plane.upkeep import growth
from services.plane.upkeep.growth import add_shards
from tests.broker_cluster import BrokerCluster
from tests.waiting import eventually

pytestmark = [pytest.mark.broker, pytest.mark.spark, pytest.mark.timeout(600), pytest.mark.long]
NO_WINDOW = {
    f"DEEPCLEAN_{service}_UNDO_WINDOW_MS": "0" for service in ("KEY_DELETION", "DIRECTORY_DELETION", "METADATA")
}


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    with Stack(tmp_path_factory.mktemp("grown"), 2, settings=NO_WINDOW) as stack:
        yield stack


def answered(plane: KafkaPlane, shard: int, *commands: Any) -> None:
    for number in [plane.submit(shard, command) for command in commands]:
        reply = plane.answer(shard, number)
        assert (reply.error, reply.message) == ("", "")


def asked(plane: KafkaPlane, shard: int, request: Any) -> None:
    reply = plane.request(shard, request)
    assert (reply.error, reply.message) == ("", "")


class Writer:
    """Puts and deletes keys in one volume until it is stopped."""

    def __init__(self, plane: KafkaPlane, shard: int) -> None:
        self.plane, self.shard, self.volume = plane, shard, f"busy-{shard}"
        bucket = CreateBucket(self.volume, "bucket", BucketLayout.FILE_SYSTEM_OPTIMIZED)
        answered(plane, shard, CreateVolume(self.volume), bucket)
        self.done = 0
        self.failure: BaseException | None = None
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._write)

    def __enter__(self) -> Writer:
        self._thread.start()
        eventually(lambda: self.done > 2 or self.failure is not None)
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        assert self.failure is None

    def _write(self) -> None:
        try:
            while not self._stop.wait(0.01):
                key = f"directory/{self.done}"
                put = PutKey(self.volume, "bucket", key, 1_000)
                answered(self.plane, self.shard, put, DeleteKey(self.volume, "bucket", key))
                self.done += 1
        except BaseException as error:
            self.failure = error


def processes(stack: Stack) -> dict[str, tuple[int, int]]:
    """The process id of each process, and how often it was started again."""
    plane = running_plane(stack.home)
    return {name: (process.identity.pid, process.restarts) for name, process in plane.processes.items()}


def use(plane: KafkaPlane, shard: int, volume: str) -> None:
    """Have a key live and die in a new volume, be held by a snapshot, and be freed by what Spark has judged."""
    bucket = CreateBucket(volume, "bucket", BucketLayout.OBJECT_STORE)
    answered(plane, shard, CreateVolume(volume), bucket, PutKey(volume, "bucket", "key", 1_000))
    asked(plane, shard, CreateSnapshot(volume, "bucket", "held"))
    answered(plane, shard, DeleteKey(volume, "bucket", "key"))
    asked(plane, shard, Settle(f"{volume}-held"))
    assert plane.metadata(shard).space(volume, "bucket").deleted_bytes == 1_000
    asked(plane, shard, DeleteSnapshot(volume, "bucket", "held"))
    asked(plane, shard, Settle(f"{volume}-freed"))
    assert plane.metadata(shard).space(volume, "bucket").freed_bytes == 1_000


def deepclean(stack: Stack, *arguments: str) -> str:
    outcome = CliRunner().invoke(app, ["--home", str(stack.home), *arguments], catch_exceptions=False)
    assert outcome.exit_code == 0, outcome.output
    return outcome.stdout


def test_a_running_plane_grows_while_it_is_written_to(stack: Stack) -> None:
    before = processes(stack)
    with stack.client() as plane, Writer(plane, 0) as one, Writer(plane, 1) as other:
        said = deepclean(stack, "shards", "add", "--yes", "4")
        assert "published: the plane has 4 shards" in said
        assert "served: all 4 shards" in said
        counts = one.done, other.done
        volumes = VolumeShards(plane)
        for number in range(2):  # the client was connected before
            volume = f"new-{number}"
            shard = volumes.shard_for_new(volume, None)
            assert shard in (2, 3)
            use(plane, shard, volume)
            assert volumes.shard_of(volume) == shard
        eventually(lambda: one.done > counts[0] and other.done > counts[1], otherwise="a writer does not go on")
        assert plane.shards == 4
    assert processes(stack) == before
    with stack.client() as plane:
        for shard in range(4):
            asked(plane, shard, Settle("at-rest"))
    assert json.loads(deepclean(stack, "status", "--json", "--seconds", "0.1"))["shards"] == 4
    listed = json.loads(deepclean(stack, "shards", "list", "--json"))
    assert [row["shard"] for row in listed] == [0, 1, 2, 3]
    assert all(row["done_commands"] > 0 and row["kept_bytes"] > 0 for row in listed)
    deepclean(stack, "verify")
    deepclean(stack, "audit")
    deepclean(stack, "backup")
    deepclean(stack, "trim-log", "--yes", "--dry-run")


def test_a_repeat_changes_nothing_and_fewer_are_refused(stack: Stack) -> None:
    log = KafkaLog(stack.address.bootstrap_servers, "test")
    ends = [log.end_offset(topic.name, 3) for topic in TOPICS if topic.name != "metadata.progress"]
    said: list[str] = []
    add_shards(stack.home, 4, said.append)
    assert [line.partition(":")[0] for line in said] == ["served"]
    assert [log.end_offset(topic.name, 3) for topic in TOPICS if topic.name != "metadata.progress"] == ends
    with pytest.raises(StackError, match="has 4 shards, and 3 are fewer: shards cannot be removed"):
        add_shards(stack.home, 3, said.append)


@pytest.mark.parametrize("step", ["create_partitions", "send_commands", "publish_shards"])
def test_an_end_at_any_step_is_made_good_by_a_repeat(stack: Stack, step: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Until the number is published nobody uses what is there; ``up`` starts with the published number, too."""
    wanted = running_plane(stack.home).shards + 1

    class KilledError(Exception):
        pass

    def killed(*_: object, **__: object) -> None:
        raise KilledError

    with monkeypatch.context() as patch:
        if step == "create_partitions":  # it ends after the first topic
            add = broker_topics._add_partitions
            calls: list[object] = []

            def once(*arguments: Any) -> None:
                calls.append(arguments)
                if len(calls) > 1:
                    raise KilledError
                add(*arguments)

            patch.setattr(broker_topics, "_add_partitions", once)
        else:
            patch.setattr(growth, step, killed)
        with pytest.raises(KilledError):
            add_shards(stack.home, wanted, lambda _: None)
    with stack.client() as plane:
        assert plane.learn_shards() == wanted - 1
        assert VolumeShards(plane).shard_for_new(f"before-{wanted}", None) < wanted - 1
    add_shards(stack.home, wanted, lambda _: None)
    with stack.client() as plane:
        use(plane, wanted - 1, f"killed-{step}".replace("_", "-"))


def test_a_plane_that_has_grown_starts_again_with_all_shards(stack: Stack) -> None:
    shards = running_plane(stack.home).shards
    stack.stop()
    again = Stack(Path(stack.home), 2, settings=NO_WINDOW)
    with again, again.client() as plane:
        assert plane.shards == shards
        use(plane, shards - 1, "after-a-start")


def test_hosts_that_share_shards_share_added_ones(tmp_path: Path) -> None:
    """The group divides them as soon as they are published, and clients find their owners."""
    cluster = BrokerCluster(tmp_path / "brokers", 1).start()
    services = ("metadata", "snapshots")
    try:
        files = []
        for name in ("one", "two"):
            files.append(tmp_path / f"{name}.toml")
            files[-1].write_text(
                f'shards = 2\n[kafka]\nbootstrap_servers = "{cluster.bootstrap_servers}"\n[host]\ninstance = "{name}"\n'
                f"processes = {json.dumps(services)}\n"
            )
        described = [read_description(file) for file in files]
        with (
            Stack(tmp_path / "one", 2, described=described[0]) as one,
            Stack(tmp_path / "two", 2, described=described[1]) as two,
            one.client() as plane,
        ):
            hosts = {name: {one.url(name), two.url(name)} for name in services}
            for name in services:
                eventually(partial(lambda name: set(urls(plane, name, 2)) == hosts[name], name))
            before = processes(one), processes(two)
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(growth, "SERVICES", services)  # the others run nowhere
                add_shards(one.home, 6, lambda _: None)
            for name in services:
                owners = urls(plane, name, 6)
                assert all(owners.count(url) == 3 for url in hosts[name]), owners
            for shard in range(2, 6):
                answered(plane, shard, CreateVolume(f"on-{shard}"))
                assert [row.volume for row in plane.metadata(shard).volumes()] == [f"on-{shard}"]
            assert (processes(one), processes(two)) == before
            eventually(lambda: running_plane(two.home).shards == 6)
    finally:
        cluster.stop()


def urls(plane: KafkaPlane, service: str, shards: int) -> list[str]:
    return [plane.owner_url(service, shard) for shard in range(shards)]
