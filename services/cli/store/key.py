"""``deepclean key``: put, get, delete, rename, list and show keys and their versions, now or in a snapshot."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import Annotated, BinaryIO

import typer

from schemas.answers import ListedEntry
from schemas.records import DeleteKey, DeleteKeyVersion, KeyRow, PutKey, RenameKey
from services.cli.amounts import parse_size
from services.cli.arguments import BucketArgument, TargetArgument
from services.cli.exit_status import ExitStatus
from services.cli.output import print_fields, print_json, print_reply, print_table
from services.cli.session import JsonOption, execute, key_path, session_of, target_path
from services.cli.store.entries import (
    AllOption,
    LimitOption,
    PrefixOption,
    SnapshotOption,
    StartAfterOption,
    list_entries,
    print_first,
    snapshot_id_of,
)
from services.cli.terminal import say
from services.client.tasks.bulk_deletes import delete_keys
from services.client.tasks.key_bytes import KeyPlace, put_bytes, read_bytes, runs_of_key
from services.domain.words import counted
from services.wording.figures import bytes_text, time_text

app = typer.Typer(no_args_is_help=True, help="Put, get, delete, rename, list and show keys.")
BLOCK_SIZE = "256MiB"

KeyArgument = Annotated[str, typer.Argument(metavar="VOLUME/BUCKET/KEY", help="The key.")]


@app.command()
def put(
    context: typer.Context,
    names: Annotated[
        list[str],
        typer.Argument(metavar="[FILE] VOLUME/BUCKET/KEY", help="The key, and before it the file with its bytes."),
    ],
    size: Annotated[
        str | None,
        typer.Option(metavar="SIZE", help="Size of a key without bytes: blocks are counted, and no data is stored."),
    ] = None,
    tag: Annotated[str, typer.Option(help="Your label for this version, shown in listings.")] = "",
    block_size: Annotated[str, typer.Option(metavar="SIZE", help="Size of a full block.")] = BLOCK_SIZE,
    as_json: JsonOption = False,
) -> None:
    """Commit a key, new or over an older version. Missing parent directories are created.

    With a FILE (- for standard input) its bytes are written to the datanodes of the plane.
    """
    if len(names) > 2 or (len(names) == 2) == (size is not None):
        raise typer.BadParameter("give a FILE and a key, or a key and its --size")
    volume, bucket, name = key_path(names[-1])
    block_size_bytes = parse_size(block_size)
    if not block_size_bytes:
        raise typer.BadParameter("a block has at least one byte", param_hint="--block-size")
    if size is not None:
        reply = execute(context, volume, PutKey(volume, bucket, name, parse_size(size), tag, block_size_bytes))
    else:
        with session_of(context) as session, _opened(names[0]) as source:
            place = KeyPlace(session.volumes().shard_of(volume), volume, bucket, name)
            _, reply = put_bytes(session.connected(), place, source, block_size_bytes=block_size_bytes, tag=tag)
    print_reply(reply, f"key {name} put at txn {reply.txn}", as_json=as_json)


@contextmanager
def _opened(file: str) -> Iterator[BinaryIO]:
    """Open a file for reading; - is standard input."""
    if file == "-":
        yield sys.stdin.buffer
        return
    with Path(file).open("rb") as source:
        yield source


@app.command()
def get(
    context: typer.Context,
    key: KeyArgument,
    file: Annotated[
        str, typer.Argument(metavar="[FILE]", help="Where to write its bytes; standard output if -.")
    ] = "-",
    snapshot: SnapshotOption = "",
) -> None:
    """Read the bytes of a key from the datanodes, as it is now or in a snapshot."""
    volume, bucket, name = key_path(key)
    with session_of(context) as session:
        reads = session.metadata(volume)
        snapshot_id = snapshot_id_of(session, volume, bucket, snapshot)
        runs, size_bytes = runs_of_key(reads, volume, bucket, name, snapshot_id=snapshot_id)
        parts = read_bytes(session.connected().block_store(session.volumes().shard_of(volume)), runs, size_bytes)
        if file == "-":
            for part in parts:
                sys.stdout.buffer.write(part)
            sys.stdout.buffer.flush()
            return
        unfinished = Path(f"{file}.unfinished")
        try:
            with unfinished.open("wb") as target:
                target.writelines(parts)
            unfinished.replace(file)
        finally:
            unfinished.unlink(missing_ok=True)
        say(f"{counted(size_bytes, 'byte')} of {name} written to {file}")


@app.command()
def delete(
    context: typer.Context,
    keys: Annotated[
        list[str] | None, typer.Argument(metavar="VOLUME/BUCKET/KEY…", help="One or more keys, separated by spaces.")
    ] = None,
    from_file: Annotated[
        typer.FileText | None,
        typer.Option(metavar="FILE", help="Delete the keys in this file, one a line; - for standard input."),
    ] = None,
    version: Annotated[
        int, typer.Option(metavar="ID", min=0, help="Delete only this version of the one key (deepclean key versions).")
    ] = 0,
    as_json: JsonOption = False,
) -> None:
    """Delete keys with all of their versions, or one version; blocks are freed when no snapshot holds them.

    Many keys are deleted up to 1,000 at a time. Keys that cannot be deleted are listed, and the exit status is then 1.
    """
    keys = keys or []
    if version:
        if from_file is not None or len(keys) != 1:
            raise typer.BadParameter("a version is one of a single key: name one key (--version)")
        volume, bucket, name = key_path(keys[0])
        reply = execute(context, volume, DeleteKeyVersion(volume, bucket, name, version))
        print_reply(reply, f"version {version} of {name} deleted at txn {reply.txn}", as_json=as_json)
        return
    if from_file is None and len(keys) < 2:
        if not keys:
            raise typer.BadParameter("give keys, or a file of keys (--from-file)")
        volume, bucket, name = key_path(keys[0])
        reply = execute(context, volume, DeleteKey(volume, bucket, name))
        print_reply(reply, f"key {name} deleted at txn {reply.txn}", as_json=as_json)
        return
    lines = (line.rstrip("\n") for line in from_file or ())
    named = [key_path(text) for text in chain(keys, filter(None, lines))]  # check all before the first is deleted
    deleted, last_txn, left = 0, 0, list[tuple[str, str]]()
    with session_of(context) as session:
        places = (((volume, bucket), name) for volume, bucket, name in named)
        try:
            for done in delete_keys(session.connected(), session.volumes(), places):
                deleted, last_txn = deleted + done.deleted, done.txn or last_txn
                left += [("/".join((*done.bucket, key)), error) for key, error in done.left]
        finally:  # report the known results even if the plane has stopped
            _print_deleted(deleted, last_txn, left, as_json=as_json)
    if left:
        raise typer.Exit(ExitStatus.FAILED)


def _print_deleted(deleted: int, last_txn: int, left: list[tuple[str, str]], *, as_json: bool) -> None:
    if as_json:
        print_json({"deleted": deleted, "last_txn": last_txn, "left": [{"key": key, "error": e} for key, e in left]})
    else:
        say(*(f"{error}: {key}" for key, error in left), err=True)
        say(f"{counted(deleted, 'key')} deleted, {len(left):,} left")


@app.command()
def versions(
    context: typer.Context, key: KeyArgument, snapshot: SnapshotOption = "", as_json: JsonOption = False
) -> None:
    """List the versions of a key, newest first, now or in a snapshot."""
    volume, bucket, name = key_path(key)
    with session_of(context) as session:
        snapshot_id = snapshot_id_of(session, volume, bucket, snapshot)
        found = session.metadata(volume).versions(volume, bucket, name, snapshot_id=snapshot_id)[::-1]
    if as_json:
        print_json(found)
        return
    print_table(
        ["VERSION", "STATE", "SIZE", "MODIFIED", "TAG"],
        (
            (
                one.version,
                "current" if one.is_current else "noncurrent",
                bytes_text(one.size_bytes),
                time_text(one.modification_time_ms),
                one.tag,
            )
            for one in found
        ),
        numbers=["VERSION", "SIZE"],
    )


@app.command()
def rename(
    context: typer.Context,
    key: KeyArgument,
    target: TargetArgument,
    as_json: JsonOption = False,
) -> None:
    """Rename a key within its bucket."""
    volume, bucket, name = key_path(key)
    target = target_path(target, volume, bucket)
    reply = execute(context, volume, RenameKey(volume, bucket, name, target))
    print_reply(reply, f"key {name} is now {target}, from txn {reply.txn} on", as_json=as_json)


@app.command("list")
def list_keys(
    context: typer.Context,
    bucket: BucketArgument,
    snapshot: SnapshotOption = "",
    prefix: PrefixOption = "",
    start_after: StartAfterOption = "",
    limit: LimitOption = 1_000,
    is_all: AllOption = False,
    as_json: JsonOption = False,
) -> None:
    """List keys, in the active namespace or in a snapshot."""
    with session_of(context) as session:
        found = list_entries(
            session, bucket, snapshot=snapshot, prefix=prefix, start_after=start_after, is_directory=False
        )
        print_first(found, 0 if is_all else limit, _print_keys, lambda entry: entry.path, as_json=as_json)


def _print_keys(entries: list[ListedEntry]) -> None:
    print_table(
        ["KEY", "SIZE", "MODIFIED", "TAG"],
        ((one.path, bytes_text(one.size_bytes), time_text(one.modification_time_ms), one.tag) for one in entries),
        numbers=["SIZE"],
    )


@app.command()
def stat(
    context: typer.Context,
    key: KeyArgument,
    snapshot: SnapshotOption = "",
    version: Annotated[int, typer.Option(metavar="ID", min=0, help="Show this version of the key.")] = 0,
    as_json: JsonOption = False,
) -> None:
    """Show one key or directory, or one version of a key."""
    volume, bucket, name = key_path(key)
    with session_of(context) as session:
        if snapshot:
            volume, bucket = session.bucket_of(volume, bucket)
        snapshot_id = snapshot_id_of(session, volume, bucket, snapshot)
        row = session.metadata(volume).stat(volume, bucket, name, snapshot_id=snapshot_id, version=version)
    if as_json:
        print_json(row)
        return
    shown: list[tuple[str, object]] = [
        ("path", name),
        ("kind", "key" if isinstance(row, KeyRow) else "directory"),
        ("objectID", row.object_id),
        ("updateID", row.update_id),
        ("created", time_text(row.creation_time_ms)),
        ("modified", time_text(row.modification_time_ms)),
    ]
    if isinstance(row, KeyRow):
        shown += [("bytes", row.size_bytes), ("version", row.birth), ("tag", row.tag)]
        if (run := row.blocks) is not None:
            shown += [("blocks", f"{run.block_count} in container {run.container_id} from {run.first_local_id}")]
    print_fields(shown)
