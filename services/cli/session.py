"""The connection of a command to its plane, and parsing of bucket and key paths."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated

import typer

from schemas.records import MetadataReply, ResolveDeadLetter, SetSecret, Settle, SnapshotReply
from services.client.plane import MetadataReads, NamespaceCommand, Plane, SnapshotReads, SnapshotRequest, accepted
from services.client.tasks.links import bucket_of_link
from services.client.tasks.volume_shards import VolumeShards
from services.plane.stack.stack import running_client

JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]
_OF_NO_BUCKET = (Settle, ResolveDeadLetter, SetSecret)
"""Requests that name no bucket."""


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
        return accepted(plane.answer(shard, plane.submit(shard, command)))

    def request(self, shard: int, request: SnapshotRequest) -> SnapshotReply:
        """Execute a request to the snapshots service. Raise PlaneError if the service refuses it.

        A request about a link becomes one about its bucket: a snapshot is of the bucket, never of the link.
        """
        if not isinstance(request, _OF_NO_BUCKET):
            volume, bucket = bucket_of_link(self.connected(), shard, request.volume, request.bucket)
            request = replace(request, volume=volume, bucket=bucket)
        return accepted(self.connected().request(shard, request))

    def metadata(self, volume: str) -> MetadataReads:
        """Return the reads of metadata in the shard of a volume."""
        return self.connected().metadata(self.volumes().shard_of(volume))

    def snapshots(self, volume: str) -> SnapshotReads:
        """Return the reads of snapshots in the shard of a volume."""
        return self.connected().snapshots(self.volumes().shard_of(volume))

    def bucket_of(self, volume: str, bucket: str) -> tuple[str, str]:
        """Return the volume and name of a bucket, or of that to which a link of this name leads. The snapshots service
        knows no links.
        """
        return bucket_of_link(self.connected(), self.volumes().shard_of(volume), volume, bucket)

    def shards(self, wanted: Sequence[int] | None) -> list[int]:
        """Return the wanted shards in order, or all of the plane's; refuse one that the plane does not have."""
        count = self.connected().shards
        for shard in wanted or ():
            if not 0 <= shard < count:
                raise typer.BadParameter(f"shard {shard} is not one of the {count} of this plane", param_hint="--shard")
        return sorted(set(wanted)) if wanted else list(range(count))

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


def execute(context: typer.Context, volume: str, command: NamespaceCommand) -> MetadataReply:
    """Execute one command in the shard of its volume. Raise PlaneError if metadata refuses it."""
    with session_of(context) as session:
        return session.execute(session.volumes().shard_of(volume), command)


def request(context: typer.Context, volume: str, asked: SnapshotRequest) -> SnapshotReply:
    """Execute one request in the shard of its volume. Raise PlaneError if the snapshots service refuses it."""
    with session_of(context) as session:
        return session.request(session.volumes().shard_of(volume), asked)


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


def target_path(text: str, volume: str, bucket: str) -> str:
    """Return a new path in a bucket, which may be given with ``volume/bucket/`` before it, as all other paths are."""
    whole, own = text.removeprefix("/"), f"{volume}/{bucket}/"
    return whole.removeprefix(own) if whole.startswith(own) else text
