"""``python -m bench``: measures the plane on this machine and ceilings in the same run, and compares two runs."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from bench import compare as comparing
from bench import small as small_bench
from bench.figures import COLUMNS, Figure, details_text, machine_description, number_text, report, table_row
from bench.growth import MOST_KEYS, growth_figures, measure_growth
from bench.run import BENCHMARKS, prepared, run_benchmarks
from bench.sizes import SizeError, Sizes, sizes_text
from schemas.compiled import unused_modules
from schemas.private_files import keep_files_private
from services.cli.one_line_errors import OneLineErrors
from services.cli.output import print_json, print_table
from services.cli.terminal import say
from services.domain.words import counted
from services.plane.machine.signals import stopping_on_signals

SIZES_TEXT = sizes_text()
DEFAULT_SECONDS = 10.0
console = Console(stderr=True)
app = typer.Typer(
    cls=OneLineErrors,
    name="bench",
    invoke_without_command=True,
    pretty_exceptions_enable=False,
    add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.callback()
def bench(
    context: typer.Context,
    only: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="Measure this only; may be given more than once.")
    ] = None,
    seconds: Annotated[
        float | None,
        typer.Option(min=0.1, help=f"About how long each row measures [{DEFAULT_SECONDS:g}, less if --small]."),
    ] = None,
    size: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=COUNT", help=f"Make less, or more; may be given more than once. {SIZES_TEXT}"),
    ] = None,
    output: Annotated[Path | None, typer.Option("--json", help="Write all figures as JSON.")] = None,
    *,
    small: Annotated[
        bool, typer.Option("--small", help="Few rows over little, in about a minute: to be compared with their like.")
    ] = False,
) -> None:
    """Measure this machine: rates of the plane's parts and of the whole, beside what Kafka and RocksDB do alone.

    Starts what it needs, on free ports and in a scratch directory, and stops it again. Leave the machine alone
    meanwhile: the figures are worth what the machine has left. All rows at their sizes take the better part of an hour,
    most of it to put millions of keys in place; each is measured alone with --only.
    """
    if context.invoked_subcommand is not None:
        if only or size or output or small or seconds is not None:
            raise typer.BadParameter(
                f"these measure nothing here: options of {context.invoked_subcommand} go behind it"
            )
        return
    names = list(only or (small_bench.NAMES if small else BENCHMARKS))
    unknown = sorted(set(names) - set(BENCHMARKS))
    if unknown:
        raise typer.BadParameter(f"{unknown[0]!r} is not one of {', '.join(BENCHMARKS)}", param_hint="--only")
    sizes = _sizes(size or [], small_bench.SIZES if small else Sizes())
    seconds = seconds or (small_bench.SECONDS if small else DEFAULT_SECONDS)
    machine, figures = machine_description(), list[Figure]()
    try:
        with _progress() as progress:
            figures.extend(run_benchmarks(names, seconds, progress, sizes))
    finally:  # also after an error: print the figures measured so far
        _print_figures(figures, machine, output)


@contextmanager
def _progress() -> Iterator[Callable[[str], None]]:
    """Show a line with the current step."""
    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task("starting")
        yield lambda what: progress.update(task, description=what)


def _sizes(settings: list[str], otherwise: Sizes) -> Sizes:
    try:
        return otherwise.with_settings(settings)
    except SizeError as error:
        raise typer.BadParameter(str(error), param_hint="--size") from error


def _print_figures(figures: list[Figure], machine: Mapping[str, Any], output: Path | None) -> None:
    print_table(COLUMNS, [table_row(figure) for figure in figures], numbers=("value", "ratio"))
    for figure in figures:
        if figure.details:
            say(f"  {figure.name}: {details_text(figure)}")
    _write(figures, machine, output)


def _write(figures: list[Figure], machine: Mapping[str, Any], output: Path | None) -> None:
    if output is not None:
        output.write_text(json.dumps(report(figures, machine), indent=2) + "\n", "utf-8")
        say(f"The figures are in {output}.")


@app.command()
def growth(
    max_keys: Annotated[int, typer.Option(min=100, help="Go on until the bucket has so many keys.")] = MOST_KEYS,
    output: Annotated[Path | None, typer.Option("--json", help="Write all figures as JSON.")] = None,
) -> None:
    """Measure what an operation costs as a bucket grows, from ten thousand keys to ten million.

    Fails (status 1) if a cost bends: if ten times the keys more than double it, or if it grows faster than the keys to
    the power of 0.2 over all sizes. Costs are processor time with the database's files in memory. Taking a snapshot
    goes by the clock, as does a delete with files on disk alone, which waits for them and has no bound.
    """
    machine = machine_description()
    with _progress() as progress, prepared(0.0, progress, Sizes()) as conditions:
        grown = measure_growth(conditions, max_keys)
    sizes = sorted({size for one in grown for size in one.costs})
    columns = ("operation", *(f"µs at {size:,}" for size in sizes), "steepest step", "slope", "")
    rows = [
        (
            one.operation,
            *(number_text(one.costs[size]) for size in sizes),
            f"× {one.steepest_step:.2f}",
            f"{one.slope:.2f}",
            "bent" if one.is_bent else "" if one.is_bounded else "no bound",
        )
        for one in grown
    ]
    print_table(columns, rows, numbers=columns[1:-1])
    _write(growth_figures(grown), machine, output)
    if bent := [one.operation for one in grown if one.is_bent]:
        say(f"Bent: {', '.join(bent)}. Find out what looks at more as keys become more.", err=True)
        raise typer.Exit(1)


@app.command()
def compare(
    before: Annotated[Path, typer.Argument(metavar="A.json", help="Figures of a run, as bench --json wrote them.")],
    after: Annotated[Path, typer.Argument(metavar="B.json", help="Those of a later run.")],
    *,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Compare two runs: how values have changed, and how their ratios to the ceilings of their own runs have.

    On a shared machine the ratio is what counts. What differs by less than noise is not said to be better or worse:
    noise is what a report made of several runs (bench merge) says of itself, else a twentieth.
    """
    reports = comparing.read_report(before), comparing.read_report(after)
    compared = comparing.compare(*reports)
    if as_json:
        print_json([{**asdict(one), "gain": one.gain, "verdict": one.verdict} for one in compared])
        return
    for name, one in zip("AB", reports, strict=True):
        say(f"{name}: commit {one.get('commit', '')}, {one.get('measured_at', '')}")
    print_table(comparing.COLUMNS, comparing.table_rows(compared), numbers=("before", "after", "value", "ratio"))
    for name in comparing.unmatched(*reports):
        say(f"  {name} is in one of them only")


@app.command()
def merge(
    runs: Annotated[list[Path], typer.Argument(metavar="A.json B.json …", help="Runs of one commit.")],
    output: Annotated[Path, typer.Option("--json", help="Where to write what others are compared with.")],
) -> None:
    """Make one report of several runs of the same commit: the median run of each row, and how far the runs differed."""
    whole = small_bench.merged([comparing.read_report(run) for run in runs])
    output.write_text(json.dumps(whole, indent=2) + "\n", "utf-8")
    say(f"{counted(len(whole['figures']), 'row')} of {counted(len(runs), 'run')}: {output}")


def run() -> None:
    """Run the command line; SIGTERM and Ctrl-C stop all processes that it has started."""
    keep_files_private()
    logging.getLogger("services.log.kafka").setLevel(logging.ERROR)
    for reason in unused_modules():
        say(f"Warning: {reason}", err=True)
    with stopping_on_signals():
        app()


if __name__ == "__main__":
    run()
