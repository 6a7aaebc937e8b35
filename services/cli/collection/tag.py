"""``deepclean tag``: protect snapshots with tags. A tagged snapshot does not expire and cannot be deleted."""

from __future__ import annotations

from typing import Annotated

import typer

from schemas.records import CreateTag, DeleteTag
from services.cli.amounts import duration_ms
from services.cli.output import print_json, print_table, time_text
from services.cli.session import JsonOption, bucket_path, session_of
from services.cli.terminal import say

app = typer.Typer(no_args_is_help=True, help="Protect snapshots by named tags.")
BucketArgument = Annotated[str, typer.Argument(metavar="VOLUME/BUCKET", help="The bucket.")]
TagArgument = Annotated[str, typer.Argument(metavar="TAG", help="Name of the tag, unique in the bucket.")]


@app.command()
def create(
    context: typer.Context,
    bucket: BucketArgument,
    snapshot: Annotated[str, typer.Argument(metavar="SNAPSHOT", help="Name of the snapshot.")],
    tag: TagArgument,
    owner: Annotated[str, typer.Option(help="Owner of the tag.")] = "",
    reason: Annotated[str, typer.Option(help="What it is for.")] = "",
    time_to_live: Annotated[str, typer.Option(help="Lifetime of the tag, such as 30d; 0: unlimited.")] = "0",
    as_json: JsonOption = False,
) -> None:
    """Protect a snapshot with a tag: it does not expire and cannot be deleted."""
    volume_name, bucket_name = bucket_path(bucket)
    request = CreateTag(volume_name, bucket_name, snapshot, tag, owner, reason, duration_ms(time_to_live))
    with session_of(context) as session:
        reply = session.request(session.volumes().shard_of(volume_name), request)
    if as_json:
        print_json({"tag": tag, "snapshot": snapshot, "snapshot_id": reply.snapshot_id})
    else:
        say(f"tag {tag} holds snapshot {snapshot}")


@app.command()
def delete(context: typer.Context, bucket: BucketArgument, tag: TagArgument, as_json: JsonOption = False) -> None:
    """Delete a tag. The snapshot may then expire or be deleted."""
    volume_name, bucket_name = bucket_path(bucket)
    with session_of(context) as session:
        shard = session.volumes().shard_of(volume_name)
        reply = session.request(shard, DeleteTag(volume_name, bucket_name, "", tag))
    if as_json:
        print_json({"tag": tag, "snapshot_id": reply.snapshot_id})
    else:
        say(f"tag {tag} deleted")


@app.command("list")
def list_tags(context: typer.Context, bucket: BucketArgument, as_json: JsonOption = False) -> None:
    """List the tags of a bucket, by name."""
    volume_name, bucket_name = bucket_path(bucket)
    with session_of(context) as session:
        shard = session.volumes().shard_of(volume_name)
        session.connected().metadata(shard).bucket(volume_name, bucket_name)  # raises for a missing bucket
        tags = session.connected().snapshots(shard).tags(volume_name, bucket_name)
    if as_json:
        print_json(tags)
        return
    print_table(
        ["TAG", "SNAPSHOT", "OWNER", "REASON", "CREATED", "UNTIL"],
        (
            (
                tag.tag,
                tag.snapshot,
                tag.owner,
                tag.reason,
                time_text(tag.creation_time_ms),
                time_text(tag.expiry_time_ms),
            )
            for tag in tags
        ),
    )
