"""What every sub-command needs: the plane that the command line means, paths taken apart, errors as one line."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from schemas.credentials import CredentialsError
from schemas.records import MetadataReply, SnapshotReply
from services.cli.output import say
from services.client.errors import PlaneError, PlaneTimeoutError, UnreachableError
from services.client.plane import NamespaceCommand, Plane, SnapshotRequest
from services.client.tasks.volume_shards import VolumeShards
from services.domain.errors import DeepcleanError
from services.plane.stack.stack import running_client

SHOWN_LETTERS = 200
"""Of what is refused."""
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]


@dataclass(slots=True)
class Session:
    """The plane that the command line means; connected to when a command first needs it."""

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
        """Carry out a command; raises PlaneError when it is refused."""
        plane = self.connected()
        reply = plane.answer(shard, plane.submit(shard, command))
        if reply.error:
            raise PlaneError(reply.error, reply.message)
        return reply

    def request(self, shard: int, request: SnapshotRequest) -> SnapshotReply:
        """Carry out a request to the snapshots service; raises PlaneError when it is refused."""
        reply = self.connected().request(shard, request)
        if reply.error:
            raise PlaneError(reply.error, reply.message)
        return reply

    def close(self) -> None:
        """Leave the plane."""
        if self.plane is not None:
            self.plane.close()


def made_session(context: typer.Context) -> Session:
    """The command line's session; for a command that connects to nothing, or not this way."""
    session = context.find_object(Session)
    assert session is not None  # noqa: S101  the root command makes it
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


def error_line(error: DeepcleanError) -> str:
    """What a person reads about an error: the plane's code and reason, or one sentence."""
    match error:
        case PlaneError():
            return f"{error.code}: {error}"
        case UnreachableError():
            return f"UNREACHABLE: {error}"
        case PlaneTimeoutError():
            return f"TIMEOUT: {error}"
        case _:
            return str(error)


class OneLineErrors(TyperGroup):
    """A group of commands whose errors are one line and exit status 1."""

    def invoke(self, ctx: Any) -> Any:
        """Run the command."""
        try:
            return super().invoke(ctx)
        except DeepcleanError as error:
            line = error_line(error)
            # What the plane answers has names in it; what this side says may be of several lines, such as a log's last.
            say(*([line] if isinstance(error, PlaneError) else line.split("\n")), err=True)
            raise typer.Exit(1) from error
        except CredentialsError as error:
            say(str(error), err=True)
            raise typer.Exit(1) from error
        except UnicodeError as error:  # a shell passes on any bytes; a plane has names in UTF-8 alone
            say(f"{str(getattr(error, 'object', ''))[:SHOWN_LETTERS]} is not UTF-8", err=True)
            raise typer.Exit(1) from error
        except OverflowError as error:  # a number that no message has room for
            say(str(error)[:SHOWN_LETTERS], err=True)
            raise typer.Exit(1) from error
        except OSError as error:
            if error.errno == errno.EPIPE:
                raise  # whoever reads has enough: typer ends the command
            say(f"{error.strerror or error}: {error.filename}" if error.filename else str(error), err=True)
            raise typer.Exit(1) from error
