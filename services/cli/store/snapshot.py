"""``deepclean snapshot``: create, delete, rename, list, compare and roll back to snapshots."""

from __future__ import annotations

from typing import Annotated

import typer

from schemas.answers import SnapshotTag
from schemas.records import CreateSnapshot, DeleteSnapshot, RenameSnapshot, RollBackBucket, SnapshotInfo
from services.cli.arguments import BucketArgument, SnapshotArgument, SnapshotsArgument
from services.cli.bucket_view import print_what_if, view_of, what_if_sentence
from services.cli.confirmation import DryRunOption, YesOption, confirm
from services.cli.output import print_fields, print_json, print_result, print_table
from services.cli.session import JsonOption, Session, bucket_path, request, session_of
from services.cli.store.diff import cancel_diff, diff, list_diffs
from services.cli.terminal import say
from services.client.errors import PlaneError
from services.wording.figures import size_text, time_text

app = typer.Typer(no_args_is_help=True, help="Create, delete, rename, list, compare and roll back to snapshots.")
app.command("diff")(diff)
app.command("diffs")(list_diffs)
app.command("cancel-diff")(cancel_diff)

NewNameArgument = Annotated[str, typer.Argument(metavar="NAME", help="Name of the snapshot.")]


@app.command()
def create(context: typer.Context, bucket: BucketArgument, name: NewNameArgument, as_json: JsonOption = False) -> None:
    """Create a snapshot of a bucket."""
    volume_name, bucket_name = bucket_path(bucket)
    snapshot_id = request(context, volume_name, CreateSnapshot(volume_name, bucket_name, name)).snapshot_id
    _print_result(name, snapshot_id, f"snapshot {name} created ({snapshot_id})", as_json=as_json)


@app.command()
def delete(
    context: typer.Context,
    bucket: BucketArgument,
    names: SnapshotsArgument,
    is_confirmed: YesOption = False,
    is_dry_run: DryRunOption = False,
    as_json: JsonOption = False,
) -> None:
    """Delete snapshots. Versions that only these snapshots hold are freed."""
    volume_name, bucket_name = bucket_path(bucket)
    with session_of(context) as session:
        if is_dry_run or not is_confirmed:
            view = view_of(session, bucket)
            freed = view.what_if(view.snapshots(), names)
            if is_dry_run:
                print_what_if(names, freed, as_json=as_json)
                return
            confirm(f"{what_if_sentence(names, freed)}.", is_confirmed=False)
        shard, deleted = session.volumes().shard_of(volume_name), []
        try:
            for name in names:
                reply = session.request(shard, DeleteSnapshot(volume_name, bucket_name, name))
                deleted.append({"name": name, "snapshot_id": reply.snapshot_id})
                if not as_json:
                    say(f"snapshot {name} deleted ({reply.snapshot_id})")
        finally:  # one that is refused ends the command: what was done before is told nevertheless
            if as_json:
                print_json({"deleted": deleted})


@app.command()
def rename(
    context: typer.Context,
    bucket: BucketArgument,
    name: SnapshotArgument,
    target: Annotated[str, typer.Argument(metavar="TARGET", help="Its new name.")],
    as_json: JsonOption = False,
) -> None:
    """Rename a snapshot, if the plane allows it."""
    volume_name, bucket_name = bucket_path(bucket)
    snapshot_id = request(context, volume_name, RenameSnapshot(volume_name, bucket_name, name, target)).snapshot_id
    _print_result(target, snapshot_id, f"snapshot {name} is now {target}", as_json=as_json)


def _print_result(name: str, snapshot_id: str, sentence: str, *, as_json: bool) -> None:
    print_result({"name": name, "snapshot_id": snapshot_id}, sentence, as_json=as_json)


@app.command()
def rollback(
    context: typer.Context,
    bucket: BucketArgument,
    name: Annotated[str, typer.Argument(metavar="[NAME]", help="Name of the snapshot.")] = "",
    tag: Annotated[str, typer.Option(help="Roll back to the snapshot that this tag names.")] = "",
    is_confirmed: YesOption = False,
    is_dry_run: DryRunOption = False,
    as_json: JsonOption = False,
) -> None:
    """Make a snapshot the active namespace of its bucket again. Newer snapshots are deleted.

    Versions that only these snapshots or the present namespace contain are freed. Until the rollback has ended, changes
    are refused (BUCKET_BUSY).
    """
    volume_name, bucket_name = bucket_path(bucket)
    if bool(name) is bool(tag):
        raise typer.BadParameter("name either a snapshot or, with --tag, a tag to roll back to")
    with session_of(context) as session:
        if is_dry_run or not is_confirmed:
            target, newer = _rolled_back(session, bucket, name, tag)
            deletes = f", and deletes the newer snapshots {', '.join(newer)}" if newer else ""
            sentence = f"Rolling {bucket} back to {target} removes all that {bucket} has and {target} has not{deletes}."
            if is_dry_run:
                found = {"name": target, "tag": tag, "deletes_snapshots": newer, "is_dry_run": True}
                print_result(found, sentence, as_json=as_json)
                return
            confirm(sentence, is_confirmed=False)
        shard = session.volumes().shard_of(volume_name)
        snapshot_id = session.request(shard, RollBackBucket(volume_name, bucket_name, name, tag)).snapshot_id
    print_result(
        {"name": name, "tag": tag, "snapshot_id": snapshot_id},
        f"{bucket_name} has the content of {name or f'tag {tag}'} again ({snapshot_id})",
        as_json=as_json,
    )


