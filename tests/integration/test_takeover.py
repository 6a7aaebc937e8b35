"""Two hosts share the shards of a plane: what one of them runs goes on on the other one when it is gone."""

from __future__ import annotations

import contextlib
import json
import os
import signal
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest

from schemas.records import (
    BucketLayout,
    CollectionState,
    CreateBucket,
    CreateSnapshot,
    CreateVolume,
    DeleteKey,
    DeleteSnapshot,
    PutKey,
    SetCollection,
    Settle,
)
from schemas.topics import DELETED_ENTRIES, METADATA_COMMANDS, SNAPSHOTS_COMMANDS
from services.client.kafka_plane import KafkaPlane
from services.log.kafka import KafkaLog
from services.log.owner_topic import OwnerTopic
from services.plane.machine.processes import ChildProcess
from services.plane.stack.description import read_description
from services.plane.stack.plane_file import running_plane
from services.plane.stack.process_names import SERVICES
from services.plane.stack.stack import Stack
from services.plane.upkeep.backups import (
    backups_directory,
    backups_of,
    known_backups,
    make_backup,
    missing_from,
)
from services.plane.upkeep.log_trims import planned_trims
from services.plane.upkeep.metrics_page import samples
from services.plane.upkeep.observed import observe_plane
from services.plane.upkeep.upgrades import upgrade_status
from services.runtime.copies.restores import RESTORED
from tests.broker_cluster import BrokerCluster
from tests.waiting import eventually

pytestmark = [pytest.mark.broker, pytest.mark.spark, pytest.mark.timeout(600), pytest.mark.long]
SHARDS = 4


def host(
    directory: Path, servers: str, name: str, processes: tuple[str, ...], *, shares_backups: bool = False
) -> Stack:
    """A host that shares the shards, as its file says."""
    backups = f'backups = "{directory / "backups"}"\n' if shares_backups else ""
    named = ", ".join(f'"{one}"' for one in processes)
    file = directory / f"{name}.toml"
    file.write_text(
        f'shards = {SHARDS}\n[kafka]\nbootstrap_servers = "{servers}"\n'
        f'[host]\ninstance = "{name}"\nprocesses = [{named}]\n{backups}[settings.all]\nlog_level = "info"\n'
        f"[settings.key_deletion]\nundo_window_ms = 0\n[settings.directory_deletion]\nundo_window_ms = 0\n"
    )
    described = read_description(file)
    return Stack(directory / name, described.shards, described=described)


@pytest.fixture
def hosts(tmp_path: Path) -> Iterator[tuple[Stack, Stack]]:
    """Two hosts with all services, of which the first one runs the Spark job, too."""
    cluster = BrokerCluster(tmp_path / "brokers", 3).start()
    try:
        servers = cluster.bootstrap_servers
        with (
            host(tmp_path, servers, "one", (*SERVICES, "streaming")) as one,
            host(tmp_path, servers, "two", SERVICES) as two,
        ):
            yield one, two
    finally:
        cluster.stop()


class Owners:
    """Which host owns which shard, as clients see it."""

    def __init__(self, stack: Stack) -> None:
        self._topic = OwnerTopic(KafkaLog(stack.address.bootstrap_servers, "test"))

    def of(self, service: str) -> list[str]:
        self._topic.read()
        return [self._topic.url(service, shard) for shard in range(SHARDS)]

    def await_shared(self, hosts: tuple[Stack, Stack]) -> None:
        """Wait until each host owns shards of each service."""
        for service in SERVICES:
            urls = {one.url(service) for one in hosts}
            eventually(partial(self._is_shared, service, urls), otherwise=f"{service} is not shared")

    def _is_shared(self, service: str, urls: set[str]) -> bool:
        return set(self.of(service)) == urls


