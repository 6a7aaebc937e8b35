"""Functions that the listings of keys, directories and deletions share."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator
from typing import Annotated, TypeVar

import typer

from schemas.answers import ListedEntry
from services.cli.output import print_json
from services.cli.session import Session, bucket_path
from services.cli.terminal import say
from services.client.wire.paging import all_rows, first_rows

SnapshotOption = Annotated[
    str, typer.Option(metavar="NAME", help="Read this snapshot instead of the active namespace.")
]
PrefixOption = Annotated[str, typer.Option(help="Only paths with this prefix.")]
StartAfterOption = Annotated[str, typer.Option(metavar="PATH", help="Only paths after this path.")]
LimitOption = Annotated[
    int, typer.Option(min=1, help="Maximum number of entries. If there are more, standard error shows how to continue.")
]
AllOption = Annotated[bool, typer.Option("--all", help="List all entries.")]


R = TypeVar("R")


def print_first(
    rows: Iterator[R],
    limit: int,
    print_rows: Callable[[list[R]], None],
    position: Callable[[R], str],
    *,
    as_json: bool,
) -> None:
    """Print at most ``limit`` rows of a listing, or all for 0; standard error says how to continue, if there are more.

    ``position`` returns what ``--start-after`` takes to continue after a row.
    """
    listed = first_rows(rows, limit)
    if as_json:
        print_json(listed.rows)
    else:
        print_rows(listed.rows)
    if listed.has_more:
        last = shlex.quote(position(listed.rows[-1]))
        say(f"There are more entries: --start-after {last} continues, --all lists everything.", err=True)


def snapshot_id_of(session: Session, volume: str, bucket: str, name: str) -> str:
    """Return the id of a bucket's snapshot, or "" (the active namespace) for an empty name."""
    if not name:
        return ""
    return session.snapshots(volume).snapshot(*session.bucket_of(volume, bucket), name).snapshot_id


def list_entries(
    session: Session, bucket: str, *, snapshot: str, prefix: str, start_after: str, is_directory: bool
) -> Iterator[ListedEntry]:
    """Return all keys or all directories of a bucket, in walk order."""
    names = bucket_path(bucket)
    if snapshot:
        names = session.bucket_of(*names)  # the link may be newer than the snapshot
    reads = session.metadata(names[0])
    snapshot_id = snapshot_id_of(session, *names, snapshot)
    entries = all_rows(
        lambda after, page_rows: reads.entries(
            *names, snapshot_id=snapshot_id, prefix=prefix, start_after=after, limit=page_rows
        ),
        lambda entry: entry.path,
        start_after=start_after,
    )
    return (entry for entry in entries if entry.is_directory is is_directory)
