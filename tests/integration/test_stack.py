"""The whole plane as processes: a deletion travels, a restart goes on, what dies is reported, nothing stays behind."""

from __future__ import annotations

import json
import re
import shutil
import signal
import socket
import subprocess
import threading
import time
from pathlib import Path

import httpx
import pytest

from schemas.records import (
    BlockRun,
    BucketLayout,
    CreateBucket,
    CreateSnapshot,
    CreateVolume,
    DeleteDirectory,
    DeleteKey,
    DeleteSnapshot,
    PutKey,
    Settle,
)
from services.client.errors import PlaneError
from services.client.kafka_plane import KafkaPlane
from services.client.plane import NamespaceCommand, SnapshotRequest
from services.plane.machine.errors import StackError
from services.plane.stack.plane_file import read_plane_file
from services.plane.stack.process_names import HTTP_PROCESSES, PAGE, PAGE_PORT, SERVICES, STREAMING
from services.plane.stack.stack import Stack, running_client
from services.plane.stack.supervisor import DEFAULT_BASE_PORT
from tests import prometheus
from tests.typed_commands import CommandLine
from tests.waiting import eventually

pytestmark = [pytest.mark.broker, pytest.mark.spark, pytest.mark.timeout(600)]
PROMETHEUS_CONFIGURATION = Path(__file__).parents[2] / "deploy" / "prometheus" / "prometheus.yml"


@pytest.fixture
def stack(shared_stack: Stack) -> Stack:
    """One plane of two shards for all tests that leave it running."""
    return shared_stack


def execute(plane: KafkaPlane, shard: int, *commands: NamespaceCommand) -> list[BlockRun]:
    """Carry out commands; the blocks of those that are puts."""
    replies = [plane.answer(shard, number) for number in [plane.submit(shard, command) for command in commands]]
    assert [reply.error for reply in replies] == [""] * len(commands)
    return [reply.committed.blocks for reply in replies if reply.committed and reply.committed.blocks]


def request(plane: KafkaPlane, shard: int, asked: SnapshotRequest) -> None:
    reply = plane.request(shard, asked)
    assert (reply.error, reply.message) == ("", "")


def test_a_deletion_travels_in_each_shard(stack: Stack) -> None:
    with stack.client() as plane:
        for shard in range(2):
            volume = f"travels-{shard}"
            execute(
                plane, shard, CreateVolume(volume), CreateBucket(volume, "tree", BucketLayout.FILE_SYSTEM_OPTIMIZED)
            )
            blocks = execute(plane, shard, *(PutKey(volume, "tree", f"a/b/{number}", 1000) for number in range(6)))
            request(plane, shard, CreateSnapshot(volume, "tree", "held"))
            execute(plane, shard, *(DeleteKey(volume, "tree", f"a/b/{number}") for number in range(3)))
            request(plane, shard, Settle(f"first-{shard}"))
            assert plane.scm(shard).exist(blocks) == [True] * 6
            snapshot = plane.snapshots(shard).snapshot(volume, "tree", "held")
            assert (snapshot.exclusive_bytes, snapshot.referenced_bytes) == (3000, 6000)
            entries = plane.metadata(shard).entries(volume, "tree", snapshot_id=snapshot.snapshot_id)
            assert [entry.path for entry in entries if not entry.is_directory] == [f"a/b/{n}" for n in range(6)]
            request(plane, shard, DeleteSnapshot(volume, "tree", "held"))
            request(plane, shard, Settle(f"second-{shard}"))
            assert plane.scm(shard).exist(blocks) == [False] * 3 + [True] * 3
            execute(plane, shard, DeleteDirectory(volume, "tree", "a"))
            request(plane, shard, Settle(f"third-{shard}"))
            assert plane.scm(shard).exist(blocks) == [False] * 6
            space = plane.metadata(shard).space(volume, "tree")
            assert (space.live_bytes, space.deleted_bytes, space.freed_bytes) == (0, 0, 6000)
            with pytest.raises(PlaneError) as caught:
                plane.snapshots(shard).snapshot(volume, "tree", "held")
            assert caught.value.code == "SNAPSHOT_EXPIRED"


def test_a_second_plane_on_the_same_home_is_refused(stack: Stack) -> None:
    with pytest.raises(StackError, match=r"^A plane runs on .* already: stop it \(deepclean down\)"):
        Stack(stack.home).start()


def hold_a_port_behind_free_ones(holder: socket.socket) -> int:
    """Listen on a port before which two are free; says the first of these."""
    for first in range(20_000, 32_000, 3):  # below what systems hand out by themselves
        with socket.socket() as one, socket.socket() as other:
            try:
                one.bind(("127.0.0.1", first))
                other.bind(("127.0.0.1", first + 1))
                holder.bind(("127.0.0.1", first + 2))
            except OSError:
                continue
        holder.listen()
        return first
    pytest.fail("no three free ports in a row")