def test_the_shards_of_a_host_that_is_gone_go_on_on_the_other(hosts: tuple[Stack, Stack]) -> None:
    one, two = hosts
    owners = Owners(one)
    owners.await_shared(hosts)
    with one.client() as plane:
        for shard in range(SHARDS):
            _write(plane, shard, "before")
    followed = {shard for shard, url in enumerate(owners.of("metadata")) if url == one.url("metadata")}
    eventually(lambda: _caught_up_standbys(two) == followed, otherwise="metadata of the other host does not follow")
    _see_the_whole_plane(one, two)
    _back_up_and_plan_trims(one, two)
    _kill(one.children[name] for name in SERVICES)
    with two.client() as plane:
        for shard in range(SHARDS):
            _write(plane, shard, "after")
            _delete_and_settle(plane, shard)
    for service in SERVICES:
        assert set(owners.of(service)) == {two.url(service)}


def _see_the_whole_plane(one: Stack, two: Stack) -> None:
    """Each host tells of the processes of both, and of all shards."""
    places = [(shard, f"volume-{shard}") for shard in range(SHARDS)]
    with two.client() as plane:
        for state in (CollectionState.PAUSED, CollectionState.RUNNING):
            for shard, volume in places:
                answer = plane.answer(shard, plane.submit(shard, SetCollection(volume, "bucket", state, "seen")))
                assert answer.error == ""
            is_paused = state is CollectionState.PAUSED
            for host, other in ((one, two), (two, one)):
                seen = observe_plane(running_plane(host.home), 0.1)
                elsewhere = {(process.name, process.url) for process in seen.processes if not process.is_here}
                assert elsewhere == {(service, other.url(service)) for service in SERVICES}
                assert all(process.is_answering for process in seen.processes if process.name in SERVICES)
                programs = upgrade_status(running_plane(host.home))
                asked = Counter((part.name, part.url) for part in programs.parts if part.name in SERVICES)
                assert asked == Counter((service, at.url(service)) for service in SERVICES for at in (one, two))
                assert set(programs.shard_levels) == set(range(SHARDS))
                suspended = [(shard.shard, shard.bucket) for shard in seen.suspended_collections or ()]
                assert suspended == ([(shard, f"{volume}/bucket") for shard, volume in places] if is_paused else [])


def _back_up_and_plan_trims(one: Stack, two: Stack) -> None:
    """Make a backup on each host, of the shards that it owns. What a host may have to read is kept."""
    kept = [make_backup(running_plane(host.home), backups_directory(host.home)) for host in (one, two)]
    copied = Counter((copy.service, copy.shard) for backup in kept for copy in backup.copies)
    assert copied == Counter((service, shard) for service in SERVICES for shard in range(SHARDS))
    assert all(0 < len(backup.copies) < len(copied) for backup in kept)
    for host in (one, two):
        plane = running_plane(host.home)
        trims = planned_trims(plane, KafkaLog(plane.bootstrap_servers, "test"), kept)
        assert {trim.topic for trim in trims if trim.messages} <= {DELETED_ENTRIES.name}
        pins = {trim.pinned_by for trim in trims if trim.topic == METADATA_COMMANDS.name}
        assert pins == {"metadata of another host, which may gain the shard and has no backup to begin with"}


def test_a_host_without_databases_begins_with_the_backups_that_the_hosts_share(tmp_path: Path) -> None:
    cluster = BrokerCluster(tmp_path / "brokers", 3).start()
    with contextlib.ExitStack() as running:
        running.callback(cluster.stop)
        servers = cluster.bootstrap_servers
        one = running.enter_context(host(tmp_path, servers, "one", SERVICES, shares_backups=True))
        kept: list[str] = []
        with one.client() as plane:
            for shard in range(SHARDS):
                _write(plane, shard, "before")
                kept.append(plane.request(shard, CreateSnapshot(f"volume-{shard}", "bucket", "kept")).snapshot_id)
            _back_up_and_trim(one)
            for shard in range(SHARDS):
                _write(plane, shard, "later")
        two = running.enter_context(host(tmp_path, servers, "two", SERVICES, shares_backups=True))
        owners = Owners(one)
        owners.await_shared((one, two))
        _kill(one.children[name] for name in SERVICES)
        with two.client() as plane:
            for shard in range(SHARDS):
                _write(plane, shard, "after")
                assert _paths(plane, shard) == {"before", "later", "after"}
                assert _paths(plane, shard, kept[shard]) == {"before"}
                assert plane.request(shard, CreateSnapshot(f"volume-{shard}", "bucket", "newer")).error == ""
        for service in SERVICES:
            assert set(owners.of(service)) == {two.url(service)}
            restored = [line["shard"] for line in _said(two.children[service]) if line["event"] == RESTORED]
            assert sorted(restored) == [*range(SHARDS)], service


