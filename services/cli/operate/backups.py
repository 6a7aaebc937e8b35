"""``deepclean backups``: which backups there are, and the deletion of those that newer ones replace."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from services.cli.confirmation import DryRunOption, YesOption, confirm
from services.cli.output import print_json, print_table
from services.cli.session import JsonOption, made_session
from services.cli.terminal import say
from services.domain.words import counted
from services.plane.upkeep.backups import backups_at, backups_directory, missing_from, places_text
from services.plane.upkeep.old_backups import KeptBackup, deletable_backups, delete_backups, freed_bytes, kept_backups
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

    A copy is whole if its database has all its table files and all its snapshot checkpoints are there; no content is
    read. What is not counted replaces no other backup and is not deleted.
    EXCLUSIVE is what the deletion of this backup alone frees: files that neither another backup nor a database shares.
    """
    place, found = _found(made_session(context).home, directory)
    alone = [freed_bytes([one]) for one in found]
    if as_json:
        print_json(
            {
                "directory": str(place),
                "backups": [_as_json(one, size_bytes) for one, size_bytes in zip(found, alone, strict=True)],
            }
        )
        return
    say(f"Backups in {place}:")
    print_table(
        ["BACKUP", "MADE", "SIZE", "EXCLUSIVE", "COPIES", "STATE"],
        (
            (
                one.name,
                time_text(one.placed.backup.made_at_ms),
                bytes_text(one.placed.backup.size_bytes),
                bytes_text(size_bytes),
                len(one.copies),
                _state(one),
            )
            for one, size_bytes in zip(found, alone, strict=True)
        ),
        numbers=["SIZE", "EXCLUSIVE", "COPIES"],
    )


@app.command()
def delete(
    context: typer.Context,
    names: Annotated[
        list[str] | None, typer.Argument(metavar="NAME…", help="Names of backups; by default all that may go.")
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
    place, found = _found(home, directory)
    deleted = deletable_backups(found, keep, names or ())
    size_bytes = freed_bytes(deleted)
    if deleted and not is_dry_run:
        confirm(f"This deletes from {place}: {_names_and_size(deleted, size_bytes)}.", is_confirmed=is_confirmed)
    if place.exists() and not is_dry_run:
        delete_backups(home, place, keep, [one.name for one in deleted])
    if as_json:
        said = {"directory": str(place), "dry_run": is_dry_run, "freed_bytes": size_bytes}
        print_json({**said, "deleted": [asdict(one.placed.backup) for one in deleted]})
    elif not deleted:
        newer = counted(keep, "newer whole copy", "newer whole copies")
        say(f"Nothing to delete in {place}: no backup has {newer} of all that is in it.")
    else:
        say(f"{'Would delete' if is_dry_run else 'Deleted'} {_names_and_size(deleted, size_bytes)}.")


def _found(home: Path, directory: Path | None) -> tuple[Path, list[KeptBackup]]:
    """Return the directory of the backups, and these. Only that of the home may be absent: no backup was made yet."""
    place = (directory or backups_at(home)).absolute()
    return place, kept_backups(place, may_be_absent=place == backups_directory(home).absolute())


def _state(one: KeptBackup) -> str:
    if not one.is_counted:
        return f"not counted: {one.placed.directory.name} is a link to it, or was renamed or copied"
    if one.damaged:
        return "; ".join(f"{service} {shard} is damaged: {why}" for (service, shard), why in one.damaged.items())
    missing = missing_from(one.placed.backup)
    return f"whole, without {places_text(missing)}" if missing else "whole"


def _as_json(one: KeptBackup, size_bytes: int) -> dict[str, object]:
    return {
        **asdict(one.placed.backup),
        "path": str(one.placed.directory),
        "counted": one.is_counted,
        "size_bytes": one.placed.backup.size_bytes,
        "exclusive_bytes": size_bytes,
        "missing": [{"service": service, "shard": shard} for service, shard in missing_from(one.placed.backup)],
        "damaged": [
            {"service": service, "shard": shard, "reason": why} for (service, shard), why in one.damaged.items()
        ],
    }


def _names_and_size(deleted: Sequence[KeptBackup], size_bytes: int) -> str:
    names = ", ".join(one.name for one in deleted)
    return f"{names} ({counted(len(deleted), 'backup')}; {bytes_text(size_bytes)} that nothing else shares)"
