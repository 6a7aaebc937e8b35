"""``deepclean bucket``: create, delete and list buckets, and show their bytes by state."""

from __future__ import annotations

from dataclasses import asdict
from enum import StrEnum
from typing import Annotated

import typer

from schemas.answers import BucketSpace
from schemas.records import BucketLayout, BucketRow, CreateBucket, DeleteBucket
from services.cli.output import bytes_text, print_fields, print_json, print_result, print_table, time_text
from services.cli.session import BucketArgument, JsonOption, bucket_path, execute, session_of
from services.cli.terminal import say
from services.client.wire.paging import all_rows


class LayoutName(StrEnum):
    """Bucket layouts by Ozone's names and their short forms."""

    FSO = "FSO"
    OBS = "OBS"
    LEGACY = "LEGACY"
    FILE_SYSTEM_OPTIMIZED = "FILE_SYSTEM_OPTIMIZED"
    OBJECT_STORE = "OBJECT_STORE"


_LAYOUTS = {
    LayoutName.FSO: BucketLayout.FILE_SYSTEM_OPTIMIZED,
    LayoutName.OBS: BucketLayout.OBJECT_STORE,
    **{LayoutName(layout.value): layout for layout in BucketLayout},
}

app = typer.Typer(no_args_is_help=True, help="Create, delete and list buckets, and show their bytes by state.")


@app.command()
def create(
    context: typer.Context,
    bucket: BucketArgument,
    layout: Annotated[LayoutName, typer.Option(help="A tree of directories, or flat keys.")] = LayoutName.FSO,
    as_json: JsonOption = False,
) -> None:
    """Create a bucket."""
    volume_name, bucket_name = bucket_path(bucket)
    chosen = _LAYOUTS[layout]
    reply = execute(context, volume_name, CreateBucket(volume_name, bucket_name, chosen))
    made = {"volume": volume_name, "bucket": bucket_name, "layout": chosen, "txn": reply.txn}
    print_result(made, f"bucket {volume_name}/{bucket_name} created ({chosen})", as_json=as_json)


@app.command()
def delete(context: typer.Context, bucket: BucketArgument, as_json: JsonOption = False) -> None:
    """Delete a bucket that is empty and has no snapshots."""
    volume_name, bucket_name = bucket_path(bucket)
    reply = execute(context, volume_name, DeleteBucket(volume_name, bucket_name))
    removed = {"volume": volume_name, "bucket": bucket_name, "txn": reply.txn}
    print_result(removed, f"bucket {volume_name}/{bucket_name} deleted", as_json=as_json)


@app.command("list")
def list_buckets(
    context: typer.Context,
    volume: Annotated[str, typer.Argument(metavar="VOLUME", help="Name of the volume.")],
    as_json: JsonOption = False,
) -> None:
    """List the buckets of a volume."""
    with session_of(context) as session:
        reads = session.metadata(volume)
        rows = list(
            all_rows(lambda after, limit: reads.buckets(volume, start_after=after, limit=limit), lambda row: row.bucket)
        )
    if as_json:
        print_json(rows)
        return
    print_table(
        ["BUCKET", "LAYOUT", "CREATED", "LIVE", "LIVE ENTRIES", "DELETED", "DELETED ENTRIES"],
        (
            (
                row.bucket,
                row.layout,
                time_text(row.creation_time_ms),
                bytes_text(row.used_bytes),
                row.used_namespace,
                bytes_text(row.snapshot_used_bytes),
                row.snapshot_used_namespace,
            )
            for row in rows
        ),
        numbers=["LIVE", "LIVE ENTRIES", "DELETED", "DELETED ENTRIES"],
    )


@app.command()
def info(context: typer.Context, bucket: BucketArgument, as_json: JsonOption = False) -> None:
    """Show a bucket, and where its bytes are: live, held by snapshots, pending, claimed, freed."""
    volume_name, bucket_name = bucket_path(bucket)
    with session_of(context) as session:
        reads = session.metadata(volume_name)
        row = reads.bucket(volume_name, bucket_name)
        space = reads.space(volume_name, bucket_name)
    if as_json:
        print_json({**asdict(row), "space": space})
    else:
        _print_info(row, space)


def _print_info(row: BucketRow, space: BucketSpace) -> None:
    print_fields(
        [
            ("bucket", f"{row.volume}/{row.bucket}"),
            ("layout", row.layout),
            ("created", time_text(row.creation_time_ms)),
            ("as of txn", space.txn),
            ("live snapshots", space.live_snapshots),
            ("unexpanded directories", space.unexpanded_directories),
        ]
    )
    say("")
    print_table(
        ["WHERE", "BYTES", "VERSIONS", "MEANING"],
        [
            (state, bytes_text(size_bytes), versions, meaning)
            for state, size_bytes, versions, meaning in (
                ("live", space.live_bytes, space.live_namespace, "in the active namespace, including directories"),
                ("held", space.held_bytes, space.held_versions, "deleted, and held by a snapshot"),
                ("pending", space.pending_bytes, space.pending_versions, "not held, not yet claimed"),
                ("claimed", space.claimed_bytes, space.claimed_versions, "sent to the block store for deletion"),
                ("freed", space.freed_bytes, space.freed_versions, "confirmed by the block store, in total"),
            )
        ],
        numbers=["BYTES", "VERSIONS"],
    )
