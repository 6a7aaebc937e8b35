"""A plane that two hosts share, each with its own file, over brokers that neither of them runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest

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
from schemas.topics import DELETED_ENTRIES, METADATA_COMMANDS, PURGE_KEYS
from services.domain.topic_rules import Replicas
from services.log.kafka import KafkaLog
from services.plane.broker.topic_care import check_topics
from services.plane.machine.ports import free_ports
from services.plane.stack.description import read_description
from services.plane.stack.plane_file import read_plane_file, running_plane
from services.plane.stack.process_names import PAGE, STREAMING
from services.plane.stack.stack import Stack, running_client
from services.plane.upkeep.backups import backups_directory, make_backup, missing_from
from services.plane.upkeep.log_trims import planned_trims
from services.plane.upkeep.trimming import Trim
from services.plane.upkeep.upgrades import upgrade_status
from services.runtime.copies.manifests import Backup
from tests.broker_cluster import BrokerCluster
from tests.waiting import eventually

pytestmark = [pytest.mark.broker, pytest.mark.spark, pytest.mark.timeout(600), pytest.mark.long]
SHARDS = 2
FIRST = ("metadata", "mock_scm")
SECOND = ("snapshots", "key_deletion", "directory_deletion", "streaming")


def described_host(file: Path, servers: str, own: dict[str, int], others: dict[str, int]) -> Path:
    """Write the file of a host."""
    named = ", ".join(f'"{name}"' for name in own)
    elsewhere = "\n".join(f'{name} = "127.0.0.1:{port}"' for name, port in others.items())
    file.write_text(
        f'shards = {SHARDS}\n[kafka]\nbootstrap_servers = "{servers}"\n[host]\nprocesses = [{named}]\n'
        f'[elsewhere]\n{elsewhere}\n[settings.all]\nlog_level = "warning"\n'
    )
    return file


class Host(Stack):
    """What one file says; its ports are chosen before, since the other file has them."""

    def __init__(self, home: Path, file: Path, ports: dict[str, int], *, has_page: bool = False) -> None:
        described = read_description(file)
        super().__init__(home, described.shards, described=described, has_page=has_page)
        self._ports = ports

    def _choose_ports(self) -> dict[str, int]:
        return self._ports


def test_two_hosts_share_a_plane_on_a_cluster_that_is_there(tmp_path: Path) -> None:
    ports = dict(zip((*FIRST, *SECOND, PAGE), free_ports(len(FIRST + SECOND) + 1), strict=True))
    mine, others = ({name: ports[name] for name in names} for names in (FIRST, SECOND))
    cluster = BrokerCluster(tmp_path / "brokers", 3).start()
    try:
        servers = cluster.bootstrap_servers
        one = Host(tmp_path / "one", described_host(tmp_path / "one.toml", servers, mine, others), mine)
        two = Host(tmp_path / "two", described_host(tmp_path / "two.toml", servers, others, mine), others)
        with one, two:
            assert check_topics(servers, None, SHARDS, Replicas(3, 2)) == []
            assert set(one.children) == set(FIRST)
            assert set(two.children) == set(SECOND)
            _delete_and_settle(one)
            _delete_and_settle(two)
            with running_client(two.home) as plane:
                assert plane.scm(1).totals().inventory_blocks == 0
            for host in (one, two):
                programs = upgrade_status(running_plane(host.home))
                assert {part.name for part in programs.parts} == {*FIRST, *SECOND}
                assert set(programs.shard_levels) == set(range(SHARDS))
            _back_up_and_plan_trims(one, two)
            commands_only = described_host(tmp_path / "three.toml", servers, {}, {**mine, **others})
            with Host(tmp_path / "three", commands_only, {PAGE: ports[PAGE]}, has_page=True):
                _see_all(ports[PAGE])
        assert read_plane_file(one.home) is None
        assert cluster.is_running, "the plane does not stop what it has not started"
    finally:
        cluster.stop()


def _delete_and_settle(host: Host) -> None:
    """Let a deletion travel through all services, asked by a client of this host."""
    name = f"of-{host.home.name}"
    with host.client() as plane:
        for command in (
            CreateVolume(name),
            CreateBucket(name, "tree", BucketLayout.FILE_SYSTEM_OPTIMIZED),
            PutKey(name, "tree", "a/key", 1_000),
        ):
            assert plane.answer(1, plane.submit(1, command)).error == "", METADATA_COMMANDS.name
        assert plane.request(1, CreateSnapshot(name, "tree", "kept")).error == ""
        assert plane.answer(1, plane.submit(1, DeleteKey(name, "tree", "a/key"))).error == ""
        assert plane.request(1, DeleteSnapshot(name, "tree", "kept")).error == ""
        assert plane.request(1, Settle(name)).error == ""
        assert plane.metadata(1).space(name, "tree").freed_bytes == 1_000


def _back_up_and_plan_trims(one: Host, two: Host) -> None:
    """Make a backup on each host; then the first one knows what may be trimmed, though Spark runs on the other."""
    kept = [make_backup(running_plane(host.home), backups_directory(host.home)) for host in (one, two)]
    assert [{copy.service for copy in backup.copies} for backup in kept] == [set(FIRST), set(SECOND) - {STREAMING}]
    assert {service for service, _ in missing_from(kept[0])} == set(SECOND) - {STREAMING}
    log = KafkaLog(running_plane(one.home).bootstrap_servers, "test")

    def of_shard_1(*backups: Backup) -> dict[str, Trim]:
        return {trim.topic: trim for trim in planned_trims(running_plane(one.home), log, [*backups]) if trim.shard == 1}

    judged = log.end_offset(DELETED_ENTRIES.name, 1)
    eventually(lambda: of_shard_1(*kept)[DELETED_ENTRIES.name].until == judged, otherwise="Spark's position is unknown")
    assert of_shard_1(*kept)[METADATA_COMMANDS.name].messages > 0
    assert of_shard_1(kept[0])[PURGE_KEYS.name].pinned_by == "no backup of key_deletion"
    assert of_shard_1(*kept)[PURGE_KEYS.name].messages > 0


def _see_all(port: int) -> None:
    """Look at the page of a host that runs no process of the plane itself. It gives large numbers as text."""

    def ask(path: str) -> Any:
        with urlopen(f"http://127.0.0.1:{port}/api/{path}", timeout=30) as answer:
            return json.load(answer)

    eventually(lambda: "processes" in ask("plane"), otherwise="the page does not see the plane")
    seen = ask("plane")
    assert {one["name"] for one in seen["processes"] if one["is_answering"]} >= {*FIRST, *SECOND}
    assert all(station["is_answering"] for station in seen["stations"])
    assert [(row["volume"], row["states"]["freed"]["bytes"]) for row in ask("buckets")["buckets"]] == [
        ("of-one", "1000"),
        ("of-two", "1000"),
    ]