def _rolled_back(session: Session, bucket: str, name: str, tag: str) -> tuple[str, list[str]]:
    """Return the snapshot to which a rollback goes, and those that it deletes.

    Raises:
        PlaneError: there is no such snapshot, or no such tag, or a tag protects a newer snapshot.
    """
    volume_name, bucket_name = bucket_path(bucket)
    names = session.bucket_of(volume_name, bucket_name)
    reads = session.snapshots(volume_name)
    rows = reads.snapshots(*names)
    tags = reads.tags(*names)
    ids = [one.snapshot_id for one in tags if one.tag == tag] if tag else []
    target = next((row for row in rows if row.snapshot_id in ids or (not tag and row.name == name)), None)
    if target is None:
        raise PlaneError("FILE_NOT_FOUND", f"{bucket} has no snapshot {name or f'with the tag {tag}'}")
    newer = [row for row in rows if row.create_txn > target.create_txn]
    by_id = _tags_by_snapshot(tags)
    for row in newer:
        if row.snapshot_id in by_id:
            raise PlaneError("TAGGED_SNAPSHOT", f"{row.name} would be deleted: {', '.join(by_id[row.snapshot_id])}")
    return target.name, [row.name for row in newer]


@app.command("list")
def list_snapshots(
    context: typer.Context,
    bucket: BucketArgument,
    with_deleted: Annotated[
        bool, typer.Option("--with-deleted", help="Include deleted snapshots that are not dropped yet.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """List the snapshots of a bucket, oldest first."""
    volume_name, bucket_name = bucket_path(bucket)
    with session_of(context) as session:
        found = session.metadata(volume_name).bucket(volume_name, bucket_name)  # raises for a missing bucket
        reads = session.snapshots(volume_name)
        rows = reads.snapshots(found.volume, found.bucket, with_deleted=with_deleted)
        tags = {} if as_json else _tags_by_snapshot(reads.tags(found.volume, found.bucket))
    if as_json:
        print_json(rows)
        return
    print_table(
        ["NAME", "STATUS", "CREATED", "REFERENCED", "EXCLUSIVE", "CLEAN", "TAGS", "ID"],
        (
            (
                row.name,
                _status(row),
                time_text(row.creation_time_ms),
                _referenced(row),
                _exclusive(row),
                _clean(row),
                ", ".join(tags.get(row.snapshot_id, ())),
                row.snapshot_id,
            )
            for row in rows
        ),
        numbers=["REFERENCED", "EXCLUSIVE"],
    )


@app.command()
def info(context: typer.Context, bucket: BucketArgument, name: SnapshotArgument, as_json: JsonOption = False) -> None:
    """Show one snapshot."""
    volume_name, bucket_name = bucket_path(bucket)
    with session_of(context) as session:
        reads, names = session.snapshots(volume_name), session.bucket_of(volume_name, bucket_name)
        row = reads.snapshot(*names, name)
        tags = {} if as_json else _tags_by_snapshot(reads.tags(*names))
    if as_json:
        print_json(row)
        return
    print_fields(
        [
            ("name", row.name),
            ("id", row.snapshot_id),
            ("bucket", f"{row.volume}/{row.bucket}"),
            ("status", _status(row)),
            ("created", time_text(row.creation_time_ms)),
            ("deleted", time_text(row.deletion_time_ms) or "no"),
            ("captured at", f"txn {row.create_txn}"),
            ("previous in bucket", row.path_previous_snapshot_id or "none"),
            ("previous in shard", row.global_previous_snapshot_id or "none"),
            ("referenced", _referenced(row)),
            ("exclusive", f"{_exclusive(row)} (freed when it is deleted)"),
            ("clean", _clean(row)),
            ("tags", ", ".join(tags.get(row.snapshot_id, ())) or "none"),
        ]
    )


def _tags_by_snapshot(tags: list[SnapshotTag]) -> dict[str, list[str]]:
    """Return the names of the tags that protect each snapshot, by snapshot id."""
    names: dict[str, list[str]] = {}
    for tag in tags:
        names.setdefault(tag.snapshot_id, []).append(tag.tag)
    return names


def _status(row: SnapshotInfo) -> str:
    return row.status.removeprefix("SNAPSHOT_").lower()


def _referenced(row: SnapshotInfo) -> str:
    return size_text(row.referenced_bytes, row.referenced_replicated_bytes, is_exact=row.is_referenced_exact)


def _exclusive(row: SnapshotInfo) -> str:
    replicated_bytes = row.exclusive_replicated_bytes + row.exclusive_delta_replicated_bytes
    return size_text(row.exclusive_bytes + row.exclusive_delta_bytes, replicated_bytes, is_exact=row.is_exclusive_exact)


def _clean(row: SnapshotInfo) -> str:
    """Return the kinds of rows in the snapshot's garbage range that were all judged, with nothing left to reclaim."""
    flags = {"keys": row.has_deep_cleaned_keys, "directories": row.has_deep_cleaned_directories}
    return " and ".join(kind for kind, is_cleaned in flags.items() if is_cleaned) or "not yet"
