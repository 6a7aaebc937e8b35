"""Forgetting to say who signs lets nobody in: everybody may only where a table without an administrator was read."""

from __future__ import annotations

import pytest

from schemas.codec import codec
from schemas.records import (
    CollectionState,
    CreateVolume,
    MetadataCommand,
    MetadataReply,
    SecretRole,
    SetCollection,
    SetSecret,
    SnapshotCommand,
)
from schemas.topics import METADATA_COMMANDS, METADATA_REPLIES
from services.metadata.namespace import access
from services.metadata.service import MetadataService
from services.metadata.state.tables import SECRET_TABLE
from services.runtime.loop.service import Message, Work
from services.runtime.parts.signers import DeniedError, Signers
from services.storage.memory import MemoryStore
from services.storage.tables import RowCache, TablesReader

ADMINISTRATOR = SetSecret("root", SecretRole.ADMINISTRATOR, b"s" * 32)


def message_of(command: MetadataCommand) -> Message:
    return Message(METADATA_COMMANDS, 0, 1, command, codec(MetadataCommand).encode_message(command))


def test_nobody_is_let_in_before_a_table_was_read() -> None:
    signers = Signers()
    assert signers.is_on
    command = MetadataCommand(0, "me/1", 1, CreateVolume("vol"), user="me")
    with pytest.raises(DeniedError):
        signers.require_person(message_of(command), command)
    with pytest.raises(DeniedError):
        signers.require_service(message_of(command), SnapshotCommand("me", 1, CreateVolume("vol"), "key_deletion"))  # type: ignore[arg-type]


def test_everybody_is_let_in_by_a_table_without_an_administrator_and_by_nothing_else() -> None:
    signers = Signers()
    signers.restore(())
    assert not signers.is_on
    signers.set_secret(ADMINISTRATOR, Work(0, MemoryStore(), RowCache()).table(SECRET_TABLE))
    assert signers.is_on


def test_a_service_that_has_read_no_table_refuses_its_clients() -> None:
    service, store = MetadataService(), MemoryStore()
    for command, error in (
        (MetadataCommand(0, "me", 1, CreateVolume("vol")), "PERMISSION_DENIED"),
        (MetadataCommand(0, "me", 2, SetCollection("", "", CollectionState.PAUSED, "why")), "PERMISSION_DENIED"),
    ):
        work = Work(0, store, RowCache())
        service.apply(message_of(command), work)
        (sent,) = work.messages
        assert sent.topic == METADATA_REPLIES.name
        assert codec(MetadataReply).decode_message(sent.value).error == error
    service.restore(TablesReader(store))
    work = Work(0, store, RowCache())
    service.apply(message_of(MetadataCommand(0, "me", 1, CreateVolume("vol"))), work)
    assert codec(MetadataReply).decode_message(work.messages[0].value).error == ""


def test_an_unknown_sender_is_no_administrator_where_no_secret_is_set() -> None:
    work = Work(0, MemoryStore(), RowCache())
    transaction = MetadataService()._transaction
    transaction.begin(work, 0)
    assert not access.is_administrator(transaction)
