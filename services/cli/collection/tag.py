"""``deepclean tag``: protect snapshots with tags. A tagged snapshot does not expire and cannot be deleted."""

from __future__ import annotations

from typing import Annotated

import typer

from schemas.records import CreateTag, DeleteTag
from services.cli.amounts import duration_ms
from services.cli.arguments import BucketArgument, snapshot_candidates
from services.cli.output import print_json, print_result, print_table
from services.cli.session import JsonOption, bucket_path, request, session_of
from services.wording.figures import time_text

app = typer.Typer(no_args_is_help=True, help="Protect snapshots by named tags.")
TagArgument = Annotated[str, typer.Argument(metavar="TAG", help="Name of the tag, unique in the bucket.")]


@app.command()
def create(
    context: typer.Context,
    bucket: BucketArgument,
    snapshot: Annotated[
        str, typer.Argument(metavar="SNAPSHOT", help="Name of the snapshot.", autocompletion=snapshot_candidates)
    ],
    tag: TagArgument,
    owner: Annotated[str, typer.Option(help="Owner of the tag.")] = "",
    reason: Annotated[str, typer.Option(help="Purpose of the tag.")] = "",
    time_to_live: Annotated[str, typer.Option(help="Lifetime of the tag, such as 30d; 0: unlimited.")] = "0",
    as_json: JsonOption = False,
) -> None:
    """Protect a snapshot with a tag: it does not expire and cannot be deleted."""
    volume_name, bucket_name = bucket_path(bucket)
    asked = CreateTag(volume_name, bucket_name, snapshot, tag, owner, reason, duration_ms(time_to_live))
    reply = request(context, volume_name, asked)
    made = {"tag": tag, "snapshot": snapshot, "snapshot_id": reply.snapshot_id}
    print_result(made, f"tag {tag} protects snapshot {snapshot}", as_json=as_json)


@app.command()
def delete(context: typer.Context, bucket: BucketArgument, tag: TagArgument, as_json: JsonOption = False) -> None:
    """Delete a tag. The snapshot may then expire or be deleted."""
    volume_name, bucket_name = bucket_path(bucket)
    reply = request(context, volume_name, DeleteTag(volume_name, bucket_name, "", tag))
    print_result({"tag": tag, "snapshot_id": reply.snapshot_id}, f"tag {tag} deleted", as_json=as_json)


@app.command("list")
def list_tags(context: typer.Context, bucket: BucketArgument, as_json: JsonOption = False) -> None:
    """List the tags of a bucket, by name."""
    volume_name, bucket_name = bucket_path(bucket)
    with session_of(context) as session:
        row = session.metadata(volume_name).bucket(volume_name, bucket_name)  # raises for a missing bucket
        tags = session.snapshots(volume_name).tags(row.volume, row.bucket)
    if as_json:
        print_json(tags)
        return
    print_table(
        ["TAG", "SNAPSHOT", "OWNER", "REASON", "CREATED", "UNTIL"],
        (
            (one.tag, one.snapshot, one.owner, one.reason, *map(time_text, (one.creation_time_ms, one.expiry_time_ms)))
            for one in tags
        ),
    )
