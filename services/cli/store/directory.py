"""``deepclean dir``: create, delete, rename and list directories."""

from __future__ import annotations

from typing import Annotated

import typer

from schemas.answers import ListedEntry
from schemas.records import DeleteDirectory, MakeDirectory, RenameDirectory
from services.cli.arguments import BucketArgument, TargetArgument
from services.cli.output import print_reply, print_table
from services.cli.session import JsonOption, execute, key_path, session_of, target_path
from services.cli.store.entries import (
    AllOption,
    LimitOption,
    PrefixOption,
    SnapshotOption,
    StartAfterOption,
    list_entries,
    print_first,
)
from services.wording.figures import time_text

app = typer.Typer(no_args_is_help=True, help="Create, delete, rename and list directories (FILE_SYSTEM_OPTIMIZED).")
DirectoryArgument = Annotated[str, typer.Argument(metavar="VOLUME/BUCKET/PATH", help="The directory.")]


@app.command()
def make(context: typer.Context, directory: DirectoryArgument, as_json: JsonOption = False) -> None:
    """Create a directory and its missing parents."""
    volume, bucket, path = key_path(directory.removesuffix("/"))
    reply = execute(context, volume, MakeDirectory(volume, bucket, path))
    print_reply(reply, f"directory {path} is there", as_json=as_json)


@app.command()
def delete(
    context: typer.Context,
    directory: DirectoryArgument,
    is_recursive: Annotated[
        bool, typer.Option("--recursive/--no-recursive", help="With everything below it, or only when it is empty.")
    ] = True,
    as_json: JsonOption = False,
) -> None:
    """Delete a directory with everything below it, in one transaction."""
    volume, bucket, path = key_path(directory.removesuffix("/"))
    reply = execute(context, volume, DeleteDirectory(volume, bucket, path, is_recursive))
    print_reply(reply, f"directory {path} deleted at txn {reply.txn}", as_json=as_json)


@app.command()
def rename(
    context: typer.Context,
    directory: DirectoryArgument,
    target: TargetArgument,
    as_json: JsonOption = False,
) -> None:
    """Rename a directory, with everything below it, within its bucket."""
    volume, bucket, path = key_path(directory.removesuffix("/"))
    target = target_path(target, volume, bucket).removesuffix("/")
    reply = execute(context, volume, RenameDirectory(volume, bucket, path, target))
    print_reply(reply, f"directory {path} is now {target}, from txn {reply.txn} on", as_json=as_json)


@app.command("list")
def list_directories(
    context: typer.Context,
    bucket: BucketArgument,
    snapshot: SnapshotOption = "",
    prefix: PrefixOption = "",
    start_after: StartAfterOption = "",
    limit: LimitOption = 1_000,
    is_all: AllOption = False,
    as_json: JsonOption = False,
) -> None:
    """List directories, in the active namespace or in a snapshot."""
    with session_of(context) as session:
        found = list_entries(
            session, bucket, snapshot=snapshot, prefix=prefix, start_after=start_after, is_directory=True
        )
        print_first(found, 0 if is_all else limit, _print_directories, lambda entry: entry.path, as_json=as_json)


def _print_directories(entries: list[ListedEntry]) -> None:
    print_table(["DIRECTORY", "MODIFIED"], ((one.path, time_text(one.modification_time_ms)) for one in entries))