def _back_up_and_trim(only: Stack) -> None:
    """Make a backup of all shards, and trim what it does not need: no shard can begin with the log alone after that."""
    plane = running_plane(only.home)
    assert missing_from(make_backup(plane, backups_of(plane))) == []
    log = KafkaLog(plane.bootstrap_servers, "test")
    for trim in planned_trims(plane, log, known_backups(plane)):
        log.trim(trim.topic, trim.shard, trim.until)
    for topic in (METADATA_COMMANDS, SNAPSHOTS_COMMANDS):
        assert all(log.first_offset(topic.name, shard) for shard in range(SHARDS)), topic.name


def _paths(plane: KafkaPlane, shard: int, snapshot_id: str = "") -> set[str]:
    listed = plane.metadata(shard).entries(f"volume-{shard}", "bucket", snapshot_id=snapshot_id)
    return {entry.path for entry in listed}


def test_an_owner_that_wakes_up_publishes_nothing(hosts: tuple[Stack, Stack]) -> None:
    one, two = hosts
    owners = Owners(one)
    owners.await_shared(hosts)
    shard = owners.of("metadata").index(one.url("metadata"))
    with one.client() as plane:
        _write(plane, shard, "before")
    paused = one.children["metadata"]
    assert paused.identity is not None
    os.killpg(paused.identity.pid, signal.SIGSTOP)
    try:
        with two.client() as plane:
            _write(plane, shard, "after")
    finally:
        os.killpg(paused.identity.pid, signal.SIGCONT)
    eventually(lambda: not paused.is_running or _has_given_up(paused, shard), otherwise="the former owner goes on")
    with two.client() as plane:
        _write(plane, shard, "later")
        names = {entry.path for entry in plane.metadata(shard).entries(f"volume-{shard}", "bucket")}
    assert names == {"before", "after", "later"}


def _has_given_up(child: ChildProcess, shard: int) -> bool:
    """Whether a process has heard from the group that it does not own a shard, before it has published anything."""
    return any(line["event"] == "lost" and line["shard"] == shard for line in _said(child))


def _said(child: ChildProcess) -> list[dict[str, Any]]:
    """Return what a process has logged."""
    found = [json.loads(line) for line in child.log_file.read_text().splitlines() if line.startswith("{")]
    return [line for line in found if "event" in line]


def _caught_up_standbys(stack: Stack) -> set[int]:
    """The shards that metadata of a host follows, and is not behind in."""
    with httpx.Client() as http:
        found = samples(http, stack.url("metadata"))
    return {int(one.labels["shard"]) for one in found if one.name == "deepclean_standby_lag_messages" and not one.value}


def _kill(children: Iterator[ChildProcess]) -> None:
    for child in children:
        assert child.identity is not None
        os.killpg(child.identity.pid, signal.SIGKILL)


def _write(plane: KafkaPlane, shard: int, key: str) -> None:
    """Put a key, and read it back where its shard is by now."""
    volume = f"volume-{shard}"
    if key == "before":
        for command in (CreateVolume(volume), CreateBucket(volume, "bucket", BucketLayout.OBJECT_STORE)):
            assert plane.answer(shard, plane.submit(shard, command)).error == ""
    assert plane.answer(shard, plane.submit(shard, PutKey(volume, "bucket", key, 1_000))).error == ""
    assert key in {entry.path for entry in plane.metadata(shard).entries(volume, "bucket")}


def _delete_and_settle(plane: KafkaPlane, shard: int) -> None:
    volume = f"volume-{shard}"
    assert plane.request(shard, CreateSnapshot(volume, "bucket", "kept")).error == ""
    assert plane.answer(shard, plane.submit(shard, DeleteKey(volume, "bucket", "before"))).error == ""
    assert plane.request(shard, DeleteSnapshot(volume, "bucket", "kept")).error == ""
    assert plane.request(shard, Settle(volume)).error == ""
    assert plane.metadata(shard).space(volume, "bucket").freed_bytes == 1_000
