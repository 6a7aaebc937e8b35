"""``deepclean consumer``: named readers of snapshots. A snapshot that a consumer has not read does not expire."""

from __future__ import annotations

from typing import Annotated

import typer

from schemas.records import DeleteConsumer, SetConsumer
from services.cli.arguments import BucketArgument
from services.cli.output import print_json, print_result, print_table
from services.cli.session import JsonOption, bucket_path, request, session_of
from services.wording.figures import time_text

app = typer.Typer(no_args_is_help=True, help="Protect the snapshots that a named consumer has not read yet.")
ConsumerArgument = Annotated[
    str, typer.Argument(metavar="CONSUMER", help="Name of the consumer, unique in the bucket.")
]


@app.command("set")
def set_consumer(
    context: typer.Context,
    bucket: BucketArgument,
    consumer: ConsumerArgument,
    next_snapshot: Annotated[str, typer.Option("--next", help="The snapshot that the consumer reads next.")] = "",
    read_snapshot: Annotated[
        str, typer.Option("--after", help="The snapshot that the consumer has read; it reads the following one next.")
    ] = "",
    as_json: JsonOption = False,
) -> None:
    """Record the position of a consumer. This also postpones the expiry of the consumer."""
    if bool(next_snapshot) == bool(read_snapshot):
        raise typer.BadParameter("give --next SNAPSHOT or --after SNAPSHOT, one of the two")
    volume_name, bucket_name = bucket_path(bucket)
    snapshot = next_snapshot or read_snapshot
    asked = SetConsumer(volume_name, bucket_name, consumer, snapshot, is_behind=bool(read_snapshot))
    reply = request(context, volume_name, asked)
    print_result(
        {"consumer": consumer, "snapshot": snapshot, "snapshot_id": reply.snapshot_id},
        f"consumer {consumer} reads next {'the snapshot after ' if read_snapshot else ''}{snapshot}",
        as_json=as_json,
    )


@app.command()
def delete(
    context: typer.Context, bucket: BucketArgument, consumer: ConsumerArgument, as_json: JsonOption = False
) -> None:
    """Remove a consumer; it protects no snapshots any longer."""
    volume_name, bucket_name = bucket_path(bucket)
    request(context, volume_name, DeleteConsumer(volume_name, bucket_name, consumer))
    print_result({"consumer": consumer}, f"consumer {consumer} deleted", as_json=as_json)


@app.command("list")
def list_consumers(context: typer.Context, bucket: BucketArgument, as_json: JsonOption = False) -> None:
    """List the consumers of a bucket, by name."""
    volume_name, bucket_name = bucket_path(bucket)
    with session_of(context) as session:
        row = session.metadata(volume_name).bucket(volume_name, bucket_name)  # raises for a missing bucket
        consumers = session.snapshots(volume_name).consumers(row.volume, row.bucket)
    if as_json:
        print_json(consumers)
        return
    print_table(
        ["CONSUMER", "READS NEXT", "HEARD OF"],
        ((one.consumer, one.next_snapshot or "has read all", time_text(one.seen_time_ms)) for one in consumers),
    )
