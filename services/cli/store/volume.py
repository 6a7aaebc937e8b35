"""``deepclean volume``: create, delete and list volumes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import Annotated

import typer

from schemas.records import CreateVolume, DeleteVolume, SetOwner, SetQuota, VolumeRow
from services.cli.output import print_json, print_result, print_table
from services.cli.session import JsonOption, session_of
from services.cli.store.quota import (
    NO_QUOTA,
    BytesQuotaOption,
    NamesQuotaOption,
    bytes_quota_text,
    names_quota_text,
    quota_bytes_of,
)
from services.client.plane import Plane
from services.client.wire.paging import all_rows
from services.wording.figures import time_text

app = typer.Typer(no_args_is_help=True, help="Create, delete and list volumes.")
VolumeArgument = Annotated[str, typer.Argument(metavar="VOLUME", help="Name of the volume.")]


@app.command()
def create(
    context: typer.Context,
    volume: VolumeArgument,
    owner: Annotated[str, typer.Option(help="Owner of the volume.")] = "",
    shard: Annotated[
        int | None, typer.Option(help="Shard of the volume, permanently; by default the one with the least load.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Create a volume."""
    with session_of(context) as session:
        chosen = session.volumes().shard_for_new(volume, shard)
        reply = session.execute(chosen, CreateVolume(volume, owner))
    made = {"volume": volume, "shard": chosen, "txn": reply.txn}
    print_result(made, f"volume {volume} created in shard {chosen}", as_json=as_json)


@app.command()
def delete(context: typer.Context, volume: VolumeArgument, as_json: JsonOption = False) -> None:
    """Delete an empty volume."""
    with session_of(context) as session:
        shard = session.volumes().shard_of(volume)
        reply = session.execute(shard, DeleteVolume(volume))
    print_result({"volume": volume, "shard": shard, "txn": reply.txn}, f"volume {volume} removed", as_json=as_json)


@app.command()
def quota(
    context: typer.Context,
    volume: VolumeArgument,
    most_bytes: BytesQuotaOption = "none",
    quota_namespace: NamesQuotaOption = NO_QUOTA,
    as_json: JsonOption = False,
) -> None:
    """Set the quotas of a volume: the sum of its buckets' quotas of bytes, and the number of its buckets.

    A quota that is not given is removed.
    """
    with session_of(context) as session:
        shard = session.volumes().shard_of(volume)
        quota_bytes = quota_bytes_of(most_bytes)
        reply = session.execute(shard, SetQuota(volume, "", quota_bytes, quota_namespace))
    made = {"quota_bytes": quota_bytes, "quota_namespace": quota_namespace, "txn": reply.txn}
    text = f"{bytes_quota_text(quota_bytes)} for bytes, {names_quota_text(quota_namespace)} for buckets"
    print_result(made, f"quotas of {volume}: {text}", as_json=as_json)


@app.command()
def owner(
    context: typer.Context,
    volume: VolumeArgument,
    user: Annotated[str, typer.Argument(metavar="USER", help="The new owner.")],
    as_json: JsonOption = False,
) -> None:
    """Give a volume another owner."""
    with session_of(context) as session:
        reply = session.execute(session.volumes().shard_of(volume), SetOwner(volume, "", user))
    print_result({"volume": volume, "owner": user, "txn": reply.txn}, f"{volume} belongs to {user}", as_json=as_json)


@app.command("list")
def list_volumes(
    context: typer.Context,
    user: Annotated[str, typer.Option("--owner", help="Only the volumes of this user.")] = "",
    as_json: JsonOption = False,
) -> None:
    """List the volumes of all shards."""
    with session_of(context) as session:
        plane = session.connected()
        found = [(shard, row) for shard in range(plane.shards) for row in _volumes_of(plane, shard, user)]
    found.sort(key=lambda shard_and_row: shard_and_row[1].volume)
    if as_json:
        print_json([{"shard": shard, **asdict(row)} for shard, row in found])
        return
    print_table(
        ["VOLUME", "SHARD", "OWNER", "CREATED"],
        ((row.volume, shard, row.owner, time_text(row.creation_time_ms)) for shard, row in found),
        numbers=["SHARD"],
    )


def _volumes_of(plane: Plane, shard: int, user: str) -> Iterator[VolumeRow]:
    reads = plane.metadata(shard)
    return all_rows(
        lambda after, limit: reads.volumes(user=user, start_after=after, limit=limit), lambda row: row.volume
    )
