"""``deepclean accept-lost-tail``: resume a plane whose broker lost records that services had already read."""

from __future__ import annotations

from typing import Annotated

import typer

from schemas.topics import CHANGELOGS
from services.cli.operate.recovery import BOOTSTRAP_SERVERS
from services.cli.output import print_json, print_table
from services.cli.session import JsonOption, made_session
from services.cli.terminal import say
from services.plane.stack.plane_lock import log_of_stopped_plane
from services.plane.upkeep.lost_tail import Losses, accept_losses, find_losses

_CHANGELOGS = frozenset(topic.name for topic in CHANGELOGS.values())


def accept(
    context: typer.Context,
    shard: Annotated[int, typer.Argument(min=0, help="Number of the shard.")],
    is_confirmed: Annotated[
        bool, typer.Option("--yes", help="Accept the loss; without this option the command only shows it.")
    ] = False,
    reason: Annotated[str, typer.Option(help="Reason, stored in the log.")] = "",
    bootstrap_servers: BOOTSTRAP_SERVERS = "",
    as_json: JsonOption = False,
) -> None:
    """Show which messages a broker lost after services had read them. --yes accepts the loss.

    If commands of metadata or chain markers are lost, the shard then skips every txn and chain version that may have
    been used.
    """
    session = made_session(context)
    with log_of_stopped_plane(session.home, bootstrap_servers) as log:
        losses = find_losses(log, session.home, shard)
        if as_json:
            accepted = accept_losses(log, session.home, shard, losses, reason) if losses and is_confirmed else None
            print_json({"losses": losses, "is_accepted": bool(losses) and is_confirmed, "goes_on_at": accepted})
            return
        if not losses:
            say(
                f"No loss was found that is not accepted: the topics of shard {shard} reach the positions of its "
                f"services, and metadata reaches the numbers that other services know from it."
            )
            return
        _show(losses)
        if not is_confirmed:
            say("", "If the lost records can be restored, restore them. Otherwise run this command again with --yes.")
            return
        accepted = accept_losses(log, session.home, shard, losses, reason)
    if accepted is None:
        say(
            "",
            "No command of metadata is lost. Each service continues at the offset of the table, and nothing else is "
            "changed. Start the plane (deepclean up).",
        )
        _warn_of_older_copies(losses)
        return
    say(
        "",
        f"Shard {shard} continues in epoch {accepted.epoch} after txn {accepted.txn:,} and chain version "
        f"{accepted.chain_version:,}. Now move data/streaming away, start the plane (deepclean up), and make a backup "
        f"(deepclean backup): from the log alone this shard can no longer be rebuilt.",
    )
    _warn_of_older_copies(losses)


def _warn_of_older_copies(losses: Losses) -> None:
    if any(one.topic in _CHANGELOGS for one in losses.tails):
        say("Make a backup (deepclean backup) at once: older backups of the service snapshots can no longer be used.")


def _show(losses: Losses) -> None:
    if losses.tails:
        print_table(
            ["SERVICE", "TOPIC", "READ TO", "CONTINUES AT", "LOST"],
            (
                (one.service, one.topic, f"{one.read_to:,}", f"{one.end:,}", f"{one.read_to - one.end:,}")
                for one in losses.tails
            ),
            numbers=["READ TO", "CONTINUES AT", "LOST"],
        )
    if losses.numbers:
        known, sent = losses.numbers.known, losses.numbers.sent
        say(
            f"With all commands of metadata.commands, metadata reaches txn {known.txn:,} and chain version "
            f"{known.chain_version:,}; other processes know txn {sent.txn:,} and chain version {sent.chain_version:,}."
        )
    if not losses.is_chain_whole:
        say("gc.snapshot-chain does not reach metadata's chain version: markers are lost.")
