"""``deepclean git``: replay a git repository's history on a plane and compare the outcome with git."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import Progress, SpinnerColumn, TaskID, TextColumn
from rich.table import Table

from services.cli.exit_status import ExitStatus
from services.cli.output import print_json
from services.cli.progress import bar_columns
from services.cli.session import JsonOption, made_session
from services.cli.terminal import printable
from services.cli.workloads.planes import open_plane
from services.client.plane import Plane
from services.domain.words import counted
from services.wording.figures import bytes_text
from services.workloads.generated_history import GeneratedHistory
from services.workloads.git_command import GitError, GitRepository
from services.workloads.git_history import GitHistory
from services.workloads.history_run import HistoryReport, HistoryRun
from services.workloads.judge.git_check import git_truth
from services.workloads.judge.outcome_check import model_truth

GENERATED_SEED = 1
console = Console(width=None if Console().is_terminal else 120)
"""Output that is not a terminal has 120 columns, so that the tables fit."""
aside = Console(stderr=True)
"""What a run says before its result."""


def git(
    context: typer.Context,
    repository: Annotated[
        Path,
        typer.Argument(
            help="A clone of a git repository; its first-parent history is played. For another directory, such "
            "as an unpacked archive, a history is generated."
        ),
    ],
    every: Annotated[
        int | None, typer.Option(min=1, help="Create a snapshot at each Nth commit; by default 20 to 40 in all.")
    ] = None,
    tags: Annotated[bool, typer.Option("--tags", help="Create a snapshot at each tag instead.")] = False,
    max_commits: Annotated[int | None, typer.Option(min=1, help="Play the oldest commits only.")] = None,
    in_memory: Annotated[
        bool, typer.Option("--in-memory", help="Run the plane within this process, which takes seconds.")
    ] = False,
    plane: Annotated[bool, typer.Option("--plane", help="Use the plane that `deepclean up` started.")] = False,
    report: Annotated[Path | None, typer.Option(help="Write the report as JSON.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Replay a git history, delete some snapshots and a tree, settle, and check everything against git itself.

    Each commit's changes become puts, deletes and renames in a FILE_SYSTEM_OPTIMIZED bucket. Exits with 1 when a
    snapshot does not list what git lists, when a block was lost or kept for nothing, or when the repository cannot be
    read.
    """
    if tags and every is not None:
        raise typer.BadParameter("snapshots are taken at tags or at each Nth commit: give one of the two")
    history = _history(repository, every, max_commits, uses_tags=tags)  # check before a plane is started
    session = made_session(context)
    with open_plane(session, in_memory=in_memory, is_running=plane, say=aside.print) as opened:
        outcome = _run(opened, repository, history, every)
    if report:
        report.write_text(json.dumps(asdict(outcome), indent=2) + "\n", "utf-8")
    if as_json:
        print_json(outcome)
    else:
        _print(outcome)
        if report:
            console.print(f"The report is in {report}.")
    if not outcome.is_clean:
        raise typer.Exit(ExitStatus.FAILED)


def _history(repository: Path, every: int | None, max_commits: int | None, *, uses_tags: bool) -> GitHistory | None:
    """Return the repository's history, or None if it has none.

    Raises:
        GitError: there is no history, and an option selects a part of it.
    """
    if GitRepository(repository).has_history():
        return GitHistory(repository, every=every, uses_tags=uses_tags, max_commits=max_commits)
    if uses_tags or max_commits is not None:
        raise GitError(f"{repository} has no git history: without one, --tags and --max-commits choose nothing")
    return None


