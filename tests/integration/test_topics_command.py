"""``deepclean topics`` on a cluster of three brokers, and a service on a topic that would lose messages."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from schemas.topics import DELETED_ENTRIES, METADATA_COMMANDS, SCHEMAS
from services.domain.errors import InvariantError
from services.domain.topic_rules import Replicas, TopicFlaw
from services.plane.broker.topic_care import check_topics, mend_settings
from services.plane.broker.topics import create_plane_topics, create_topics, wanted_topics
from streaming.reclaiming.checkpoint import LocalCheckpoint
from streaming.reclaiming.inputs import check_inputs
from tests.broker_cluster import BrokerCluster

pytestmark = [pytest.mark.broker, pytest.mark.timeout(300), pytest.mark.long]
SHARDS = 3


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    cluster = BrokerCluster(tmp_path_factory.mktemp("cluster"), 3).start()
    yield cluster.bootstrap_servers
    cluster.stop()


def topics(servers: str, home: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "services.cli.main", "--home", str(home), "topics", *words]
    return subprocess.run(
        [*command, "--bootstrap-servers", servers, "--shards", str(SHARDS)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def spoil(servers: str, topic: str, **settings: str) -> None:
    named = {name.replace("_", "."): value for name, value in settings.items()}
    mend_settings(servers, None, [TopicFlaw(topic, "", named)])


def test_topics_are_made_judged_and_mended(servers: str, tmp_path: Path) -> None:
    missing = topics(servers, tmp_path, "check")
    assert missing.returncode == 1
    assert missing.stdout.count("it is missing") == len(wanted_topics(SHARDS))
    create_topics(servers, {METADATA_COMMANDS.name: {"retention.ms": "604800000"}}, 1, replicas=Replicas(1, 1))
    made = topics(servers, tmp_path, "ensure")
    assert f"mended: {METADATA_COMMANDS.name}: retention.ms is 604800000 instead of -1" in made.stdout
    assert f"mended: {METADATA_COMMANDS.name}: 1 partitions instead of 3" in made.stdout
    assert made.stdout.count("created: ") == len(wanted_topics(SHARDS)) - 1
    assert made.returncode == 1, "the number of replicas is for an operator"
    assert [flaw.topic for flaw in check_topics(servers, None, SHARDS, Replicas(3, 2))] == [METADATA_COMMANDS.name]
    good = topics(servers, tmp_path, "check", "--replication-factor", "1", "--min-insync-replicas", "1")
    assert (good.returncode, good.stderr) == (0, "")
    spoil(servers, SCHEMAS, cleanup_policy="delete")
    spoil(servers, DELETED_ENTRIES.name, retention_bytes="1000", message_timestamp_type="CreateTime")
    found = topics(servers, tmp_path, "check", "--replication-factor", "1", "--json").stdout
    assert all(name in found for name in ("cleanup.policy", "retention.bytes", "message.timestamp.type"))
    again = topics(servers, tmp_path, "ensure", "--replication-factor", "1", "--min-insync-replicas", "1")
    assert (again.returncode, again.stdout.count("mended: ")) == (0, 3)


def test_more_replicas_than_brokers_and_a_silent_cluster_are_one_sentence(servers: str, tmp_path: Path) -> None:
    refused = topics(servers, tmp_path, "ensure", "--replication-factor", "4")
    assert (refused.returncode, refused.stderr) == (1, f"{servers} has 3 brokers, too few for 4 replicas.\n")
    never = topics(servers, tmp_path, "check", "--replication-factor", "2", "--min-insync-replicas", "3")
    assert never.stderr == "3 of 2 replicas can never have a message: set --min-insync-replicas lower.\n"


@pytest.mark.parametrize("service", ["metadata", "snapshots"])
def test_a_service_refuses_to_start_on_a_topic_that_would_lose_messages(
    bootstrap_servers: str, tmp_path: Path, service: str
) -> None:
    create_plane_topics(bootstrap_servers, 2)
    topic = {"metadata": METADATA_COMMANDS.name, "snapshots": "snapshots.changelog"}[service]
    spoil(bootstrap_servers, topic, retention_ms="60000")
    try:
        environment = {"DEEPCLEAN_DIRECTORY": str(tmp_path), "DEEPCLEAN_BOOTSTRAP_SERVERS": bootstrap_servers}
        ran = subprocess.run(
            [sys.executable, "-m", f"services.{service}"],
            env={**os.environ, **environment},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
    finally:
        spoil(bootstrap_servers, topic, retention_ms="-1")
    assert ran.returncode == 1
    sentence = f"topic {topic} has retention.ms=60000 and would lose messages: set retention.ms=-1"
    assert sentence in ran.stderr


def test_the_spark_job_refuses_such_a_topic_too(bootstrap_servers: str, tmp_path: Path) -> None:
    create_plane_topics(bootstrap_servers, 2)
    spoil(bootstrap_servers, DELETED_ENTRIES.name, cleanup_policy="compact")
    try:
        with pytest.raises(InvariantError, match=r"^Topic gc.deleted-entries has cleanup.policy=compact and"):
            check_inputs(bootstrap_servers, 2, LocalCheckpoint(tmp_path))
    finally:
        spoil(bootstrap_servers, DELETED_ENTRIES.name, cleanup_policy="delete")
    check_inputs(bootstrap_servers, 2, LocalCheckpoint(tmp_path))
