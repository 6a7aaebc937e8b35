"""``deepclean ledger``: list and export the records of freed versions: when and why each was freed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import Annotated, Any

import typer

from schemas.access import group_prefix
from schemas.topics import CLIENTS
from services.cli.operate.plane_log import log_of
from services.cli.output import print_fields, print_json, print_table
from services.cli.session import JsonOption, bucket_path, session_of
from services.cli.terminal import say
from services.client.kafka_plane import KafkaPlane
from services.client.tasks.ledger_reads import BEGINNING, LedgerFilter, Place, place_of, read_ledger
from services.domain.ledger_rows import LedgerRow
from services.domain.replication import redundancy_bytes
from services.domain.words import counted
from services.plane.upkeep.ledger_export import ExportError, export_ledger
from services.wording.figures import bytes_text, on_disks, time_text

app = typer.Typer(no_args_is_help=True, help="Show why and when versions were freed; each record is kept forever.")
CLIENT_ID = f"{group_prefix(CLIENTS)}ledger"
DEFAULT_LIMIT = 100


@app.command("list")
def list_rows(
    context: typer.Context,
    bucket: Annotated[str, typer.Argument(metavar="[VOLUME/BUCKET]", help="Only versions of this bucket.")] = "",
    shard: Annotated[int | None, typer.Option(min=0, help="Shard [0]; with a bucket, the bucket's own.")] = None,
    bucket_id: Annotated[
        int | None, typer.Option(help="Only versions of the bucket with this id, which may be deleted.")
    ] = None,
    since: Annotated[str, typer.Option(help="Freed at this time or later: 2026-11-21T16:00, in UTC.")] = "",
    before: Annotated[str, typer.Option(help="Freed before this time.")] = "",
    start: Annotated[str, typer.Option("--from", help="Continue here: the value that the previous page printed.")] = "",
    limit: Annotated[int, typer.Option(min=1, help="Maximum number of rows.")] = DEFAULT_LIMIT,
    as_json: JsonOption = False,
) -> None:
    """List freed versions, oldest first, page by page."""
    if bucket and not (shard is None and bucket_id is None):
        raise typer.BadParameter("VOLUME/BUCKET has its own: leave --shard and --bucket-id out, or name no bucket")
    with session_of(context) as session:
        if bucket:
            volume, name = bucket_path(bucket)
            shard, bucket_id = (
                session.volumes().shard_of(volume),
                session.metadata(volume).bucket(volume, name).object_id,
            )
        wanted = LedgerFilter(
            bucket_id or 0, since_ms=_moment(since, "--since") or 0, before_ms=_moment(before, "--before")
        )
        log, (chosen,) = log_of(session, CLIENT_ID), session.shards([shard or 0])
        rows = read_ledger(log, chosen, wanted, _place(start))
        page = list(islice(rows, limit + 1))
    following = str(page[limit][0]) if len(page) > limit else ""
    if as_json:
        print_json({"rows": [_fields(*row) for row in page[:limit]], "next": following})
        return
    print_table(
        ["FREED (UTC)", "BUCKET", "OBJECT", "BIRTH", "DEATH", "SNAPSHOT BEFORE", "SNAPSHOT AFTER", "BYTES", "ROW"],
        (_cells(place, row) for place, row in page[:limit]),
        numbers=["BUCKET", "OBJECT", "BIRTH", "DEATH", "SNAPSHOT BEFORE", "SNAPSHOT AFTER", "BYTES"],
    )
    if following:
        say("", f"There are more rows: continue with --from {following}")


@app.command()
def show(
    context: typer.Context,
    object_id: Annotated[str, typer.Argument(metavar="ID", help="An object's id; with --block a block's.")],
    is_block: Annotated[bool, typer.Option("--block", help="The id is the local id of a block.")] = False,
    shard: Annotated[int, typer.Option(min=0, help="Shard of the object or block.")] = 0,
    as_json: JsonOption = False,
) -> None:
    """Show why and when the versions of an object, or the version with a block, were freed."""
    number = _number_of(object_id)
    wanted = LedgerFilter(block_id=number) if is_block else LedgerFilter(object_id=number)
    with session_of(context) as session:
        log, (chosen,) = log_of(session, CLIENT_ID), session.shards([shard])
        rows = list(read_ledger(log, chosen, wanted))
    if as_json:
        print_json([_fields(*row) for row in rows])
        return
    if not rows:
        say(f"Nothing of it was freed in shard {shard}. Who holds it: deepclean explain.")
    for place, row in rows:
        print_fields(_story(shard, place, row))
        say("")


def _number_of(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        why = f"{text} is no id. Of a path, deepclean trace show VOLUME/BUCKET/PATH gives it."
        raise typer.BadParameter(why) from None


@app.command()
def export(
    context: typer.Context,
    directory: Annotated[Path, typer.Argument(help="Directory for the files; used by this export only.")],
    heap: Annotated[str, typer.Option(help="Heap of Spark's driver.")] = "1g",
    as_json: JsonOption = False,
) -> None:
    """Export new ledger records to Parquet files, one row for each version. The next run resumes there."""
    with session_of(context) as session:
        plane = session.connected()
        if not isinstance(plane, KafkaPlane):
            raise ExportError("the export needs a plane with a broker: start one (deepclean up)")
        written = export_ledger(plane.address.bootstrap_servers, session.home, directory, heap)
    if as_json:
        print_json({"rows": written.rows, "unreadable": written.unreadable})
    else:
        say(f"{counted(written.rows, 'new row')} in {directory / 'rows'}.")
        if written.unreadable:
            unreadable = counted(written.unreadable, "message")
            say(f"{unreadable} could not be read and are in {directory / 'unreadable'}: find their writer.")


def _moment(text: str, option: str) -> int | None:
    if not text:
        return None
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        raise typer.BadParameter(f"{text!r} is not a time: write 2026-11-21T16:00", param_hint=option) from error
    return int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000)


def _place(text: str) -> Place:
    try:
        return place_of(text) if text else BEGINNING
    except ValueError as error:
        raise typer.BadParameter(f"{text!r} is not a row of the ledger: write 4711:0", param_hint="--from") from error


def _fields(place: Place, row: LedgerRow) -> dict[str, Any]:
    """Return a row as JSON fields, with the claim's fields at the same level."""
    fields = {**asdict(row), "replicated_bytes": _replicated_bytes(row)}
    return {"row": str(place), **fields.pop("claim"), **fields}


