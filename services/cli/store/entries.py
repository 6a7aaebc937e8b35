"""Functions that the listings of keys and of directories share."""

from __future__ import annotations

import shlex
from typing import Annotated

import typer

from schemas.answers import ListedEntry
from services.cli.session import Session
from services.cli.terminal import say
from services.client.wire.paging import FirstRows, all_rows, first_rows

SnapshotOption = Annotated[
    str, typer.Option(metavar="NAME", help="Read this snapshot instead of the active namespace.")
]
PrefixOption = Annotated[str, typer.Option(help="Only paths with this prefix.")]
StartAfterOption = Annotated[str, typer.Option(metavar="PATH", help="Only paths after this path.")]
LimitOption = Annotated[
    int, typer.Option(min=1, help="Maximum number of entries. If there are more, standard error shows how to continue.")
]
AllOption = Annotated[bool, typer.Option("--all", help="List all entries.")]


def say_more(last: str) -> None:
    """Print on standard error how to continue a listing that has reached its limit; standard output is for programs."""
    say(f"There are more entries: --start-after {shlex.quote(last)} continues, --all lists everything.", err=True)


def snapshot_id_of(session: Session, shard: int, bucket: tuple[str, str], name: str) -> str:
    """Return the id of a bucket's snapshot, or "" (the active namespace) for an empty name."""
    return session.connected().snapshots(shard).snapshot(*bucket, name).snapshot_id if name else ""


def list_entries(
    session: Session,
    bucket: tuple[str, str],
    *,
    snapshot: str,
    prefix: str,
    start_after: str,
    limit: int,
    is_directory: bool,
) -> FirstRows[ListedEntry]:
    """Return keys or directories of a bucket in walk order: at most ``limit``, or all for 0."""
    shard = session.volumes().shard_of(bucket[0])
    reads = session.connected().metadata(shard)
    snapshot_id = snapshot_id_of(session, shard, bucket, snapshot)
    entries = all_rows(
        lambda after, page_rows: reads.entries(
            *bucket, snapshot_id=snapshot_id, prefix=prefix, start_after=after, limit=page_rows
        ),
        lambda entry: entry.path,
        start_after=start_after,
    )
    return first_rows((entry for entry in entries if entry.is_directory is is_directory), limit)
