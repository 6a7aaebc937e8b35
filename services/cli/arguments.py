"""Arguments that name buckets, snapshots and paths, and what a shell offers for them: what the running plane has.

For a plane that does not answer it offers nothing: completion never prints an error.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Annotated

import typer

from schemas.credentials import CredentialsError
from services.cli.session import Session, bucket_path, session_of
from services.domain.errors import DeepcleanError
from services.plane.machine.home import home_directory

NO_CANDIDATES = (DeepcleanError, CredentialsError, OSError, ImportError, typer.TyperException)


def _asked(context: typer.Context, question: Callable[[Session], Iterable[str]]) -> list[str]:
    """Return what the plane of the command line answers; nothing if there is none. The command itself has not begun."""
    root = context.find_root()
    home = root.params.get("home")
    root.obj = root.obj or (home.resolve() if home else home_directory())
    try:
        with session_of(context) as session:
            return list(question(session))
    except NO_CANDIDATES:
        return []


def bucket_candidates(context: typer.Context, incomplete: str) -> list[str]:
    """Return the volumes whose name begins as the word does; behind the slash, the buckets of the volume."""
    volume, slash, _ = incomplete.partition("/")

    def found(session: Session) -> Iterable[str]:
        if slash:
            return (f"{volume}/{row.bucket}" for row in session.metadata(volume).buckets(volume))
        plane = session.connected()
        return (f"{row.volume}/" for shard in range(plane.shards) for row in plane.metadata(shard).volumes())

    return [one for one in _asked(context, found) if one.startswith(incomplete)]


def snapshot_candidates(context: typer.Context, incomplete: str) -> list[str]:
    """Return the active snapshots of the bucket that the command names before."""
    bucket = str(context.params.get("bucket") or "")

    def found(session: Session) -> Iterable[str]:
        volume, name = bucket_path(bucket)
        rows = session.snapshots(volume).snapshots(*session.bucket_of(volume, name))
        return (row.name for row in rows)

    return [one for one in _asked(context, found) if one.startswith(incomplete)]


BucketArgument = Annotated[
    str, typer.Argument(metavar="VOLUME/BUCKET", help="The bucket.", autocompletion=bucket_candidates)
]
SnapshotArgument = Annotated[
    str, typer.Argument(metavar="NAME", help="Name of the snapshot.", autocompletion=snapshot_candidates)
]
SnapshotsArgument = Annotated[
    list[str], typer.Argument(metavar="NAME…", help="Names of the snapshots.", autocompletion=snapshot_candidates)
]
TargetArgument = Annotated[
    str,
    typer.Argument(metavar="TARGET", help="Its new path in the same bucket, with or without VOLUME/BUCKET/ before it."),
]
ToPathOption = Annotated[
    str,
    typer.Option(
        "--to",
        metavar="TARGET",
        help="Another path in the same bucket, with or without VOLUME/BUCKET/ before it; by default the same.",
    ),
]
