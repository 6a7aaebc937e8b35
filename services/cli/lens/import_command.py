"""``deepclean import``: turn data of another system into buckets and snapshots of a plane."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from services.cli.exit_status import ExitStatus
from services.cli.lens.importing import Importer
from services.cli.output import print_json
from services.cli.progress import rate_text, shown_progress
from services.cli.session import JsonOption, bucket_path, session_of
from services.cli.terminal import say
from services.domain.words import counted
from services.plane.machine.spark_jobs import run_job

MODULE = "streaming.lens.ozone.states"
app = typer.Typer(no_args_is_help=True, help="Import another system's buckets and snapshots into the plane.")


@app.callback()
def import_group() -> None:
    """Import another system's buckets and snapshots into the plane."""


@app.command()
def ozone(
    context: typer.Context,
    location: Annotated[
        str, typer.Argument(metavar="LOCATION", help="A directory, tar file or address, as for deepclean lens ozone.")
    ],
    bucket: Annotated[str, typer.Option(metavar="VOLUME/BUCKET", help="This bucket alone.")] = "",
    volume: Annotated[
        str,
        typer.Option(
            metavar="VOLUME", help="Import into this volume; by default into volumes with the same names as in Ozone."
        ),
    ] = "",
    shard: Annotated[
        int | None, typer.Option(help="Shard of new volumes; by default the one with the least load.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Replay the states of an Ozone Manager's buckets on the plane: snapshot by snapshot, then the present one.

    The database is read only. The buckets must not exist on the plane. Exits with 1 if the plane has refused anything.
    """
    named = {"--bucket": "/".join(bucket_path(bucket)) if bucket else "", "--volume": volume}
    options = [word for name, value in named.items() if value for word in (name, value)]
    with session_of(context) as session:
        importer = Importer(session.connected(), session.volumes(), shard)
        with _saying_what_is_there(importer):
            _run(importer, [location, *options])
    if as_json:
        figures = {"buckets": importer.done, "notes": importer.notes, "refused": importer.refused}
        print_json({**figures, "examples": importer.examples})
    else:
        _print(importer)
    if importer.refused:
        raise typer.Exit(ExitStatus.FAILED)


def _run(importer: Importer, arguments: list[str]) -> None:
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="deepclean-import-") as scratch, shown_progress("importing") as progress:
        progress(0, "opening the database")

        def on_line(line: Mapping[str, Any]) -> None:
            importer.hear(line)
            if not importer.done:
                return
            done, commands = importer.states_done, importer.commands
            where = f"state {done} of {importer.states}, {importer.done[-1].bucket}"
            detail = f", {where}, {counted(commands, 'command')}, {rate_text(commands, started)}"
            progress(100 * done // importer.states, "replaying", detail)

        run_job(MODULE, arguments, on_line, scratch=Path(scratch))


@contextmanager
def _saying_what_is_there(importer: Importer) -> Iterator[None]:
    """Say after an error or an interruption what the plane has, and what to do with it."""
    try:
        yield
    except BaseException:
        if importer.done:
            last = importer.done[-1]
            upto = f"up to snapshot {last.snapshots[-1]}" if last.snapshots else "without a snapshot"
            say(
                f"The import stopped in {last.bucket}, which has its states {upto}, and a part of the next one. It "
                f"cannot be continued: import into a volume of another name (--volume), or delete the bucket "
                f"with its snapshots.",
                err=True,
            )
        raise


def _print(importer: Importer) -> None:
    for one in importer.done:
        say(f"{one.bucket}: {counted(len(one.snapshots), 'snapshot')}, {counted(one.commands, 'command')}")
        say(*(f"  {note}" for note in one.notes))
    say(*importer.notes)
    if importer.refused:
        say(f"The plane has refused {counted(importer.refused, 'change')}, for example:", *importer.examples, err=True)
