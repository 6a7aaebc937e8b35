"""``deepclean backup``, ``restore-backup``, ``rebuild`` and ``digest``: recover databases and verify them by digest."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from schemas.topics import METADATA_COMMANDS
from services.cli.output import print_json
from services.cli.progress import counting, shown_progress
from services.cli.session import JsonOption, made_session
from services.cli.terminal import say, say_aside
from services.domain.words import counted
from services.plane.stack.plane_file import running_plane
from services.plane.stack.plane_lock import acquire_plane_lock, log_of_stopped_plane
from services.plane.stack.process_names import SERVICES
from services.plane.upkeep.backups import (
    backups_directory,
    backups_of,
    find_backup,
    make_backup,
    missing_from,
    places_text,
    restore_backup,
)
from services.plane.upkeep.rebuilds import PlacedDigest, readable_metadata, rebuilding
from services.wording.figures import bytes_text

SERVICE = Annotated[
    list[str] | None,
    typer.Option("--service", help=f"Restore only this service; may be repeated. {', '.join(SERVICES)}."),
]
BOOTSTRAP_SERVERS = Annotated[
    str, typer.Option(help="Running brokers; by default the command starts the plane's own broker.")
]
SHARD = Annotated[int, typer.Argument(min=0, help="Number of the shard.")]


def backup(
    context: typer.Context,
    to: Annotated[
        Path | None,
        typer.Option(
            help="Where backups are kept; by default the directory in deepclean.toml, else backups in the home."
        ),
    ] = None,
    has_digest: Annotated[
        bool,
        typer.Option("--digest/--no-digest", help="Store a digest of metadata's copy; computing it reads every row."),
    ] = True,
    as_json: JsonOption = False,
) -> None:
    """Copy the state of every service that runs on this host, with its position in the log, while the plane runs.

    On a plane of several hosts call it on each of them: what does not run here is named, and is not in the backup.
    """
    plane = running_plane(made_session(context).home)
    directory = (to or backups_of(plane)).absolute()
    made = make_backup(plane, directory, has_digest=has_digest, tell=say_aside)
    missing = missing_from(made)
    if as_json:
        print_json({**asdict(made), "missing": [{"service": one, "shard": shard} for one, shard in missing]})
        return
    say(f"{directory / made.name}: {counted(len(made.copies), 'copy', 'copies')}, {bytes_text(made.size_bytes)}.")
    for copy in made.copies:
        if copy.digest is not None:
            say(f"  metadata, shard {copy.shard}: txn {copy.digest.txn}, digest {copy.digest.digest}")
    if missing:
        say(f"Not in it, since they do not run on this host: {places_text(missing)}. Make a backup there, too.")


def restore(
    context: typer.Context,
    name: Annotated[str, typer.Argument(help="Name of the backup; by default the newest.")] = "",
    directory: Annotated[Path | None, typer.Option("--from", help="Where backups are kept.")] = None,
    service: SERVICE = None,
    shard: Annotated[list[int] | None, typer.Option(help="Restore only this shard; may be repeated.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Restore the databases of a stopped plane from a backup. At the next start the services replay newer messages."""
    home = made_session(context).home
    unknown = sorted(set(service or ()) - set(SERVICES))
    if unknown:
        raise typer.BadParameter(f"{unknown[0]} is not one of {', '.join(SERVICES)}")
    place = (directory or backups_directory(home)).absolute()
    with acquire_plane_lock(home):
        found = find_backup(place, name)
        restored = restore_backup(home, found, service or (), shard or ())
    if as_json:
        print_json({"backup": found.backup.name, "restored": restored})
        return
    for copy in restored:
        say(f"{copy.service}, shard {copy.shard}: restored from {found.backup.name}.")
    if (missing := missing_from(found.backup)) and not (service or shard):
        say(f"Not in it, since they did not run on its host: {places_text(missing)}.")
    say("Start the plane (deepclean up): the services replay the newer messages of the log.")


def digest(
    context: typer.Context,
    shard: SHARD,
    directory: Annotated[
        Path | None, typer.Option(help="Directory with the db and checkpoints of a database that no service has open.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Print the digest of a shard of metadata: of its tables and of every live snapshot's checkpoint."""
    home = made_session(context).home
    with readable_metadata(home, shard, directory) as store:
        found = PlacedDigest.of(store)
    if as_json:
        print_json(_digest_json(found))
        return
    _print_digest(found)


def _digest_json(found: PlacedDigest) -> dict[str, object]:
    return {"digest": found.digest.digest, "next_offset": found.next_offset, **asdict(found.digest)}


def _print_digest(found: PlacedDigest) -> None:
    one = found.digest
    held = sum(checkpoint.rows for checkpoint in one.checkpoints.values())
    say(f"{one.digest}  at offset {found.next_offset} of {METADATA_COMMANDS.name}, txn {one.txn}")
    snapshots = counted(len(one.checkpoints), "live snapshot")
    say(f"  {counted(one.rows, 'row')}; {snapshots} with {counted(held, 'row')} in checkpoints")


def rebuild(
    context: typer.Context,
    shard: SHARD,
    compare_with: Annotated[
        Path | None,
        typer.Option(help="The lost database, moved away: at its position the new one must have the same digest."),
    ] = None,
    backups: Annotated[
        Path | None,
        typer.Option(
            exists=True,
            file_okay=False,
            help="Directory of backups whose digests the rebuilt database is compared with; by default in the home.",
        ),
    ] = None,
    goes_on: Annotated[
        bool, typer.Option("--go-on", help="Continue with an existing database, restored or partly rebuilt.")
    ] = False,
    sends_all: Annotated[
        bool, typer.Option("--send-all", help="Publish every message again, including those known to be published.")
    ] = False,
    bootstrap_servers: BOOTSTRAP_SERVERS = "",
    max_batch_messages: Annotated[int, typer.Option(min=1, max=100_000, help="Commands of one unit of work.")] = 2_000,
    as_json: JsonOption = False,
) -> None:
    """Rebuild a shard of metadata from the log, with its snapshots, and verify the result by digest."""
    home = made_session(context).home
    with (
        log_of_stopped_plane(home, bootstrap_servers) as log,
        rebuilding(
            home,
            shard,
            log,
            lost=compare_with,
            backups=backups or backups_directory(home),
            resumes=goes_on,
            sends_all=sends_all,
            max_batch_messages=max_batch_messages,
        ) as run,
    ):
        found = run.apply_and_compare(say_aside if as_json else say, _progress)
        if not as_json:
            _print_digest(found)
        sent = run.send()
    if as_json:
        print_json({**_digest_json(found), "published_below": run.published_below, "sent_messages": sent})
        return
    say(
        f"The log already had the messages of all commands below offset {run.published_below:,}. "
        f"The rebuild sent {counted(sent, 'message')}."
    )


@contextmanager
def _progress() -> Iterator[Callable[[int, int], None]]:
    with shown_progress("rebuild") as progress:
        yield counting(progress, "applying", "command")
