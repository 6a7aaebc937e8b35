"""The plane that the command line names, and parsing of bucket and key paths."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import typer

from schemas.records import MetadataReply, SnapshotReply
from services.client.errors import PlaneError
from services.client.plane import NamespaceCommand, Plane, SnapshotRequest
from services.client.tasks.volume_shards import VolumeShards
from services.plane.stack.stack import running_client

JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]


@dataclass(slots=True)
class Session:
    """The plane that the command line names; connects when a command first needs the plane."""

    home: Path
    plane: Plane | None = None
    _volumes: VolumeShards | None = field(default=None, init=False)

    def connected(self) -> Plane:
        """The plane."""
        if self.plane is None:
            self.plane = running_client(self.home)
        return self.plane

    def volumes(self) -> VolumeShards:
        """Where the plane's volumes are."""
        if self._volumes is None:
            self._volumes = VolumeShards(self.connected())
        return self._volumes

    def execute(self, shard: int, command: NamespaceCommand) -> MetadataReply:
        """Execute a command. Raise PlaneError if metadata refuses it."""
        plane = self.connected()
        reply = plane.answer(shard, plane.submit(shard, command))
        if reply.error:
            raise PlaneError(reply.error, reply.message)
        return reply

    def request(self, shard: int, request: SnapshotRequest) -> SnapshotReply:
        """Execute a request to the snapshots service. Raise PlaneError if the service refuses it."""
        reply = self.connected().request(shard, request)
        if reply.error:
            raise PlaneError(reply.error, reply.message)
        return reply

    def close(self) -> None:
        """Close the connection to the plane."""
        if self.plane is not None:
            self.plane.close()


def made_session(context: typer.Context) -> Session:
    """The command line's session; for a command that connects to nothing, or not this way."""
    if isinstance(context.find_root().obj, Path):
        context.find_root().obj = Session(context.find_root().obj)
    session = context.find_root().obj
    assert isinstance(session, Session)  # noqa: S101  the root command says where the home is
    return session


@contextmanager
def session_of(context: typer.Context) -> Iterator[Session]:
    """The command line's session, left at the end."""
    session = made_session(context)
    try:
        yield session
    finally:
        session.close()


def bucket_path(text: str) -> tuple[str, str]:
    """``volume/bucket``, with or without a slash before it."""
    parts = text.removeprefix("/").removesuffix("/").split("/")
    if len(parts) != 2 or not all(parts):
        raise typer.BadParameter(f"{text!r} is not VOLUME/BUCKET")
    return parts[0], parts[1]


def key_path(text: str) -> tuple[str, str, str]:
    """``volume/bucket/path…``, with or without a slash before it."""
    parts = text.removeprefix("/").split("/", 2)
    if len(parts) != 3 or not all(parts):
        raise typer.BadParameter(f"{text!r} is not VOLUME/BUCKET/PATH")
    return parts[0], parts[1], parts[2]
