"""The ledger on a real broker: read, verified, and exported by Spark, each row once whatever comes twice."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path

import pytest
from confluent_kafka import Producer
from pyspark.sql import SparkSession

from schemas.codec import codec, frame
from schemas.records import LedgerRows
from schemas.schema_files import released_schemas
from schemas.topics import LEDGER, METADATA_COMMANDS, METADATA_PROGRESS, METADATA_REPLIES, SCHEMAS
from services.client.tasks.ledger_reads import LedgerFilter, read_ledger
from services.domain.errors import InvariantError
from services.log.kafka import KafkaLog
from services.log.port import LogRecord
from services.plane.broker.embedded import EmbeddedBroker
from services.plane.broker.topics import create_topics
from services.plane.in_memory.plane import InMemoryPlane
from services.plane.upkeep.verification import replay_by_parts
from services.verifier.run import ByParts, replay_shard, verify_shard
from streaming.ledger_export.__main__ import (
    CHECKPOINT_DIRECTORY,
    MARKS_DIRECTORY,
    ROWS_DIRECTORY,
    UNREADABLE_DIRECTORY,
    Exported,
    export,
)
from streaming.verify.engine import SparkEngine
from streaming.verify.task_log import task_log
from tests.property.test_ledger import played, verified
from tests.spark_session import SPARK_MARKS, started_session

pytestmark = [*SPARK_MARKS, pytest.mark.broker, pytest.mark.timeout(300)]
SHARDS = 2
COPIED = (METADATA_COMMANDS.name, METADATA_PROGRESS.name, METADATA_REPLIES.name, LEDGER.name)


@pytest.fixture(scope="module")
def session() -> Iterator[SparkSession]:
    with started_session() as started:
        yield started


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with EmbeddedBroker(tmp_path_factory.mktemp("broker")) as started:
        # The times of the copied log, not those at which it is copied.
        kept = {"message.timestamp.type": "CreateTime", "retention.ms": "-1"}
        create_topics(started.bootstrap_servers, dict.fromkeys(COPIED, kept), SHARDS)
        create_topics(started.bootstrap_servers, {SCHEMAS: {}}, 1)
        yield started.bootstrap_servers


def _send(broker: str, topic: str, records: list[LogRecord]) -> None:
    producer = Producer({"bootstrap.servers": broker, "linger.ms": 5})
    for record in records:
        producer.produce(topic, record.value, partition=0, timestamp=record.timestamp_ms)
    assert producer.flush(30) == 0


@pytest.fixture(scope="module")
def plane(broker: str) -> InMemoryPlane:
    """A plane in memory whose log the broker has, too."""
    plane = played(0)
    for name in COPIED:
        _send(broker, name, plane.log.records(name, 0))
    return plane


def test_the_ledger_is_read_and_verified_over_a_broker(broker: str, plane: InMemoryPlane) -> None:
    log, expected = KafkaLog(broker, "deepclean.test"), verified(plane)
    deleted = expected.deleted_bytes_after or 0
    assert verify_shard(log, 0, lambda: deleted) == expected
    assert expected.rows
    assert list(read_ledger(log, 0, LedgerFilter())) == list(read_ledger(plane.log, 0, LedgerFilter()))
    assert list(read_ledger(log, 1, LedgerFilter())) == []


@pytest.mark.long
def test_a_log_is_verified_by_parts_on_spark(broker: str, plane: InMemoryPlane, session: SparkSession) -> None:
    log, why = KafkaLog(broker, "deepclean.test"), list[str]()
    engine = SparkEngine(session, log.end_offset(METADATA_COMMANDS.name, 0))
    engine.stretch_messages = 50
    by_parts = ByParts(engine, partial(task_log, broker), why.append)
    expected = replay_shard(plane.log, 0)
    assert replay_shard(log, 0, by_parts=by_parts) == expected
    assert expected.rows
    assert why == []
    assert engine.parts > 1


@pytest.mark.long
def test_the_verify_job_gives_the_report(broker: str, plane: InMemoryPlane, tmp_path: Path) -> None:
    said = list[str]()
    report = replay_by_parts(broker, tmp_path, 0, tmp_path, say_how=said.append)
    assert report == replay_shard(plane.log, 0)
    assert said[-1].endswith("ended, with 0 commands to correct")


def _exported(session: SparkSession, directory: Path) -> list[dict[str, int]]:
    rows = session.read.parquet(str(directory / ROWS_DIRECTORY)).drop("batch").collect()
    return [row.asDict() for row in rows]


def test_each_row_is_exported_once(broker: str, plane: InMemoryPlane, session: SparkSession, tmp_path: Path) -> None:
    directory = tmp_path / "exported"
    listed = [asdict(row) for _, row in read_ledger(plane.log, 0, LedgerFilter())]
    expected = [{"shard": 0, **row.pop("claim"), **row} for row in listed]
    assert export(session, broker, directory, 2) == Exported(len(expected), 0)
    found = _exported(session, directory)
    key = sorted(expected[0])
    assert sorted([row[name] for name in key] for row in found) == sorted(
        [row[name] for name in key] for row in expected
    )
    assert export(session, broker, directory, 2) == Exported(0, 0), "there is nothing new"
    records = plane.log.records(LEDGER.name, 0)
    newest = codec(LedgerRows).decode_message(records[-1].value)
    following = replace(newest, finish_txn=newest.finish_txn + 1)
    new = records[-1]._replace(value=codec(LedgerRows).encode_message(following))
    _send(broker, LEDGER.name, [*records, new, new, *records])
    rows_of_new = len(following.claim_places)
    assert export(session, broker, directory, 2) == Exported(rows_of_new, 0), "what comes again counts once"
    assert len(_exported(session, directory)) == len(expected) + rows_of_new
    (mark,) = {file.name for file in (directory / MARKS_DIRECTORY).iterdir()} - _older(directory)
    assert mark.endswith(".json")


def _sorted(rows: list[dict[str, int]]) -> list[list[tuple[str, int]]]:
    return sorted(sorted(row.items()) for row in rows)


def _older(directory: Path) -> set[str]:
    files = sorted((directory / MARKS_DIRECTORY).iterdir(), key=lambda file: int(file.stem))
    return {file.name for file in files[:-1]}


def test_what_was_exported_without_its_checkpoint_is_refused(
    broker: str, plane: InMemoryPlane, session: SparkSession, tmp_path: Path
) -> None:
    assert plane.log.records(LEDGER.name, 0)
    directory = tmp_path / "exported"
    export(session, broker, directory)
    (directory / CHECKPOINT_DIRECTORY).rename(tmp_path / "elsewhere")
    with pytest.raises(InvariantError, match="has rows and no checkpoint"):
        export(session, broker, directory)


LATER_ID = 9_000


def _publish_a_later_schema(broker: str, schema_id: int = LATER_ID) -> None:
    """As a newer metadata does it at its start: a schema with a field more."""
    (released,) = released_schemas(LedgerRows.__name__)
    note = {"name": "note", "type": "long", "default": 0, "doc": "None yet."}
    later = json.dumps({**released, "fields": [*released["fields"], note]})
    sink = KafkaLog(broker, "newer").open_sink()
    sink.send(
        SCHEMAS,
        0,
        json.dumps({"subject": "gc.ledger-value", "id": schema_id, "schema": later}).encode(),
        b"%d" % schema_id,
    )
    sink.flush()
    sink.close()


def test_every_published_schema_is_exported_and_others_are_dead_lettered(
    broker: str, plane: InMemoryPlane, session: SparkSession, tmp_path: Path
) -> None:
    """What cannot be read stops nothing: whatever is behind it is exported in the same run."""
    directory = tmp_path / "exported"
    export(session, broker, directory)
    record = plane.log.records(LEDGER.name, 0)[-1]
    newest = codec(LedgerRows).decode_message(record.value)
    first = newest.finish_txn + 1_000
    following = [replace(newest, finish_txn=first + number) for number in range(4)]
    encoded = [codec(LedgerRows).encode_message(one) for one in following]
    _publish_a_later_schema(broker)
    beyond = replace(following[2], claim_places=tuple(len(newest.claims) for _ in newest.claim_places))
    shorter = replace(following[2], claim_places=newest.claim_places[1:])
    bad = [
        record._replace(value=b"none"),
        record._replace(value=encoded[2] + b"\0"),
        record._replace(value=codec(LedgerRows).encode_message(beyond)),
        record._replace(value=codec(LedgerRows).encode_message(shorter)),
    ]
    good = [
        record._replace(value=encoded[0]),
        record._replace(value=frame(LATER_ID) + encoded[1][5:] + b"\x0e"),
        record._replace(value=encoded[3]),
    ]
    before = len(_exported(session, directory))
    _send(broker, LEDGER.name, [bad[0], good[0], *bad[1:], good[1], good[2]])
    rows = 3 * len(newest.claim_places)
    assert export(session, broker, directory) == Exported(rows, len(bad))
    new = {row["finish_txn"] for row in _exported(session, directory)} - set(range(first))
    assert new == {first, first + 1, first + 3}
    assert len(_exported(session, directory)) == before + rows
    dead_letters = session.read.parquet(str(directory / UNREADABLE_DIRECTORY)).orderBy("offset").collect()
    assert [(row["error"], bytes(row["value"])) for row in dead_letters] == [
        ("DecodeError" if number < 2 else "ColumnsError", one.value) for number, one in enumerate(bad)
    ]


def test_a_message_whose_schema_is_not_published_ends_the_export_and_nothing_is_passed_over(
    broker: str, plane: InMemoryPlane, session: SparkSession, tmp_path: Path
) -> None:
    """It is the last test: the others would find what it sends."""
    directory = tmp_path / "exported"
    export(session, broker, directory)
    record = plane.log.records(LEDGER.name, 0)[-1]
    newest = codec(LedgerRows).decode_message(record.value)
    following = [replace(newest, finish_txn=newest.finish_txn + 2_000 + number) for number in range(2)]
    first, second = (codec(LedgerRows).encode_message(one) for one in following)
    later = frame(LATER_ID + 1) + second[5:] + b"\x0e"
    _send(broker, LEDGER.name, [record._replace(value=first), record._replace(value=later)])
    for _ in range(2):
        with pytest.raises(
            InvariantError, match=rf"^Message \d+ of shard 0 .* schema {LATER_ID + 1}, .*upgrade prepare"
        ):
            export(session, broker, directory)
    _publish_a_later_schema(broker, LATER_ID + 1)
    assert export(session, broker, directory) == Exported(2 * len(newest.claim_places), 0)
