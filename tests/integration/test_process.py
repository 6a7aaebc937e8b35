"""A service as a process: what it says and how it ends, over a log in memory and, as a real child, over a broker."""

from __future__ import annotations

import itertools
import json
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from typing import Any
from uuid import uuid4

import httpx
import pytest
from prometheus_client import CollectorRegistry

from schemas.codec import codec
from schemas.records import Barrier, MetadataCommand, MetadataProgress
from schemas.topics import METADATA_COMMANDS, METADATA_PROGRESS, Topic
from services.domain.errors import InvariantError, RetryableError, TopicMissingError
from services.log.clock import SystemClock
from services.log.kafka import KafkaLog
from services.log.memory import MemoryLog, MemorySource
from services.log.plane_topic import PlaneTopic
from services.log.shard_group import Shards
from services.plane.broker.embedded import EmbeddedBroker
from services.plane.broker.topics import create_plane_topics
from services.plane.upkeep.growth import served_at
from services.runtime.loop.service import Message, Work
from services.runtime.process import process as process_module
from services.runtime.process.hosted_shard import Defragmentation, HostedShard, ServiceParts
from services.runtime.process.process import ServiceProcess
from services.runtime.process.settings import ServiceSettings
from services.storage import rocks
from services.storage.defragmentation import DEFRAGMENTED
from services.storage.rocks_options import RocksOptions
from services.storage.store import BEYOND
from services.storage.tables import TableDefinition, TablesReader
from tests import waiting

pytestmark = pytest.mark.timeout(180)
NOTES = TableDefinition("notes", Barrier)
PATIENCE_SECONDS = 30.0
MOST = 4
"""Shards of a playground at most."""

eventually = partial(waiting.eventually, patience_seconds=PATIENCE_SECONDS)


class Recorder:
    """Notes every barrier, passes it on, and fails as it is told to."""

    name = "recorder"
    inputs: Sequence[Topic] = (METADATA_PROGRESS,)
    tables: Sequence[TableDefinition[Any]] = (NOTES,)

    def __init__(self) -> None:
        self.error: Exception | None = None

    def restore(self, tables: TablesReader) -> None:
        """It keeps nothing in memory."""

    def stands_alone(self, message: Message) -> bool:
        return False

    def apply(self, message: Message, work: Work) -> None:
        if self.error is not None:
            raise self.error
        barrier = message.record.body
        work.table(NOTES).put(b"%08d" % barrier.round, barrier)
        work.send(METADATA_COMMANDS, MetadataCommand(0, "", 0, barrier, "recorder"))

    def tick(self, now_ms: int, work: Work) -> None:
        """Nothing is ever due."""

    def end_batch(self, work: Work) -> None:
        """Nothing."""


class Playground:
    """One process over a log in memory, in a thread of this one."""

    def __init__(self, directory: Path, shards: tuple[int, ...] = (0,), *, has_added_shards: bool = False) -> None:
        self.log = MemoryLog(SystemClock())
        self.services = {shard: Recorder() for shard in range(MOST)}
        given = {"directory": directory, "shards": shards, "poll_seconds": 0.01, "has_added_shards": has_added_shards}
        self.settings = ServiceSettings.model_validate(given)
        self.status: int | None = None
        self.parts = ServiceParts(make_service=self.services.__getitem__)
        self.shards: list[HostedShard] = []
        self.signals: SimpleQueue[int] = SimpleQueue()

    def send(self, *rounds: int, shard: int = 0) -> None:
        encoder = codec(MetadataProgress)
        for number in rounds:
            value = encoder.encode_message(MetadataProgress(number, Barrier("", number, 0, "")))
            self.log.append(METADATA_PROGRESS.name, shard, value)

    def passed_on(self, shard: int = 0) -> int:
        return len(self.log.records(METADATA_COMMANDS.name, shard))

    def rounds_passed_on(self) -> list[int]:
        records = self.log.records(METADATA_COMMANDS.name, 0)
        bodies = [codec(MetadataCommand).decode_message(record.value).body for record in records]
        return [body.round for body in bodies if isinstance(body, Barrier)]

    @contextmanager
    def running(self, join: Any = None) -> Iterator[httpx.Client]:
        registry = CollectorRegistry()
        process = ServiceProcess("recorder", self.parts, self.settings, registry, self.log, join=join)
        self.shards = process._shards

        def run() -> None:
            self.status = process.run(self.signals)

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        try:
            with httpx.Client(base_url=process.url, trust_env=False) as client:
                yield client
        finally:
            process.stop()
            thread.join(PATIENCE_SECONDS)
        assert not thread.is_alive()


