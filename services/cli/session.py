"""The connection of a command to its plane, and parsing of bucket and key paths."""

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
    """A command's connection to the plane of its home directory, opened when the command first needs it."""

    home: Path
    plane: Plane | None = None
    _volumes: VolumeShards | None = field(default=None, init=False)

    def connected(self) -> Plane:
        """Return the plane; connect to it first if necessary."""
        if self.plane is None:
            self.plane = running_client(self.home)
        return self.plane

    def volumes(self) -> VolumeShards:
        """Return the shards of the plane's volumes."""
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
    """Return the command line's session; the caller closes it if it connects."""
    if isinstance(context.find_root().obj, Path):
        context.find_root().obj = Session(context.find_root().obj)
    session = context.find_root().obj
    assert isinstance(session, Session)  # noqa: S101  the root command stores the home
    return session


@contextmanager
def session_of(context: typer.Context) -> Iterator[Session]:
    """Yield the command line's session, and close it at the end."""
    session = made_session(context)
    try:
        yield session
    finally:
        session.close()


def bucket_path(text: str) -> tuple[str, str]:
    """Return volume and bucket of ``volume/bucket``; a leading and a trailing slash are ignored."""
    parts = text.removeprefix("/").removesuffix("/").split("/")
    if len(parts) != 2 or not all(parts):
        raise typer.BadParameter(f"{text!r} is not VOLUME/BUCKET")
    return parts[0], parts[1]


def key_path(text: str) -> tuple[str, str, str]:
    """Return volume, bucket and path of ``volume/bucket/path…``; a leading slash is ignored."""
    parts = text.removeprefix("/").split("/", 2)
    if len(parts) != 3 or not all(parts):
        raise typer.BadParameter(f"{text!r} is not VOLUME/BUCKET/PATH")
    return parts[0], parts[1], parts[2]
