"""``deepclean accept-lost-tail``: goes on after the broker has lost records that services had read."""

from __future__ import annotations

from typing import Annotated

import typer

from services.client.commands.output import print_table
from services.client.commands.recovery import BOOTSTRAP_SERVERS
from services.client.commands.session import made_session
from services.plane.lost_tail import accept_lost_tail, find_lost_tails
from services.plane.plane_lock import log_of_stopped_plane


def accept(
    context: typer.Context,
    shard: Annotated[int, typer.Argument(min=0, help="Number of the shard.")],
    is_confirmed: Annotated[
        bool, typer.Option("--yes", help="Do it; without this, only what was lost is shown.")
    ] = False,
    reason: Annotated[str, typer.Option(help="Why, for whoever reads the log later.")] = "",
    bootstrap_servers: BOOTSTRAP_SERVERS = "",
) -> None:
    """Show what a broker has lost that was read already, and go on without it: no name that it gave is given again."""
    session = made_session(context)
    with log_of_stopped_plane(session.home, bootstrap_servers) as log:
        lost = find_lost_tails(log, session.home, shard)
        if not lost:
            typer.echo(f"No service of shard {shard} has read further than its topics reach.")
            return
        print_table(
            ["SERVICE", "TOPIC", "READ TO", "ENDS AT", "LOST"],
            (
                (one.service, one.topic, f"{one.read_to:,}", f"{one.end:,}", f"{one.read_to - one.end:,}")
                for one in lost
            ),
            numbers=["READ TO", "ENDS AT", "LOST"],
        )
        if not is_confirmed:
            typer.echo("\nIf the lost records can be restored, restore them. Otherwise call this again with --yes.")
            return
        accepted = accept_lost_tail(log, session.home, shard, lost, reason)
    typer.echo(
        f"\nShard {shard} goes on in epoch {accepted.epoch} behind txn {accepted.txn:,} and chain version "
        f"{accepted.chain_version:,}. Now move data/streaming away, start the plane (deepclean up), and make a backup "
        f"(deepclean backup): from the log alone this shard cannot be made again any more."
    )