class Group:
    """A group of one instance, which gives it shards when a test says so."""

    def __init__(self, gives: list[int]) -> None:
        self.gives = gives
        self.looks = 0

    def join(self, _: str, gained: Shards, lost: Shards) -> Group:
        self.gained, self.lost = gained, lost
        return self

    def poll(self, seconds: float) -> None:
        if self.gives:
            self.gained([self.gives.pop(0)])
        threading.Event().wait(seconds)

    def look_for_shards(self) -> None:
        self.looks += 1

    def close(self) -> None:
        """It has no connection."""


def test_a_process_runs_shards_that_are_added_to_the_plane(tmp_path: Path) -> None:
    playground = Playground(tmp_path, has_added_shards=True)
    PlaneTopic(playground.log).publish(1)
    with playground.running() as client:
        eventually(lambda: is_up(client))
        playground.send(1, shard=2)
        assert not (tmp_path / "recorder" / "2").exists()
        PlaneTopic(playground.log).publish(3)
        eventually(lambda: playground.passed_on(2) == 1)
        assert (tmp_path / "recorder" / "1" / "db").is_dir()
        eventually(lambda: served_at(client, str(client.base_url)) == {("recorder", shard) for shard in range(3)})
        assert client.post("/v1/shards/1/copies/a-copy").is_success
        eventually(lambda: is_up(client))
        playground.send(2)
        eventually(lambda: playground.passed_on() == 1)
    assert playground.status == 0


def test_a_broker_that_does_not_know_an_added_shard_yet_is_asked_again(tmp_path: Path) -> None:
    """The controller says so to one broker after the other; a shard that was there before is not missing by chance."""

    class Behind(MemoryLog):
        known = 1
        refusals = 0

        def open_source(self, topics: Sequence[str], partition: int, next_offsets: Mapping[str, int]) -> MemorySource:
            if partition >= self.known:
                self.refusals += 1
                raise TopicMissingError(f"there is no partition {partition}")
            return super().open_source(topics, partition, next_offsets)

    playground = Playground(tmp_path, has_added_shards=True)
    playground.log = log = Behind(SystemClock())
    PlaneTopic(log).publish(2)
    playground.send(1, shard=1)
    with playground.running():
        eventually(lambda: log.refusals > 1)
        log.known = 2
        eventually(lambda: playground.passed_on(1) == 1)
    assert playground.status == 0
    log.known = 0
    with playground.running():
        eventually(lambda: playground.status == 1)


def test_a_process_with_a_list_of_its_shards_runs_no_others(tmp_path: Path) -> None:
    playground = Playground(tmp_path)
    PlaneTopic(playground.log).publish(2)
    with playground.running() as client:
        eventually(lambda: is_up(client))
        playground.send(1, shard=1)
        playground.send(1)
        eventually(lambda: playground.passed_on() == 1)
    assert not (tmp_path / "recorder" / "1").exists()


def test_an_instance_runs_a_shard_that_the_group_has_given_to_it_before_it_was_there(tmp_path: Path) -> None:
    """Kafka divides partitions as soon as they exist; the number of shards comes last."""
    playground, group = Playground(tmp_path, has_added_shards=True), Group([0, 1])
    PlaneTopic(playground.log).publish(1)
    playground.send(1, shard=1)
    playground.send(1, shard=2)
    with playground.running(group.join) as client:
        eventually(lambda: not group.gives)
        eventually(lambda: is_up(client))
        assert group.looks == 0
        assert not (tmp_path / "recorder" / "1").exists()
        PlaneTopic(playground.log).publish(3)
        eventually(lambda: playground.passed_on(1) == 1)
        assert group.looks == 1, "the other instances may have to hear of the shards, too"
        assert not (tmp_path / "recorder" / "2").exists(), "the group has given it to another instance"
        group.gives.append(2)
        eventually(lambda: playground.passed_on(2) == 1)


