"""``deepclean blocks``: the datanodes, the deletions that they have yet to carry out, and blocks that are lost."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

import typer

from schemas.records import BlockRun
from services.cli.exit_status import ExitStatus
from services.cli.output import print_fields, print_json, print_table
from services.cli.session import JsonOption, Session, session_of
from services.cli.terminal import say
from services.client.plane import Plane
from services.client.tasks.key_bytes import lost_blocks
from services.domain.words import counted
from services.wording.figures import bytes_text

app = typer.Typer(
    no_args_is_help=True, help="Show the datanodes, deletions that they do not acknowledge, and blocks that are lost."
)
ShardOption = Annotated[list[int] | None, typer.Option("--shard", help="Only this shard; may be repeated.")]


@app.command()
def status(context: typer.Context, shard: ShardOption = None, as_json: JsonOption = False) -> None:
    """Show the datanodes, the containers by state, and the log of deleted blocks."""
    with session_of(context) as session:
        found = {one: session.connected().block_store(one).status() for one in session.shards(shard)}
    if as_json:
        print_json([{"shard": one, "status": status} for one, status in found.items()])
        return
    for number, one in found.items():
        say(f"shard {number}: {'bytes are on datanodes' if one.replication else 'no datanodes, an inventory only'}")
        print_table(
            ["DATANODE", "STATE", "DISKS", "CONTAINERS", "BYTES", "DAMAGED", "DELETIONS", "WHERE"],
            (
                (
                    node.node,
                    "alive" if node.is_alive else "dead",
                    node.volumes,
                    f"{node.containers:,}",
                    bytes_text(node.used_bytes),
                    f"{node.damaged_blocks:,}",
                    f"{node.waiting_transactions:,}",
                    node.url,
                )
                for node in one.nodes
            ),
            numbers=["DISKS", "CONTAINERS", "BYTES", "DAMAGED", "DELETIONS"],
        )
        states = ", ".join(f"{count:,} {state}" for state, count in one.containers.items())
        print_fields(
            [
                ("containers", states or "none"),
                ("with too few copies", f"{one.under_replicated:,}"),
                ("without any copy", f"{one.lost_containers:,}"),
                ("deletions to acknowledge", f"{one.waiting_transactions:,}"),
                ("deletions parked", f"{one.parked_transactions:,}"),
            ]
        )


@app.command()
def parked(
    context: typer.Context,
    shard: ShardOption = None,
    limit: Annotated[int, typer.Option(min=1, max=10_000, help="Most transactions of a shard.")] = 1_000,
    as_json: JsonOption = False,
) -> None:
    """List deletions that were sent to datanodes too often without an acknowledgement of all."""
    with session_of(context) as session:
        plane = session.connected()
        shards = session.shards(shard)
        found = [
            (one, row) for one in shards for row in plane.block_store(one).transactions(is_parked=True, limit=limit)
        ]
    if as_json:
        print_json([{"shard": one, "transaction": row} for one, row in found])
        return
    print_table(
        ["SHARD", "DELTXNID", "CONTAINER", "BLOCKS", "BYTES", "WAITS FOR"],
        (
            (
                one,
                row.deletion_txn,
                row.container_id,
                row.block_count,
                bytes_text(row.size_bytes),
                ", ".join(row.waits_for),
            )
            for one, row in found
        ),
        numbers=["SHARD", "DELTXNID", "CONTAINER", "BLOCKS", "BYTES"],
    )
    if found:
        say("", "See why these datanodes do not answer (deepclean blocks status), then retry (deepclean blocks retry).")


@app.command()
def retry(
    context: typer.Context,
    deletion_txns: Annotated[
        list[int] | None, typer.Argument(metavar="DELTXNID…", help="Transactions of one shard; all by default.")
    ] = None,
    shard: ShardOption = None,
    as_json: JsonOption = False,
) -> None:
    """Send parked deletions to the datanodes again."""
    with session_of(context) as session:
        shards = session.shards(shard)
        if deletion_txns and len(shards) > 1:
            raise typer.BadParameter("each shard counts its transactions itself: name one (--shard)")
        retried = sum(session.connected().block_store(one).retry(deletion_txns or None) for one in shards)
    if as_json:
        print_json({"retried": retried})
        return
    say(f"{counted(retried, 'transaction')} sent again")


@app.command()
def lost(context: typer.Context, shard: ShardOption = None, as_json: JsonOption = False) -> None:
    """List blocks that were written and that no datanode has any more, with their keys. The exit status is then 1."""
    with session_of(context) as session:
        found = list(_lost(session, session.shards(shard)))
    if as_json:
        print_json([{"shard": one, "block": block, "path": path} for one, block, path in found])
    elif found:
        print_table(
            ["SHARD", "CONTAINER", "BLOCK", "BYTES", "PATH"],
            (
                (one, block.container_id, block.first_local_id, bytes_text(block.size_bytes), path)
                for one, block, path in found
            ),
            numbers=["SHARD", "CONTAINER", "BLOCK", "BYTES"],
        )
    else:
        say("Every block that was written is on a datanode.")
    if found:
        raise typer.Exit(ExitStatus.FAILED)


def _lost(session: Session, shards: list[int]) -> Iterator[tuple[int, BlockRun, str]]:
    plane = session.connected()
    for shard in shards:
        for block in lost_blocks(plane.block_store(shard)):
            yield shard, block, _path_of(plane, shard, block.first_local_id)


def _path_of(plane: Plane, shard: int, local_id: int) -> str:
    """Return the path of the version that a block belongs to; empty if it was freed meanwhile."""
    start = ""
    while True:
        found = plane.space(shard).explain_block(local_id, start=start)
        if found.version is not None:
            return "/".join((found.volume, found.bucket, found.path))
        if not found.next_start:
            return ""
        start = found.next_start
