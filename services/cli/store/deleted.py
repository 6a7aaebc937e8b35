"""``deepclean undelete`` and ``deepclean deleted list``: undelete objects, and list those that can be undeleted."""

from __future__ import annotations

from shlex import quote
from typing import Annotated

import typer

from schemas.answers import ListedDeletion, Returning
from schemas.records import DeletedKind
from services.cli.arguments import BucketArgument, ToPathOption
from services.cli.exit_status import ExitStatus
from services.cli.output import print_json, print_table
from services.cli.session import JsonOption, bucket_path, key_path, session_of, target_path
from services.cli.store.entries import AllOption, LimitOption, print_first
from services.cli.terminal import say
from services.client.errors import PlaneError
from services.client.tasks.undelete import Undeleted, snapshot_to_copy_from, undelete_files, undelete_path
from services.client.wire.paging import all_rows, deleted_position
from services.wording.figures import bytes_text, time_text

app = typer.Typer(no_args_is_help=True, help="List deletions that are not claimed yet, and how each can be undone.")
_RETURNING = {
    Returning.ITSELF: "yes",
    Returning.NEW_OBJECT: "as a new object",
    Returning.ONLY_A_COPY: "no: restore it from a snapshot",
    Returning.ONLY_ITS_FILES: "only its files",
}


_COPY_IT = "(deepclean restore)"
"""What refusals say when the way is a copy out of a snapshot."""


@app.callback()
def _group() -> None:
    """Make typer treat the only command, ``list``, as a sub-command."""


@app.command("list")
def list_deleted(
    context: typer.Context,
    bucket: BucketArgument,
    start_after: Annotated[
        str, typer.Option(metavar="DEATH:OBJECT", help="Only entries after this one: its death and objectID.")
    ] = "",
    limit: LimitOption = 1_000,
    is_all: AllOption = False,
    as_json: JsonOption = False,
) -> None:
    """List deletions that are not claimed yet, oldest first, with the time until which each can be undone."""
    volume, name = bucket_path(bucket)
    with session_of(context) as session:
        reads = session.metadata(volume)
        rows = all_rows(
            lambda after, page_rows: reads.deleted(volume, name, start_after=after, limit=page_rows),
            deleted_position,
            start_after=start_after,
        )
        print_first(rows, 0 if is_all else limit, _print_deleted, deleted_position, as_json=as_json)


def _print_deleted(entries: list[ListedDeletion]) -> None:
    print_table(
        ["PATH", "KIND", "SIZE", "DEATH", "DELETED", "CLAIMED NOT BEFORE", "UNDELETE"],
        (
            (
                entry.path or f"…/{entry.name}",
                entry.kind.lower(),
                bytes_text(entry.size_bytes) if entry.kind is DeletedKind.KEY else "",
                entry.death,
                time_text(entry.deletion_time_ms),
                "held by a snapshot" if entry.is_held else time_text(entry.until_ms),
                _RETURNING[entry.returning],
            )
            for entry in entries
        ),
        numbers=["SIZE", "DEATH"],
    )


def undelete(
    context: typer.Context,
    path: Annotated[str, typer.Argument(metavar="VOLUME/BUCKET/PATH", help="The deleted key or directory.")],
    target: ToPathOption = "",
    death: Annotated[
        int,
        typer.Option(
            "--death",
            metavar="TXN",
            min=0,
            help="Transaction of the deletion to undo; by default the last deletion of the path.",
        ),
    ] = 0,
    is_by_file: Annotated[
        bool,
        typer.Option(
            "--files", help="Undelete the files below a directory one by one, as far as they are not claimed."
        ),
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Undelete a key, an overwritten version or a whole directory, with its blocks, unless it is claimed."""
    volume, bucket, name = key_path(path)
    target = target_path(target, volume, bucket)
    with session_of(context) as session:
        plane, shard = session.connected(), session.volumes().shard_of(volume)
        bring_back = undelete_files if is_by_file else undelete_path
        try:
            done = bring_back(plane, shard, (volume, bucket), name, target or name, death)
        except PlaneError as error:
            if _COPY_IT not in error.message:
                raise
            snapshot = snapshot_to_copy_from(plane, shard, (volume, bucket), name, death)
            raise PlaneError(error.code, error.message.replace(_COPY_IT, _copy_it(path, snapshot, target))) from error
    if as_json:
        print_json(done)
    else:
        _print(done, name, target or name)
    if done.refused:
        raise typer.Exit(ExitStatus.FAILED)


def _copy_it(path: str, snapshot: str, target: str) -> str:
    """Return the same with the whole command, if a snapshot shows the path."""
    if not snapshot:
        return _COPY_IT
    there = f" --to {quote(target)}" if target else ""
    return f"(deepclean restore {quote(path)} --from {quote(snapshot)}{there})"


def _print(done: Undeleted, name: str, target: str) -> None:
    for one in done.returned:
        sentence = f"{one.path} is back, as objectID {one.object_id}, from txn {one.txn} on"
        say(sentence if one.is_itself else f"{sentence}: a new object with the same blocks")
    for refused in done.refused:
        say(f"{refused.code}: {refused.message}", err=True)
    if not done.returned and not done.refused:
        say(f"no file below {name} can be undeleted to {target}")
