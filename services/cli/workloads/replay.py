"""``deepclean replay``: execute a workload file and print its observations and errors."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import Progress

from services.cli.progress import bar_columns
from services.cli.session import made_session
from services.cli.workloads.planes import open_plane
from services.workloads.replay import Replay
from services.workloads.workload import read_operations

console = Console(stderr=True)


def replay(
    context: typer.Context,
    file: Annotated[Path, typer.Argument(help="Operations, one JSON object per line.", exists=True, dir_okay=False)],
    observations: Annotated[
        Path | None,
        typer.Option(help="File for refusals and observations, one JSON object per line; by default stdout."),
    ] = None,
    in_memory: Annotated[bool, typer.Option("--in-memory", help="Run the plane within this process.")] = False,
    plane: Annotated[bool, typer.Option("--plane", help="Use the plane that `deepclean up` started.")] = False,
    shards: Annotated[int | None, typer.Option(min=1, help="Shards of the plane that this command starts [1].")] = None,
) -> None:
    """Execute a workload; snapshots may be renamed (as in the recorded cases)."""
    operations = list(read_operations(file))
    session = made_session(context)
    with (
        open_plane(session, in_memory=in_memory, is_running=plane, say=console.print, shards=shards) as opened,
        Progress(*bar_columns("replaying"), console=console) as progress,
    ):
        task = progress.add_task("", total=len(operations))
        run = Replay(opened, on_progress=lambda count: progress.advance(task, count), is_placing=True)
        lines = [json.dumps(line) for line in run.run(operations)]
    text = "".join(f"{line}\n" for line in lines)
    if observations:
        observations.write_text(text, "utf-8")
    else:
        sys.stdout.write(text)
