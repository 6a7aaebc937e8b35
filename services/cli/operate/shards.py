"""``deepclean shards``: what each shard of a plane keeps and does, and further shards for a running plane."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from services.cli.confirmation import YesOption, confirm
from services.cli.output import print_json, print_table
from services.cli.session import JsonOption, made_session, session_of
from services.cli.terminal import say, say_aside
from services.domain.table_keys import MOST_SHARDS
from services.domain.words import counted
from services.plane.upkeep.growth import add_shards
from services.wording.figures import bytes_text

app = typer.Typer(no_args_is_help=True, help="Show the shards of a plane, and add shards to it while it runs.")


@app.command("list")
def list_shards(context: typer.Context, as_json: JsonOption = False) -> None:
    """Show what each shard keeps and does.

    A new volume is created in the shard with the least load: its share of the bytes plus its share of the commands.
    """
    with session_of(context) as session:
        plane = session.connected()
        found = [(shard, plane.load(shard), plane.metadata(shard).state()) for shard in range(plane.learn_shards())]
    if as_json:
        print_json(
            [
                {
                    "shard": shard,
                    "kept_bytes": load.kept_bytes,
                    "done_commands": load.done_commands,
                    "txn": state.txn,
                    "feature_level": state.feature_level,
                }
                for shard, load, state in found
            ]
        )
        return
    print_table(
        ["SHARD", "KEPT", "COMMANDS IN THE LAST HOUR", "TXN"],
        (
            (shard, bytes_text(load.kept_bytes), f"{load.done_commands:,}", f"{state.txn:,}")
            for shard, load, state in found
        ),
        numbers=["SHARD", "KEPT", "COMMANDS IN THE LAST HOUR", "TXN"],
    )


@app.command()
def add(
    context: typer.Context,
    shards: Annotated[
        int, typer.Argument(min=1, max=MOST_SHARDS, metavar="N", help="Number of shards of the plane afterwards.")
    ],
    credentials_file: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="File of mode 0600 with the name and password of the brokers' administrator."
        ),
    ] = None,
    is_confirmed: YesOption = False,
    as_json: JsonOption = False,
) -> None:
    """Raise the number of shards of a running plane to N. Nothing restarts; volumes stay in their shards.

    If it is interrupted, call it again: it finishes what was begun.
    """
    confirm(f"The plane has {counted(shards, 'shard')} afterwards, and never fewer.", is_confirmed=is_confirmed)
    add_shards(made_session(context).home, shards, say_aside if as_json else say, credentials_file)
    if as_json:
        print_json({"shards": shards})
