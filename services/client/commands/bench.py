"""``deepclean bench``: measures the plane on this machine beside ceilings of the same run, and compares two runs."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from services.client.commands.output import print_json, print_table
from services.plane.bench import compare as comparing
from services.plane.bench.figures import COLUMNS, details_text, machine_description, report, table_row
from services.plane.bench.run import BENCHMARKS, run_benchmarks

console = Console(stderr=True)
app = typer.Typer(invoke_without_command=True)


@app.callback()
def bench(
    context: typer.Context,
    only: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="Measure this only; may be given more than once.")
    ] = None,
    seconds: Annotated[float, typer.Option(min=0.1, help="About how long each row measures.")] = 10.0,
    output: Annotated[Path | None, typer.Option("--json", help="Write all figures as JSON.")] = None,
) -> None:
    """Measure this machine: rates of the plane's parts and of the whole, beside what Kafka and RocksDB do alone.

    Starts what it needs, on free ports and in a scratch directory, and stops it again. Leave the machine alone
    meanwhile: the figures are worth what the machine has left.
    """
    if context.invoked_subcommand is not None:
        return
    names = list(only or BENCHMARKS)
    unknown = sorted(set(names) - set(BENCHMARKS))
    if unknown:
        raise typer.BadParameter(f"{unknown[0]!r} is not one of {', '.join(BENCHMARKS)}", param_hint="--only")
    machine = machine_description()
    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task("starting")
        figures = list(run_benchmarks(names, seconds, lambda what: progress.update(task, description=what)))
    print_table(COLUMNS, [table_row(figure) for figure in figures], numbers=("value", "ratio"))
    for figure in figures:
        if figure.details:
            typer.echo(f"  {figure.name}: {details_text(figure)}")
    if output is not None:
        output.write_text(json.dumps(report(figures, machine), indent=2) + "\n", "utf-8")
        typer.echo(f"The figures are in {output}.")


@app.command()
def compare(
    before: Annotated[Path, typer.Argument(metavar="A.json", help="Figures of a run, as bench --json wrote them.")],
    after: Annotated[Path, typer.Argument(metavar="B.json", help="Those of a later run.")],
    *,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Compare two runs: how values have changed, and how their ratios to the ceilings of their own runs have.

    On a shared machine the ratio is what counts. What differs by less than a twentieth is noise, and nothing is said.
    """
    reports = comparing.read_report(before), comparing.read_report(after)
    compared = comparing.compare(*reports)
    if as_json:
        print_json([{**asdict(one), "gain": one.gain} for one in compared])
        return
    for name, one in zip("AB", reports, strict=True):
        typer.echo(f"{name}: commit {one.get('commit', '')}, {one.get('measured_at', '')}")
    print_table(comparing.COLUMNS, comparing.table_rows(compared), numbers=("before", "after", "value", "ratio"))
    for name in comparing.unmatched(*reports):
        typer.echo(f"  {name} is in one of them only")