def test_a_port_in_use_is_one_sentence(tmp_path: Path) -> None:
    with socket.socket() as holder:
        port = hold_a_port_behind_free_ones(holder)
        with pytest.raises(StackError, match=rf"^Port {port + 2} on 127.0.0.1, which snapshots wants, cannot be used"):
            Stack(tmp_path, base_port=port).start()


def test_the_ports_in_the_configuration_of_prometheus_are_those_of_up() -> None:
    text = PROMETHEUS_CONFIGURATION.read_text()
    for number, name in enumerate(HTTP_PROCESSES, start=1):
        assert f'["127.0.0.1:{DEFAULT_BASE_PORT + number}"]\n        labels: {{process: {name}}}' in text
    assert f'["127.0.0.1:{DEFAULT_BASE_PORT + PAGE_PORT}"]\n        labels: {{process: {PAGE}}}' in text
    assert text.count("targets:") == len(HTTP_PROCESSES) + 1


def test_prometheus_scrapes_every_process(stack: Stack, tmp_path: Path) -> None:
    text = PROMETHEUS_CONFIGURATION.read_text().replace("scrape_interval: 5s", "scrape_interval: 1s")
    for number, name in enumerate(HTTP_PROCESSES, start=1):
        text = text.replace(f"127.0.0.1:{DEFAULT_BASE_PORT + number}", stack.url(name).removeprefix("http://"))
    shutil.copytree(PROMETHEUS_CONFIGURATION.parent, tmp_path / "prometheus")
    configuration = tmp_path / "prometheus" / "prometheus.yml"
    configuration.write_text(text)
    with prometheus.started(configuration, tmp_path) as (url, process):
        up = await_scrapes(url, process, len(HTTP_PROCESSES))
        assert up == dict.fromkeys(HTTP_PROCESSES, "1"), (tmp_path / "prometheus.log").read_text()
        applied = query(url, "sum by (process) (deepclean_messages_applied_total)")
        assert set(applied) == set(SERVICES)


def await_scrapes(address: str, process: subprocess.Popen[bytes], count: int) -> dict[str, str]:
    """Whether the last scrape of each process succeeded, once each was scraped (or some time has passed)."""
    deadline = time.monotonic() + 60
    up: dict[str, str] = {}
    while time.monotonic() < deadline and process.poll() is None:
        try:
            up = query(address, 'up{job="deepclean"}')  # this plane has no page
        except httpx.HTTPError:
            up = {}
        if list(up.values()).count("1") == count:
            break
        threading.Event().wait(0.1)
    return up


def query(address: str, expression: str) -> dict[str, str]:
    return {row["metric"]["process"]: row["value"][1] for row in prometheus.series(address, expression)}


@pytest.mark.long
def test_a_stop_ends_every_process_in_peace_and_a_start_goes_on(stack: Stack) -> None:
    """The last of the tests on the shared plane: it stops and starts it."""
    with stack.client() as plane:
        execute(plane, 1, CreateVolume("goes-on"), CreateBucket("goes-on", "flat", BucketLayout.OBJECT_STORE))
        blocks = execute(plane, 1, *(PutKey("goes-on", "flat", f"key-{number}", 10) for number in range(4)))
        request(plane, 1, CreateSnapshot("goes-on", "flat", "before"))
        execute(plane, 1, DeleteKey("goes-on", "flat", "key-0"), DeleteKey("goes-on", "flat", "key-1"))
        request(plane, 1, DeleteSnapshot("goes-on", "flat", "before"))  # and stop while its rows are on their way
    children = [stack.children[name] for name in (*SERVICES, STREAMING)]
    stack.stop()
    assert {child.name: child.exit_status for child in children} == {child.name: 0 for child in children}
    assert read_plane_file(stack.home) is None
    stack.start()
    with stack.client() as plane:
        execute(plane, 1, DeleteKey("goes-on", "flat", "key-2"))
        request(plane, 1, Settle("after-the-restart"))
        assert plane.scm(1).exist(blocks) == [False, False, False, True]
        assert [entry.path for entry in plane.metadata(1).entries("goes-on", "flat")] == ["key-3"]


