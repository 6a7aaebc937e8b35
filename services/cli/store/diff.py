"""``deepclean snapshot diff``: show the diff of two states of a bucket, list and cancel diffs."""

from __future__ import annotations

from collections import Counter
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn

from schemas.answers import DiffJob
from services.cli.arguments import BucketArgument
from services.cli.output import print_json, print_result, print_table
from services.cli.session import JsonOption, Session, bucket_path, session_of
from services.cli.terminal import say
from services.client.tasks.diffs import diff as find_differences
from services.client.tasks.snapshot_ids import ACTIVE, live_snapshot_id
from services.domain.snapshot_diff import DiffEntry, DiffKind
from services.wording.figures import time_text

STATE_HELP = f"A snapshot, or {ACTIVE} for the active namespace."

console = Console(stderr=True)
_COLOURS = {
    DiffKind.DELETED: typer.colors.RED,
    DiffKind.RENAMED: typer.colors.CYAN,
    DiffKind.CREATED: typer.colors.GREEN,
    DiffKind.MODIFIED: typer.colors.YELLOW,
}


def diff(
    context: typer.Context,
    bucket: BucketArgument,
    from_state: Annotated[str, typer.Argument(metavar="FROM", help=STATE_HELP)],
    to_state: Annotated[str, typer.Argument(metavar="TO", help=STATE_HELP)] = ACTIVE,
    as_json: JsonOption = False,
) -> None:
    """Show how TO differs from FROM: - deleted, R renamed, + created, M modified.

    A renamed directory is one line, whatever it contains. A key that was deleted and put
    again is two lines; an overwritten key is M.
    """
    names = bucket_path(bucket)
    with session_of(context) as session:
        entries = _differences(session, names, from_state, to_state)
    if as_json:
        print_json(entries)
        return
    for entry in entries:
        say(_line(entry), colour=_COLOURS[entry.kind])
    say(_summary(entries, from_state, to_state), err=True)


def _differences(session: Session, bucket: tuple[str, str], from_state: str, to_state: str) -> list[DiffEntry]:
    shard = session.volumes().shard_of(bucket[0])
    plane = session.connected()
    ids = [live_snapshot_id(plane, shard, *bucket, name) for name in (from_state, to_state)]
    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.percentage:>3.0f} %"))
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task("comparing", total=100)

        def show(job: DiffJob) -> None:
            progress.update(task, completed=job.progress_percent, description=job.status.lower().replace("_", " "))

        return find_differences(
            plane.metadata(shard), *bucket, from_snapshot_id=ids[0], to_snapshot_id=ids[1], on_progress=show
        )


def _line(entry: DiffEntry) -> str:
    if entry.kind is DiffKind.RENAMED:
        return f"R {entry.old_path} → {entry.path}"
    return f"{entry.kind} {entry.path}"


def _summary(entries: list[DiffEntry], from_state: str, to_state: str) -> str:
    if not entries:
        return f"{from_state} and {to_state} are the same."
    counts = Counter(entry.kind for entry in entries)
    return ", ".join(f"{counts[kind]} {kind.name.lower()}" for kind in DiffKind if counts[kind]) + "."


def list_diffs(context: typer.Context, bucket: BucketArgument, as_json: JsonOption = False) -> None:
    """List the diffs of a bucket, in progress and ended, oldest first."""
    volume, name = bucket_path(bucket)
    with session_of(context) as session:
        jobs = session.metadata(volume).diff_jobs(volume, name)
        snapshots = session.snapshots(volume).snapshots(*session.bucket_of(volume, name), with_deleted=True)
    if as_json:
        print_json(jobs)
        return
    names = {"": ACTIVE, **{snapshot.snapshot_id: snapshot.name for snapshot in snapshots}}
    print_table(
        ["FROM", "TO", "STATUS", "PROGRESS", "ENTRIES", "BY", "ASKED", "ID"],
        (
            (
                names.get(job.from_snapshot_id, "gone"),
                names.get(job.to_snapshot_id, "gone"),
                job.status.lower().replace("_", " "),
                f"{job.progress_percent} %",
                job.entry_count,
                job.way,
                time_text(job.created_ms),
                job.job_id,
            )
            for job in jobs
        ),
        numbers=["PROGRESS", "ENTRIES"],
    )


def cancel_diff(
    context: typer.Context,
    bucket: BucketArgument,
    job_id: Annotated[str, typer.Argument(metavar="ID", help="The diff, as `diffs` lists it.")],
    as_json: JsonOption = False,
) -> None:
    """Cancel a diff that has not ended."""
    volume, _ = bucket_path(bucket)
    with session_of(context) as session:
        job = session.metadata(volume).cancel_diff(job_id)
    print_result(job, f"diff {job_id} is cancelled", as_json=as_json)
