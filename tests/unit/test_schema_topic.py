"""The topic of schemas: what is published is found, once, by whoever reads a message that names it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from schemas import published
from schemas.codec import DecodeError, codec, frame
from schemas.records import Settle, SnapshotInfo
from schemas.schema_files import Released, released_versions, resolved_schema
from schemas.topics import SCHEMAS, SNAPSHOTS_INFO, TOPICS
from services.domain.errors import InvariantError, RetryableError
from services.log.clock import VirtualClock
from services.log.memory import MemoryLog
from services.log.port import LogAround
from services.log.schema_topic import SchemaTopic, follow_schemas, versions_of

LATER = {**resolved_schema("Settle"), "fields": [*resolved_schema("Settle")["fields"], {"name": "x", "type": "int"}]}


def publish(log: MemoryLog, schema_id: int, schema: object = LATER) -> None:
    row = {"subject": "any-value", "version": 2, "id": schema_id, "schema": json.dumps(schema), "deleted": False}
    log.append(SCHEMAS, 0, json.dumps(row).encode(), b"%d" % schema_id)


NEWEST_OF_COMMANDS = released_versions("MetadataCommand")[-1].schema_id
VERSIONS = sum(len(versions_of(topic)) for topic in TOPICS)


def no_announcement(schema_id: int) -> None:
    assert schema_id == NEWEST_OF_COMMANDS, "only later schemas of commands are announced"


@pytest.fixture
def log() -> MemoryLog:
    return MemoryLog(VirtualClock())


def test_each_schema_is_published_once(log: MemoryLog) -> None:
    assert SchemaTopic(log).publish([SNAPSHOTS_INFO], no_announcement) == 1
    (row,) = log.records(SCHEMAS, 0)
    assert json.loads(row.key) == {"keytype": "SCHEMA", "subject": "snapshots.info-value", "version": 1, "magic": 1}
    value = json.loads(row.value)
    assert json.loads(value.pop("schema")) == resolved_schema(SnapshotInfo.__name__)
    schema_id = released_versions(SnapshotInfo.__name__)[0].schema_id
    assert value == {"subject": "snapshots.info-value", "version": 1, "id": schema_id, "deleted": False}
    assert SchemaTopic(log).publish(TOPICS, no_announcement) == VERSIONS - 1
    assert SchemaTopic(log).publish(TOPICS, no_announcement) == 0
    assert len({record.key for record in log.records(SCHEMAS, 0)}) == len(log.records(SCHEMAS, 0)) == VERSIONS


def test_a_row_that_was_removed_is_published_again_and_another_schema_in_its_place_is_refused(log: MemoryLog) -> None:
    SchemaTopic(log).publish([SNAPSHOTS_INFO], no_announcement)
    (row,) = log.records(SCHEMAS, 0)
    log.append(SCHEMAS, 0, b"", row.key)
    assert SchemaTopic(log).publish([SNAPSHOTS_INFO], no_announcement) == 1
    log.append(SCHEMAS, 0, json.dumps({"id": 7, "schema": json.dumps(LATER)}).encode(), row.key)
    with pytest.raises(InvariantError, match="another schema than this program has"):
        SchemaTopic(log).publish([SNAPSHOTS_INFO], no_announcement)


def test_a_program_does_not_write_before_its_schemas_are_published(
    log: MemoryLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    SchemaTopic(log).require([SNAPSHOTS_INFO])
    versions = [Released(1, resolved_schema("SnapshotInfo")), Released(2, LATER)]
    monkeypatch.setattr("services.log.schema_topic.released_versions", lambda _: versions)
    with pytest.raises(InvariantError, match="run deepclean upgrade prepare"):
        SchemaTopic(log).require([SNAPSHOTS_INFO])
    SchemaTopic(log).publish([SNAPSHOTS_INFO], no_announcement)
    SchemaTopic(log).require([SNAPSHOTS_INFO])


def test_a_topic_that_is_shorter_than_it_was_is_read_from_its_beginning(log: MemoryLog) -> None:
    topic = SchemaTopic(log)
    for schema_id in (1, 2):
        publish(log, schema_id)
    topic.read()
    log.partitions[SCHEMAS, 0].clear()
    topic.read()
    publish(log, 3)
    topic.read()
    assert set(published.known()) == {1, 2, 3}


def test_a_message_of_a_newer_program_is_read_once_its_schema_is_there(log: MemoryLog) -> None:
    follow_schemas(log)
    message = frame(77) + codec(Settle).encode(Settle("one")) + b"\x02"
    with pytest.raises(DecodeError, match="nobody has published"):
        codec(Settle).decode_message(message)
    publish(log, 77)
    assert codec(Settle).decode_message(message) == Settle("one")


def test_the_topic_is_read_on_from_where_it_was_read_to(log: MemoryLog) -> None:
    topic = SchemaTopic(log)
    for schema_id in (1, 2, 3):
        publish(log, schema_id)
        topic.read()
        assert set(published.known()) == set(range(1, schema_id + 1))
        log.trim(SCHEMAS, 0, schema_id - 1)  # as compaction may remove what was read
    SchemaTopic(log).read()


NO_SCHEMAS: list[Any] = [
    {"id": "7", "schema": json.dumps(LATER)},
    {"id": -1, "schema": json.dumps(LATER)},
    {"id": 2**32, "schema": json.dumps(LATER)},
    {"id": 7, "schema": "x"},
    {"id": 7, "schema": "{}"},
    {"id": 7, "schema": '"long"'},
    {"id": 7, "schema": json.dumps({**LATER, "fields": [{"name": "x", "type": "no such type"}]})},
    {"id": 7, "schema": "[" * 100_000},
]


@pytest.mark.parametrize("value", [b"", b"null", b"\xff", b"{}", *(json.dumps(row).encode() for row in NO_SCHEMAS)])
def test_what_is_no_schema_is_passed_over(log: MemoryLog, value: bytes) -> None:
    log.append(SCHEMAS, 0, value, b"any")
    SchemaTopic(log).read()
    assert not published.known()


def test_a_schema_that_was_published_stays(log: MemoryLog) -> None:
    """Ids are never used again: nobody can change how messages are read that are in the log."""
    publish(log, 5)
    publish(log, 5, resolved_schema("Settle"))
    SchemaTopic(log).read()
    assert published.known()[5] == LATER


class AwayLog(LogAround):
    """A log whose broker does not answer."""

    def end_offset(self, topic: str, partition: int) -> int:
        raise RetryableError(f"{topic} {partition}")


def test_a_broker_that_does_not_answer_is_an_error_to_be_retried(log: MemoryLog) -> None:
    follow_schemas(AwayLog(log))
    with pytest.raises(RetryableError):
        codec(Settle).decode_message(frame(88))
