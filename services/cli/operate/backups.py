"""``deepclean backups``: which backups there are, and the deletion of those that newer ones replace."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict
from itertools import groupby
from pathlib import Path
from typing import Annotated

import typer

from services.cli.confirmation import DryRunOption, YesOption, confirm
from services.cli.output import print_json, print_table
from services.cli.session import JsonOption, made_session
from services.cli.terminal import say
from services.domain.words import counted
from services.plane.stack.plane_file import read_plane_file
from services.plane.upkeep.backups import backups_directory, backups_of, missing_from
from services.plane.upkeep.old_backups import (
    KeptBackup,
    deletable_backups,
    delete_backups,
    exclusive_bytes,
    kept_backups,
)
from services.wording.figures import bytes_text, time_text

app = typer.Typer(no_args_is_help=True, help="List backups, and delete those that newer ones replace.")

DirectoryOption = Annotated[
    Path | None,
    typer.Option(
        "--from",
        help="Where backups are kept; by default the directory that a running plane's deepclean.toml names, else "
        "backups in the home.",
    ),
]


@app.command("list")
def list_backups(context: typer.Context, directory: DirectoryOption = None, as_json: JsonOption = False) -> None:
    """List the complete backups, oldest first, and look whether each can be restored.

    A copy is whole if its database, its manifest and all its snapshot checkpoints are there; their content is not read.
    EXCLUSIVE is what its deletion frees: the files that neither another backup nor a database shares.
    """
    place = _place(made_session(context).home, directory)
    found = kept_backups(place) if place.exists() or directory else []
    if as_json:
        print_json([_as_json(one) for one in found])
        return
    print_table(
        ["BACKUP", "MADE", "SIZE", "EXCLUSIVE", "COPIES", "STATE"],
        (
            (
                one.backup.name,
                time_text(one.backup.made_at_ms),
                bytes_text(one.backup.size_bytes),
                bytes_text(one.exclusive_bytes),
                len(one.backup.copies),
                _state(one),
            )
            for one in found
        ),
        numbers=["SIZE", "EXCLUSIVE", "COPIES"],
    )


@app.command()
def delete(
    context: typer.Context,
    names: Annotated[
        list[str] | None, typer.Argument(metavar="[NAME]…", help="Names of backups; by default all that may go.")
    ] = None,
    keep: Annotated[int, typer.Option(min=1, help="How many whole copies of each shard stay, the newest ones.")] = 3,
    directory: DirectoryOption = None,
    is_confirmed: YesOption = False,
    is_dry_run: DryRunOption = False,
    as_json: JsonOption = False,
) -> None:
    """Delete the backups of which each copy has enough newer ones that are whole.

    The next trim-log then deletes the log records that only these backups needed.
    """
    home = made_session(context).home
    place = _place(home, directory)
    deleted = deletable_backups(kept_backups(place) if place.exists() or directory else [], keep, names or ())
    freed_bytes = exclusive_bytes(place / one.backup.name for one in deleted)
    if deleted and not is_dry_run:
        confirm(f"This deletes from {place}: {_names_and_size(deleted, freed_bytes)}.", is_confirmed=is_confirmed)
        delete_backups(home, place, deleted)
    if as_json:
        said = {"directory": str(place), "dry_run": is_dry_run, "freed_bytes": freed_bytes}
        print_json({**said, "deleted": [asdict(one.backup) for one in deleted]})
    elif not deleted:
        say(f"Nothing to delete in {place}: each backup has one of the {keep} newest whole copies of some shard.")
    else:
        say(f"{'Would delete' if is_dry_run else 'Deleted'} {_names_and_size(deleted, freed_bytes)}.")


def places_text(places: Iterable[tuple[str, int]]) -> str:
    """Return services and shards in words: ``metadata 0, 2; snapshots 1``."""
    return "; ".join(
        f"{service} {', '.join(str(shard) for _, shard in one)}"
        for service, one in groupby(places, key=lambda place: place[0])
    )


def _place(home: Path, directory: Path | None) -> Path:
    plane = read_plane_file(home)
    return (directory or (backups_of(plane) if plane else backups_directory(home))).absolute()


def _state(one: KeptBackup) -> str:
    if one.damaged:
        return "; ".join(f"{service} {shard} is damaged: {reason}" for service, shard, reason in one.damaged)
    missing = missing_from(one.backup)
    return f"whole, without {places_text(missing)}" if missing else "whole"


def _as_json(one: KeptBackup) -> dict[str, object]:
    return {
        **asdict(one.backup),
        "exclusive_bytes": one.exclusive_bytes,
        "missing": [{"service": service, "shard": shard} for service, shard in missing_from(one.backup)],
        "damaged": [{"service": service, "shard": shard, "reason": reason} for service, shard, reason in one.damaged],
    }


def _names_and_size(deleted: Sequence[KeptBackup], freed_bytes: int) -> str:
    names = ", ".join(one.backup.name for one in deleted)
    return f"{names} ({counted(len(deleted), 'backup')}; {bytes_text(freed_bytes)} that nothing else shares)"
