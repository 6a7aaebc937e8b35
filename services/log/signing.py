"""Signs the messages that a service sends to command topics, when they are sent.

Messages in an outbox are not signed yet: after a change of the secret they are signed with the new one.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeVar
from uuid import uuid4

from schemas.codec import codec
from schemas.credentials import CredentialsError, read_secret
from schemas.records import AnnounceSchema, MetadataCommand, SnapshotCommand
from schemas.signatures import SHORTEST_SECRET, sign
from schemas.topics import METADATA_COMMANDS, SNAPSHOTS_COMMANDS, Topic
from services.log.port import Headers, Log, LogAround, Sink

Command = TypeVar("Command", MetadataCommand, SnapshotCommand)
SIGNED_TOPICS = frozenset({METADATA_COMMANDS.name, SNAPSHOTS_COMMANDS.name})


@dataclass(frozen=True, slots=True)
class Signer:
    """A user and its secret."""

    user: str
    secret: bytes = field(repr=False)

    def client_id(self) -> str:
        """Return the id of a new client of this user."""
        return f"{self.user}/{uuid4()}"


def signed_command(topic: Topic, command: Command, signer: Signer | None, now_ms: int) -> bytes:
    """Return the message of a command, signed if there is a signer."""
    encoder = codec(topic.record)
    if signer is None:
        return encoder.encode_message(command)
    value = encoder.encode_message(replace(command, user=signer.user, issued_at_ms=now_ms, signature=""))
    return sign(signer.secret, topic.name, value)


def announcement(schema_id: int, shard: int, signer: Signer | None, now_ms: int) -> bytes:
    """Return the message that announces a schema of commands to a shard: by the first schema, which needs none."""
    command = MetadataCommand(shard, "", 0, AnnounceSchema(schema_id), wants_reply=False)
    encoder = codec(MetadataCommand)
    if signer is None:
        return encoder.first_message(command)
    named = replace(command, client_id=signer.client_id(), number=1, user=signer.user, issued_at_ms=now_ms)
    return sign(signer.secret, METADATA_COMMANDS.name, encoder.first_message(named))


def person_command(command: MetadataCommand, signer: Signer | None, now_ms: int) -> bytes:
    """Return the message of a single command of a tool, as number 1 of a new client; signed if there is a signer."""
    if signer is not None:
        command = replace(command, client_id=signer.client_id(), number=1)
    return signed_command(METADATA_COMMANDS, command, signer, now_ms)


def read_signing_secret(file: Path) -> bytes:
    """Return the secret in a file of hexadecimal digits. Raise CredentialsError if it is unusable or too short."""
    try:
        secret = bytes.fromhex(read_secret(file))
    except ValueError:
        raise CredentialsError(f"{file} holds no hexadecimal letters: create the secret again") from None
    if len(secret) < SHORTEST_SECRET:
        raise CredentialsError(f"{file} holds fewer than {SHORTEST_SECRET} bytes: create the secret again")
    return secret


class SigningLog(LogAround):
    """A log whose sinks sign the commands of one service."""

    def __init__(self, log: Log, secret: bytes) -> None:
        super().__init__(log)
        self._secret = secret

    def open_sink(self, owner: str = "") -> Sink:
        """Open a sink that signs."""
        return SigningSink(self._log.open_sink(owner), self._secret)


class SigningSink:
    """Signs commands, and passes other messages on unchanged."""

    def __init__(self, sink: Sink, secret: bytes) -> None:
        self._sink = sink
        self._secret = secret
        self.start_flush, self.flush, self.close = sink.start_flush, sink.flush, sink.close

    def send(self, topic: str, partition: int, value: bytes, key: bytes = b"", headers: Headers = ()) -> None:
        """Send a message; the log may not have it yet when this returns."""
        if topic in SIGNED_TOPICS:
            value = sign(self._secret, topic, value)
        self._sink.send(topic, partition, value, key, headers)