def is_up(client: httpx.Client) -> bool:
    try:
        return client.get("/readyz").is_success
    except httpx.ConnectError:
        return False


def metric(client: httpx.Client, name: str) -> float:
    lines = [line for line in client.get("/metrics").text.splitlines() if line.startswith(name)]
    return float(lines[0].rpartition(" ")[2])


def test_copies_are_bounded_given_back_and_removed_at_the_next_start(tmp_path: Path) -> None:
    playground = Playground(tmp_path)
    beside = tmp_path / "recorder" / "0"
    for left in ("copies/.making-a", "copies/.removing-b-1", "copies/c", "audits/d"):
        (beside / left / "db").mkdir(parents=True)
    with playground.running() as client:
        eventually(lambda: is_up(client))
        assert not (beside / "copies").exists()
        assert not (beside / "audits").exists()
        for number in range(playground.settings.max_copies):
            directory = client.post(f"/v1/shards/0/copies/copy-{number}").raise_for_status().json()["directory"]
            assert (Path(directory) / "db" / "CURRENT").exists()
        refused = client.post("/v1/shards/0/copies/one-more")
        assert (refused.status_code, refused.json()["code"]) == (409, "TOO_MANY_COPIES")
        known = client.post("/v1/shards/0/copies/copy-0")
        assert (known.status_code, known.json()["code"]) == (409, "COPY_EXISTS")
        assert client.delete("/v1/shards/0/copies/copy-0").json() is True
        assert client.delete("/v1/shards/0/copies/copy-0").json() is False
        assert client.delete("/v1/shards/0/copies/..").status_code == 404
        assert client.post("/v1/shards/0/copies/one-more").is_success
    assert playground.status == 0


def test_shards_run_side_by_side_and_report(tmp_path: Path) -> None:
    playground = Playground(tmp_path, (0, 3))
    playground.send(1, 2, 3)
    playground.send(7, shard=3)
    playground.log.append(METADATA_PROGRESS.name, 3, b"broken")
    with playground.running() as client:
        eventually(lambda: is_up(client) and playground.passed_on() == 3 and playground.passed_on(3) == 1)
        labels = '{service="recorder",shard="%d",topic="metadata.progress"}'
        assert metric(client, "deepclean_messages_applied_total" + labels % 0) == 3
        assert metric(client, "deepclean_messages_applied_total" + labels % 3) == 2
        assert metric(client, "deepclean_dead_letters_total" + labels % 3) == 1
        assert metric(client, 'deepclean_messages_published_total{service="recorder",shard="0"}') == 3
        eventually(lambda: metric(client, "deepclean_input_position" + labels % 0) == 3)
        assert metric(client, "deepclean_input_lag_messages" + labels % 0) == 0
        assert time.time() - metric(client, "deepclean_last_step_timestamp_seconds") < 5
        eventually(lambda: metric(client, "deepclean_database_bytes") > 0)
        assert client.get("/healthz").is_success
    assert playground.status == 0
    assert (tmp_path / "recorder" / "3" / "db").is_dir()


def test_a_restart_goes_on_where_it_was(tmp_path: Path) -> None:
    playground = Playground(tmp_path)
    playground.send(1, 2)
    with playground.running():
        eventually(lambda: playground.passed_on() == 2)
    playground.send(3)
    with playground.running() as client:
        eventually(lambda: is_up(client) and 3 in playground.rounds_passed_on())
        assert metric(client, "deepclean_messages_applied_total") == 1
    # What was sent last may come again, as after a crash.
    assert [number for number, _ in itertools.groupby(sorted(playground.rounds_passed_on()))] == [1, 2, 3]


