"""Commands by later schemas: applied behind their announcement in the log, dead-lettered before it."""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import Any

import fastavro
import pytest

from schemas import published
from schemas.codec import codec, frame, schema_id_of
from schemas.records import AnnounceSchema, CreateVolume, MetadataCommand, ShardState
from schemas.schema_files import Released, released_versions, resolved_schema
from schemas.signatures import is_signed_with
from schemas.topics import DEAD_LETTERS, METADATA_COMMANDS
from services.domain.errors import InvalidMessageError, RetryableError
from services.log.memory import MemoryLog
from services.log.schema_topic import SchemaTopic
from services.log.signing import Signer, announcement
from services.metadata.reads.queries import shard_state
from services.metadata.service import MetadataService
from services.metadata.state.tables import CHECKPOINTED
from services.runtime.loop.runner import Runner
from services.storage.memory import MemoryStore
from services.storage.tables import TablesReader
from tests.unit.test_metadata import Shard

COMMANDS = codec(MetadataCommand)
LATER_ID, LATEST_ID = 0x6463F001, 0x6463F002
FIRST: dict[str, Any] = resolved_schema("MetadataCommand")
LATER = {**FIRST, "fields": [{"name": "later", "type": "long", "default": 0}, *FIRST["fields"]]}


@pytest.fixture(autouse=True)
def forgotten() -> Iterator[None]:
    """The codec is the same for all tests, and keeps what it has looked up."""
    yield
    for schema_id in (LATER_ID, LATEST_ID):
        COMMANDS._writers.pop(schema_id, None)


@pytest.fixture
def shard() -> Shard:
    return Shard()


def later_message(volume: str, schema_id: int = LATER_ID) -> bytes:
    """The message of a command that creates a volume, as a later program writes it."""
    target = io.BytesIO()
    body = ("deepclean.CreateVolume", {"volume": volume, "owner": "", "mode": 0})
    command = {"shard": 0, "client_id": "", "number": 0, "body": body, "wants_reply": False}
    fastavro.schemaless_writer(target, fastavro.parse_schema(LATER), command)
    return frame(schema_id) + target.getvalue()


def send(shard: Shard, message: bytes) -> None:
    shard.log.append(METADATA_COMMANDS.name, 0, message)
    shard.runner.step()


def letters(shard: Shard) -> list[tuple[int, str]]:
    """The offset of each dead letter and its error."""
    return [(letter.offset, letter.error) for letter in shard.sent(DEAD_LETTERS)]


def rebuilt(shard: Shard) -> tuple[ShardState, list[int]]:
    """The state of a shard that is built again from its log, and the offsets of its dead letters."""
    log, store = MemoryLog(shard.clock), MemoryStore(CHECKPOINTED)
    for record in shard.log.records(METADATA_COMMANDS.name, 0):
        log.append(record.topic, 0, record.value)
    runner = Runner(MetadataService(), 0, store, log, shard.clock)
    while runner.step():
        pass
    decode = codec(DEAD_LETTERS.record).decode_message
    dead_offsets = [decode(record.value).offset for record in log.records(DEAD_LETTERS.name, 0)]
    return shard_state(TablesReader(store)), dead_offsets


def test_a_command_is_applied_behind_its_announcement_alone_also_in_a_rebuild(shard: Shard) -> None:
    send(shard, later_message("before-all"))
    published.learn(LATER_ID, LATER)
    send(shard, later_message("before-announced"))
    assert [error for _, error in letters(shard)] == ["DecodeError", InvalidMessageError.__name__]
    send(shard, announcement(LATER_ID, 0, None, 1))
    send(shard, later_message("behind"))
    published.learn(LATEST_ID, LATER)
    send(shard, later_message("beyond", LATEST_ID))
    assert len(letters(shard)) == 3
    assert [shard.refusal(CreateVolume(name)) for name in ("before-all", "before-announced", "behind", "beyond")] == [
        *("", ""),
        "VOLUME_ALREADY_EXISTS",
        "",
    ]
    state, dead_offsets = rebuilt(shard)
    assert state == shard_state(TablesReader(shard.store))
    assert dead_offsets == [offset for offset, _ in letters(shard)]


def test_metadata_waits_for_an_announced_schema_and_does_not_start_without_it(shard: Shard) -> None:
    with pytest.raises(RetryableError, match="announced and not published: run deepclean upgrade prepare"):
        send(shard, announcement(LATER_ID, 0, None, 1))
    shard.log.append(METADATA_COMMANDS.name, 0, later_message("behind"))
    published.learn(LATER_ID, LATER)
    while shard.runner.step():
        pass
    assert not letters(shard)
    assert shard.refusal(CreateVolume("behind")) == "VOLUME_ALREADY_EXISTS"
    published._schemas.clear()
    COMMANDS._writers.pop(LATER_ID)
    with pytest.raises(RetryableError, match="announced and not published"):
        shard.start()


def test_an_announcement_takes_nothing_back(shard: Shard) -> None:
    published.learn(LATER_ID, LATER)
    published.learn(LATEST_ID, LATER)
    for schema_id in (LATEST_ID, LATER_ID):
        send(shard, announcement(schema_id, 0, None, 1))
    assert shard_state(TablesReader(shard.store)).announced_schema_id == LATEST_ID
    send(shard, later_message("behind", LATEST_ID))
    assert not letters(shard)


def test_the_schemas_of_commands_are_announced_before_they_are_published(
    shard: Shard, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = released_versions("MetadataCommand")[0]
    versions = [first, Released(LATER_ID, LATER)]
    topic, announced = SchemaTopic(shard.log), list[int]()
    monkeypatch.setattr("services.log.schema_topic.released_versions", lambda _: [first])
    topic.publish([METADATA_COMMANDS], announced.append)
    assert not announced, "every program knows the first version"
    monkeypatch.setattr("services.log.schema_topic.released_versions", lambda _: versions)

    def announce(schema_id: int) -> None:
        announced.append(schema_id)
        assert published.schema_of(schema_id) is None

    for count in (1, 0):
        assert SchemaTopic(shard.log).publish([METADATA_COMMANDS], announce) == count
    assert announced == [LATER_ID]


def test_an_announcement_of_a_later_program_is_read_by_this_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is written by the first schema, and its signature covers that."""
    monkeypatch.setattr(COMMANDS, "frame", frame(LATER_ID))
    signer = Signer("root", b"s" * 32)
    message = announcement(LATER_ID, 3, signer, 7)
    assert schema_id_of(message) == released_versions("MetadataCommand")[0].schema_id
    assert is_signed_with(signer.secret, METADATA_COMMANDS.name, message)
    monkeypatch.undo()
    command = COMMANDS.decode_message(message)
    assert (command.shard, command.user, command.issued_at_ms, command.body) == (3, "root", 7, AnnounceSchema(LATER_ID))
    assert command.client_id.startswith("root/")