def _cells(place: Place, row: LedgerRow) -> list[object]:
    return [
        *(time_text(row.finish_time_ms), row.bucket_id, row.object_id, row.birth, row.death),
        *(row.claim.previous_txn or "none", row.claim.next_txn or "none", bytes_text(row.size_bytes), place),
    ]


def _story(shard: int, place: Place, row: LedgerRow) -> Iterator[tuple[str, object]]:
    claim = row.claim
    yield "version", f"born at txn {row.birth} of object {row.object_id}, bucket {row.bucket_id}"
    yield "died", f"at txn {row.death}"
    yield "its path and its way", f"deepclean trace show {row.death} --shard {shard} --since 1d"
    yield "held by", "no snapshot: none that was live at the claim lay between birth and death"
    yield "snapshot before the death", f"txn {claim.previous_txn}" if claim.previous_txn else "none was live"
    yield "snapshot after the birth", f"txn {claim.next_txn}" if claim.next_txn else "none was live"
    first = claim.first_judge_version or "unknown"
    yield "judged with chain version", f"{first} (streaming), {claim.second_judge_version} (key_deletion)"
    asked = f"chain version {claim.chain_version}, asked by task {claim.task} of key_deletion"
    yield "claimed", f"at txn {claim.claim_txn}, {time_text(claim.claim_time_ms)}, {asked}"
    yield "confirmed by", f"{time_text(row.finish_time_ms)}, txn {row.finish_txn}"
    last = row.first_local_id + row.block_count - 1
    blocks = f"{row.first_local_id} to {last}" if row.block_count > 1 else str(row.first_local_id)
    size = f"{bytes_text(row.size_bytes)}{on_disks(row.size_bytes, _replicated_bytes(row))}"
    yield "blocks", f"{blocks} of container {row.container_id}, {size}"
    yield "row", place


def _replicated_bytes(row: LedgerRow) -> int:
    blocks = row.container_id, row.block_count, row.block_size_bytes, row.size_bytes
    return row.size_bytes + redundancy_bytes(*blocks)