def _run(plane: Plane, repository: Path, git_history: GitHistory | None, every: int | None) -> HistoryReport:
    with _progress() as (progress, task):
        if git_history is not None:
            run = HistoryRun(
                plane,
                git_history,
                f"git history of {repository.resolve().name}",
                lambda _expected, closing: git_truth(
                    git_history.repository, git_history.snapshots, git_history.last_commit, closing.directory
                ),
            )
        else:
            aside.print(f"{repository} has no git history: playing a generated one instead, judged by a model.")
            run = HistoryRun(
                plane,
                GeneratedHistory(GENERATED_SEED, every=every),
                "generated history",
                lambda expected, _closing: model_truth(expected),
            )
        progress.update(task, total=run.source.commit_count)
        run.on_stage = lambda stage: progress.update(task, description=stage)

        def on_commits(commits: int, operations: int) -> None:
            progress.update(task, completed=commits, operations=operations)

        run.on_commits = on_commits
        return run.run()


@contextmanager
def _progress() -> Iterator[tuple[Progress, TaskID]]:
    """Show a progress bar with commits, operations and times."""
    operations = TextColumn("commits, {task.fields[operations]} operations")
    columns = (SpinnerColumn(), *bar_columns("{task.description}"), operations)
    with Progress(*columns, console=aside) as progress:
        yield progress, progress.add_task("starting", total=None, operations=0)


def _print(report: HistoryReport) -> None:
    table = Table(title=f"Snapshots after the {report.source}", caption=_closing_sentence(report))
    for column in ("snapshot", "taken (UTC)", "keys", "referenced", "exclusive", "deleting it frees"):
        table.add_column(column, justify="left" if column in ("snapshot", "taken (UTC)") else "right", no_wrap=True)
    for snapshot in report.snapshots:
        created = datetime.fromtimestamp(snapshot.created_ms / 1000, tz=UTC).strftime("%m-%d %H:%M:%S")
        table.add_row(
            snapshot.name,
            created,
            f"{snapshot.keys:,}",
            bytes_text(snapshot.referenced_bytes),
            bytes_text(snapshot.exclusive_bytes),
            f"{bytes_text(snapshot.frees_bytes)}, {counted(snapshot.frees_versions, 'version')}",
        )
    console.print(table)
    console.print(_amounts_table(report))
    rate = report.operations / report.played_seconds if report.played_seconds else 0.0
    console.print(
        f"{counted(report.commits, 'commit')}, {counted(report.operations, 'operation')} in "
        f"{report.played_seconds:.1f} s ({rate:,.0f}/s); settled in {report.settled_seconds:.1f} s "
        f"({counted(report.settle_rounds, 'round')})."
    )
    _print_check(report)


def _closing_sentence(report: HistoryReport) -> str:
    removed = (
        f"Removed the tree {escape(printable(report.removed_directory))}"
        if report.removed_directory
        else "Removed no tree"
    )
    return f"{removed}; deleted the snapshots {', '.join(report.deleted_snapshots) or 'none'}."


def _amounts_table(report: HistoryReport) -> Table:
    table = Table(title="Where the bytes are")
    for column in ("", "versions", "bytes", "held by"):
        table.add_column(column, justify="right" if column in ("versions", "bytes") else "left")
    holders = {
        "put": "",
        "live": "the active namespace",
        "held": "snapshots alone",
        "pending": "no snapshot; not claimed yet",
        "claimed": "no snapshot; deletion in progress",
        "freed": "no snapshot; deleted by SCM",
    }
    for name, amount in report.versions.items():
        table.add_row(name, f"{amount.versions:,}", bytes_text(amount.bytes), holders[name])
    return table


def _print_check(report: HistoryReport) -> None:
    for name, count in report.check.items():
        style = "green" if count == 0 else "bold red"
        console.print(f"  {name.replace('_', ' ')}: [{style}]{count:,}[/{style}]")
    for example in report.examples:
        console.print(f"  {printable(example)}", style="red", highlight=False, markup=False)
    if report.is_clean:
        console.print(
            "[green]Every snapshot and the active namespace list exactly what they must; nothing needed was freed, "
            "nothing else was kept.[/green]"
        )
    else:
        console.print("[bold red]The outcome is wrong.[/bold red]")