def test_a_signal_ends_it_well(tmp_path: Path) -> None:
    playground = Playground(tmp_path)
    with playground.running() as client:
        eventually(lambda: is_up(client))
        playground.signals.put(signal.SIGTERM)
        eventually(lambda: playground.status is not None)
    assert playground.status == 0


def test_what_may_succeed_later_is_tried_again(tmp_path: Path) -> None:
    playground = Playground(tmp_path)
    playground.services[0].error = RetryableError("the moon is in the wrong place")
    playground.send(1)
    with playground.running() as client:
        eventually(lambda: "the moon" in client.get("/readyz").text)
        assert client.get("/readyz").status_code == 503
        assert client.get("/healthz").is_success
        playground.services[0].error = None
        eventually(lambda: is_up(client) and playground.passed_on() == 1)
        assert metric(client, "deepclean_step_retries_total") >= 1
    assert playground.status == 0


@pytest.mark.parametrize("error", [InvariantError("row 7 has two owners: look at it"), OSError(28, "No space left")])
def test_what_is_wrong_for_good_stops_the_process(
    tmp_path: Path, error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    playground = Playground(tmp_path, (0, 1))
    playground.services[1].error = error
    playground.send(1, shard=1)
    with playground.running():
        eventually(lambda: playground.status is not None)
    assert playground.status == 1
    assert playground.passed_on(1) == 0


# As a real child over a real broker.


class Child:
    """``python -m services.<name>`` with its output; ended for good when its test is over."""

    def __init__(self, name: str, broker: str, directory: Path, options: Sequence[str]) -> None:
        command = [sys.executable, "-m", f"services.{name}", "--bootstrap-servers", broker]
        # Not a pipe: one that nobody reads stops the child when it is full.
        self._errors = directory / f"{name}-{uuid4().hex}.log"
        with self._errors.open("w") as errors:
            self.process = subprocess.Popen(
                [*command, "--directory", str(directory), *options], stdout=subprocess.PIPE, stderr=errors, text=True
            )
        self.url = ""

    def await_ready(self) -> None:
        assert self.process.stdout is not None
        ready = json.loads(self.process.stdout.readline())
        assert ready["event"] == "ready"
        self.url = ready["url"]

    def end(self) -> tuple[int, str]:
        self.process.communicate(timeout=PATIENCE_SECONDS)
        return self.process.returncode, self._errors.read_text()

    def close(self) -> None:
        self.process.kill()
        self.process.communicate()

    def terminate(self) -> tuple[int, str]:
        self.process.terminate()
        return self.end()


StartChild = Callable[..., Child]


@pytest.fixture
def start_child() -> Iterator[StartChild]:
    started: list[Child] = []

    def start(name: str, broker: str, directory: Path, *options: str) -> Child:
        started.append(Child(name, broker, directory, options))
        return started[-1]

    yield start
    for child in started:
        child.close()


@pytest.fixture
def broker(bootstrap_servers: str) -> str:
    create_plane_topics(bootstrap_servers, 2)
    return bootstrap_servers


@pytest.mark.long
@pytest.mark.broker
@pytest.mark.parametrize("name", ["metadata", "snapshots", "key_deletion", "directory_deletion", "mock_scm"])
def test_every_service_starts_and_ends(start_child: StartChild, name: str, broker: str, tmp_path: Path) -> None:
    child = start_child(name, broker, tmp_path, "--shards", "0,1")
    child.await_ready()
    with httpx.Client(base_url=child.url, trust_env=False) as client:
        eventually(lambda: is_up(client))
        assert f'service="{name}"' in client.get("/metrics").text
    status, errors = child.terminate()
    assert status == 0, errors
    assert all(json.loads(line)["service"] == name for line in errors.splitlines())


@pytest.mark.broker
def test_what_breaks_in_native_code_is_in_the_log(start_child: StartChild, broker: str, tmp_path: Path) -> None:
    child = start_child("metadata", broker, tmp_path)
    child.await_ready()
    child.process.send_signal(signal.SIGSEGV)
    status, said = child.end()
    assert status == -signal.SIGSEGV
    assert "Segmentation fault" in said
    assert said.count("most recent call first") >= 3, "the main thread, its shard's, its HTTP server's"


@pytest.mark.broker
def test_the_same_directory_twice_is_refused(start_child: StartChild, broker: str, tmp_path: Path) -> None:
    first = start_child("mock_scm", broker, tmp_path)
    first.await_ready()
    status, errors = start_child("mock_scm", broker, tmp_path).end()
    assert status == 1
    assert "another process has it open: stop that one first" in errors.splitlines()[-2]
    assert first.terminate()[0] == 0


def test_wrong_settings_and_ports_are_one_sentence(start_child: StartChild, tmp_path: Path) -> None:
    status, errors = start_child("mock_scm", "127.0.0.1:1", tmp_path, "--shards", "x").end()
    assert (status, errors.count("\n")) == (2, 1)
    server_taken = Playground(tmp_path)
    with server_taken.running() as client:
        port = str(client.base_url.port)
        status, errors = start_child("mock_scm", "127.0.0.1:1", tmp_path, "--http-port", port).end()
    assert (status, errors.count("\n")) == (1, 1)
    assert f"port {port} on 127.0.0.1 is in use" in errors


@pytest.mark.long
@pytest.mark.broker
def test_a_broker_that_comes_late_and_goes_away_is_waited_for(start_child: StartChild, tmp_path: Path) -> None:
    with EmbeddedBroker(tmp_path / "broker") as broker:
        create_plane_topics(broker.bootstrap_servers, 1)
        broker.stop()
        child = start_child("metadata", broker.bootstrap_servers, tmp_path, "--http-port", "0")
        broker.start()
        child.await_ready()
        broker.kill()
        broker.start()
        log = KafkaLog(broker.bootstrap_servers, "test")
        sink = log.open_sink()
        command = MetadataCommand(0, "", 0, Barrier("b", 1, 0, "somebody"), "snapshots")
        encoder = codec(MetadataCommand)
        sink.send(METADATA_COMMANDS.name, 0, encoder.encode_message(command))
        sink.flush()
        sink.close()

        def is_answered() -> bool:
            try:
                return log.end_offset(METADATA_PROGRESS.name, 0) > 0
            except RetryableError:
                return False

        eventually(is_answered)
        assert child.terminate()[0] == 0


def test_checkpoints_are_rewritten_beside_the_loop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The process merges and rewrites from time to time, says so in its metrics, and leaves the rows as they are."""
    monkeypatch.setattr(process_module, "DEFRAGMENT_SECONDS", 0.05)
    monkeypatch.setattr(rocks, "RocksOptions", partial(RocksOptions, least_gain_bytes=0))
    monkeypatch.setattr(rocks, "is_worth_it", lambda *_: True)
    place = Playground(tmp_path)
    kept = Defragmentation(lambda _, name: {} if name == "kept" else None, 1_000_000, rest_seconds=0)
    place.parts = replace(place.parts, checkpointed=frozenset({NOTES.name}), defragmentation=kept)
    with place.running() as client:
        eventually(lambda: is_up(client))
        place.send(1, 2, 3)
        eventually(lambda: place.passed_on() == 3)
        store = place.shards[0].store
        assert store is not None
        store.checkpoint("kept")
        store.checkpoint("other")
        place.send(4)
        eventually(lambda: 'defragmented_total{service="recorder",shard="0"} 1.0' in client.get("/metrics").text)
        with closing(store.open_checkpoint("kept")) as view:
            assert [key for key, _ in view.scan(NOTES.name, b"", BEYOND)] == [b"%08d" % one for one in (1, 2, 3)]
            assert (view.path / DEFRAGMENTED).exists()
        with closing(store.open_checkpoint("other")) as view:
            assert not (view.path / DEFRAGMENTED).exists()