@pytest.mark.long
def test_a_plane_that_stays_is_used_and_what_dies_is_started_again(tmp_path: Path) -> None:
    line = CommandLine(tmp_path / "home")
    try:
        assert "The plane runs on" in line.run("up", "--base-port", "0", "--shards", "2")
        assert line.run("up", "--base-port", "0", status=1).startswith("A plane runs on ")
        line.run("volume", "create", "vol1", "--shard", "1")
        line.run("bucket", "create", "vol1/tree")
        line.run("key", "put", "vol1/tree/a/key", "--size", "1000")
        assert [entry["path"] for entry in line.json("key", "list", "vol1/tree")] == ["a/key"]
        assert line.run("key", "delete", "vol1/tree/none", status=1).startswith("KEY_NOT_FOUND: ")
        status = line.json("status")
        assert {process["name"] for process in status["processes"]} == {"broker", PAGE, *HTTP_PROCESSES}
        assert status["state"] == "running"
        assert status["dead_letters"] == 0
        assert "MESSAGES/S" in line.run("status")
        pictures = line.run("top", "--count", "2", "--seconds", "0.2", "--json").splitlines()
        assert [json.loads(one)["plane"]["shards"] for one in pictures] == [2, 2]
        assert "The home has no backup." in line.run("doctor")
        assert "A DELETION'S WAY" in line.run("top", "--count", "1", "--seconds", "0.2")
        assert re.search(r"  metadata  +info +ready ", line.run("logs", "metadata"))
        for dying in (["snapshots", "broker"], [*SERVICES, PAGE, STREAMING]):
            kill_and_await_restart(line.home, dying)
            key = f"vol1/tree/after/{dying[0]}"
            line.run("key", "put", key, "--size", "1000")
            line.run("key", "delete", key)
            with running_client(line.home) as client:
                request(client, 1, Settle(dying[0]))
        restarts = {process["name"]: process["restarts"] for process in line.json("status")["processes"]}
        assert restarts.pop("broker") == restarts.pop("snapshots") - 1 == 1
        assert set(restarts.values()) <= {1, 2}, "Spark may end when its broker does"
        assert line.json("space", "vol1/tree")["freed_bytes"] == 2000
        plane = read_plane_file(line.home)
        assert plane is not None
        await_listed(plane.processes[PAGE].url, "tree", freed_bytes=2_000)
    finally:
        line.run("down")
    assert line.run("down").startswith("No plane runs on ")


def kill_and_await_restart(home: Path, names: list[str]) -> None:
    """Kill processes of a plane; see that they run again, that no other one was disturbed, and that all are ready."""
    before = read_plane_file(home)
    assert before is not None
    for name in names:
        before.processes[name].identity.send(signal.SIGKILL)

    def are_ready() -> bool:
        now = read_plane_file(home)
        assert now is not None
        for name, process in before.processes.items():
            is_same = now.processes[name].identity == process.identity
            assert is_same or name in names or name == STREAMING, f"{name} was disturbed"
            if name in names and is_same:
                return False
        return all(is_ready(one.url) for one in now.processes.values() if one.url)

    eventually(are_ready, 180)


def is_ready(url: str) -> bool:
    try:
        return httpx.get(f"{url}/readyz", trust_env=False).is_success
    except httpx.HTTPError:
        return False


@pytest.mark.long
def test_a_plane_in_the_foreground_ends_with_a_signal_and_an_orphaned_one_is_taken_down(tmp_path: Path) -> None:
    line = CommandLine(tmp_path / "home")
    with line.start("up", "--foreground", "--base-port", "0") as supervisor:
        try:
            await_running(line.home, supervisor)
            supervisor.send_signal(signal.SIGTERM)
            assert supervisor.wait(60) == 0
        finally:
            supervisor.kill()
    assert read_plane_file(line.home) is None
    with line.start("up", "--foreground", "--base-port", "0") as supervisor:
        try:
            await_running(line.home, supervisor)
            plane = read_plane_file(line.home)
            assert plane is not None
        finally:
            supervisor.kill()
    try:
        assert line.run("up", "--base-port", "0", status=1).startswith("Processes of an earlier plane on ")
        assert all(process.identity.is_alive() for process in plane.processes.values())
    finally:
        line.run("down")
    assert not any(process.identity.is_alive() for process in plane.processes.values())


def await_listed(page: str, bucket: str, freed_bytes: int) -> None:
    """Wait until a page lists one bucket with the bytes that were freed: it reads them every few seconds."""

    def is_listed() -> bool:
        listed = httpx.get(f"{page}/api/buckets", trust_env=False).json()["buckets"]
        return [(one["bucket"], one["states"]["freed"]["bytes"]) for one in listed] == [(bucket, str(freed_bytes))]

    eventually(is_listed)


def await_running(home: Path, supervisor: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + 300
    while time.monotonic() < deadline and supervisor.poll() is None:
        plane = read_plane_file(home)
        if plane is not None and plane.state == "running":
            return
        threading.Event().wait(0.1)
    pytest.fail(f"the plane does not run: {supervisor.stderr.read() if supervisor.stderr else ''}")
