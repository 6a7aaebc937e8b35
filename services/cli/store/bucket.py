"""``deepclean bucket``: create, delete and list buckets, and show their bytes by state."""

from __future__ import annotations

from dataclasses import asdict
from enum import StrEnum
from typing import Annotated

import typer

from schemas.answers import BucketSpace
from schemas.records import (
    BucketLayout,
    BucketRow,
    BucketVersioning,
    CreateBucket,
    CreateBucketLink,
    DeleteBucket,
    Replication,
    SetBucketReplication,
    SetBucketVersioning,
    SetDefaultReplication,
    SetOwner,
    SetQuota,
)
from services.cli.arguments import BucketArgument
from services.cli.output import print_fields, print_json, print_result, print_table
from services.cli.session import JsonOption, bucket_path, execute, session_of
from services.cli.store.quota import (
    NO_QUOTA,
    BytesQuotaOption,
    NamesQuotaOption,
    bytes_quota_text,
    names_quota_text,
    quota_bytes_of,
)
from services.cli.terminal import say
from services.client.wire.paging import all_rows
from services.wording.figures import bytes_text, time_text


class VersioningState(StrEnum):
    """What versioning of a bucket can be set to."""

    ENABLED = "enabled"
    SUSPENDED = "suspended"


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
    replication: Annotated[
        Replication | None, typer.Option(help="Replication of its blocks; by default that of the plane.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Create a bucket."""
    volume_name, bucket_name = bucket_path(bucket)
    chosen = _LAYOUTS[layout]
    reply = execute(context, volume_name, CreateBucket(volume_name, bucket_name, chosen))
    if replication is not None:  # a bucket whose second step fails can be deleted, or get its replication afterwards
        reply = execute(context, volume_name, SetBucketReplication(volume_name, bucket_name, replication))
    made: dict[str, object] = {"volume": volume_name, "bucket": bucket_name, "layout": chosen, "txn": reply.txn}
    text = f"bucket {volume_name}/{bucket_name} created ({chosen})"
    if replication is not None:
        made |= {"replication": replication}
        text += f", with {replication}"
    print_result(made, text, as_json=as_json)


@app.command()
def link(
    context: typer.Context,
    bucket: BucketArgument,
    source: Annotated[str, typer.Argument(metavar="SOURCE", help="VOLUME/BUCKET to which the link leads.")],
    as_json: JsonOption = False,
) -> None:
    """Create a bucket that is a link to another one of the same shard."""
    (volume_name, bucket_name), (source_volume, source_bucket) = bucket_path(bucket), bucket_path(source)
    command = CreateBucketLink(volume_name, bucket_name, source_volume, source_bucket)
    reply = execute(context, volume_name, command)
    made = {
        "volume": volume_name,
        "bucket": bucket_name,
        "source": f"{source_volume}/{source_bucket}",
        "txn": reply.txn,
    }
    print_result(made, f"bucket {volume_name}/{bucket_name} is a link to {made['source']}", as_json=as_json)


@app.command()
def quota(
    context: typer.Context,
    bucket: BucketArgument,
    most_bytes: BytesQuotaOption = "none",
    quota_namespace: NamesQuotaOption = NO_QUOTA,
    as_json: JsonOption = False,
) -> None:
    """Set the quotas of a bucket. A quota that is not given is removed.

    They count live bytes and names, and deleted ones until they are freed.
    """
    volume_name, bucket_name = bucket_path(bucket)
    quota_bytes = quota_bytes_of(most_bytes)
    reply = execute(context, volume_name, SetQuota(volume_name, bucket_name, quota_bytes, quota_namespace))
    made = {"quota_bytes": quota_bytes, "quota_namespace": quota_namespace, "txn": reply.txn}
    text = f"{bytes_quota_text(quota_bytes)} for bytes, {names_quota_text(quota_namespace)} for names"
    print_result(made, f"quotas of {volume_name}/{bucket_name}: {text}", as_json=as_json)


@app.command()
def versioning(
    context: typer.Context,
    bucket: BucketArgument,
    state: Annotated[VersioningState, typer.Argument(metavar="STATE", help="enabled or suspended.")],
    as_json: JsonOption = False,
) -> None:
    """Keep versions of keys that are overwritten from now on, or suspend this. Versions kept so far stay."""
    volume_name, bucket_name = bucket_path(bucket)
    chosen = BucketVersioning(state.value.upper())
    reply = execute(context, volume_name, SetBucketVersioning(volume_name, bucket_name, chosen))
    made = {"volume": volume_name, "bucket": bucket_name, "versioning": chosen, "txn": reply.txn}
    print_result(made, f"versioning of {volume_name}/{bucket_name} is {state.value}", as_json=as_json)


@app.command("set-replication")
def set_replication(
    context: typer.Context,
    bucket: BucketArgument,
    replication: Annotated[
        Replication, typer.Argument(metavar="REPLICATION", help=f"One of {', '.join(Replication)}.")
    ],
    as_json: JsonOption = False,
) -> None:
    """Set the replication of blocks that are allocated from now on. Existing blocks stay as they are."""
    volume_name, bucket_name = bucket_path(bucket)
    reply = execute(context, volume_name, SetBucketReplication(volume_name, bucket_name, replication))
    made = {"volume": volume_name, "bucket": bucket_name, "replication": replication, "txn": reply.txn}
    print_result(made, f"replication of {volume_name}/{bucket_name} is {replication}", as_json=as_json)


@app.command("default-replication")
def default_replication(
    context: typer.Context,
    replication: Annotated[Replication, typer.Argument(metavar="REPLICATION", help="As for set-replication.")],
    as_json: JsonOption = False,
) -> None:
    """Set the replication of buckets that are created from now on, in all shards. For administrators."""
    with session_of(context) as session:
        for shard in range(session.connected().shards):
            session.execute(shard, SetDefaultReplication(replication))
    print_result({"replication": replication}, f"new buckets have the replication {replication}", as_json=as_json)


@app.command()
def owner(
    context: typer.Context,
    bucket: BucketArgument,
    user: Annotated[str, typer.Argument(metavar="USER", help="The new owner; empty: that of the volume.")],
    as_json: JsonOption = False,
) -> None:
    """Give a bucket another owner than its volume has."""
    volume_name, bucket_name = bucket_path(bucket)
    reply = execute(context, volume_name, SetOwner(volume_name, bucket_name, user))
    made = {"volume": volume_name, "bucket": bucket_name, "owner": user, "txn": reply.txn}
    whose = user or "the owner of its volume"
    print_result(made, f"{volume_name}/{bucket_name} belongs to {whose}", as_json=as_json)


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
                f"link to {row.source_volume}/{row.source_bucket}" if row.source_bucket else row.layout,
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
            ("versioning", row.versioning.lower()),
            ("replication", row.replication),
            ("created", time_text(row.creation_time_ms)),
            ("quota", f"{bytes_quota_text(row.quota_bytes)}, {names_quota_text(row.quota_namespace)} for names"),
            ("as of txn", space.txn),
            ("live snapshots", space.live_snapshots),
            ("unexpanded directories", space.unexpanded_directories),
        ]
    )
    say("")
    print_table(
        ["WHERE", "BYTES", "ON DISKS", "VERSIONS", "MEANING"],
        [
            (
                state,
                bytes_text(getattr(space, f"{state}_bytes")),
                bytes_text(getattr(space, f"{state}_replicated_bytes")),
                space.live_namespace if state == "live" else getattr(space, f"{state}_versions"),
                meaning,
            )
            for state, meaning in (
                ("live", "in the active namespace, including directories"),
                ("held", "deleted, and held by a snapshot"),
                ("pending", "not held, not yet claimed"),
                ("claimed", "sent to the block store for deletion"),
                ("freed", "confirmed by the block store, in total"),
            )
        ],
        numbers=["BYTES", "ON DISKS", "VERSIONS"],
    )
