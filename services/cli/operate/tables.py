"""``deepclean tables``: list, count and show the rows of any table, read-only, while a plane runs or is stopped."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from itertools import islice
from pathlib import Path
from shlex import quote
from typing import Annotated, Any

import typer

from services.cli.operate.row_filters import conditions, field_path, plain_text, values_at
from services.cli.output import print_fields, print_json_line, print_table
from services.cli.session import JsonOption, made_session
from services.cli.terminal import printable, say
from services.domain.words import counted
from services.plane.stack.process_names import SERVICES
from services.plane.upkeep.readable_tables import KeyRange, ReadableRow, ReadableTables, TableReadError, TableSummary
from services.plane.upkeep.table_places import TablesPlace, place_in_directory, places_in_home, reading_tables
from services.wording.figures import bytes_text, time_text

app = typer.Typer(no_args_is_help=True, help="Show the rows of any table of a plane's databases, read-only.")
FIRST_TIME_MS = 10**11
"""Smaller numbers of milliseconds are durations, no times since 1970."""
ROWS_ALIGNED = 500

TableArgument = Annotated[str, typer.Argument(metavar="TABLE", help="Name of the table, as list prints it.")]
DbOption = Annotated[
    Path | None, typer.Option("--db", metavar="DIR", help="A database or snapshot checkpoint outside of a home.")
]
ServiceOption = Annotated[
    str, typer.Option("--service", help=f"Service of the database, if several have the table: {', '.join(SERVICES)}.")
]
ShardOption = Annotated[int, typer.Option("--shard", min=0, help="Shard of the database.")]
SnapshotOption = Annotated[
    str,
    typer.Option("--snapshot", metavar="NAME", help="Read this snapshot's checkpoint: VOLUME/BUCKET/NAME or its id."),
]
PrefixOption = Annotated[str, typer.Option("--prefix", help="Only keys that begin with this.")]
FromOption = Annotated[str, typer.Option("--from", metavar="KEY", help="Begin with this key, or the next.")]
ToOption = Annotated[str, typer.Option("--to", metavar="KEY", help="End before this key.")]
WhereOption = Annotated[
    list[str] | None,
    typer.Option(
        "--where", metavar="CONDITION", help="FIELD OP VALUE, as size_bytes>1000 or name~^logs/; all must hold."
    ),
]


@app.command("list")
def list_tables(
    context: typer.Context,
    db: DbOption = None,
    service: ServiceOption = "",
    shard: ShardOption = 0,
    snapshot: SnapshotOption = "",
    as_json: JsonOption = False,
) -> None:
    """List the tables of a shard with their rows, bytes, keys and records. ~ marks an estimate."""
    for number, place in enumerate(_places(context, db, service, shard, snapshot)):
        with reading_tables(place) as tables:
            summaries = [tables.summary(name) for name in tables.names()]
        if as_json:
            for one in summaries:
                print_json_line({"service": place.service, **asdict(one)})
            continue
        say(*([""] if number else []), f"{place.service}: {place.directory}")
        print_table(
            ["TABLE", "ROWS", "BYTES", "RECORD", "KEY"],
            ((one.name, _rows_text(one), bytes_text(one.size_bytes), one.record, one.key_format) for one in summaries),
            numbers=["ROWS", "BYTES"],
        )


def _rows_text(summary: TableSummary) -> str:
    return f"{'' if summary.is_exact else '~'}{summary.rows:,}"


@app.command()
def count(
    context: typer.Context,
    table: TableArgument,
    prefix: PrefixOption = "",
    start: FromOption = "",
    end: ToOption = "",
    where: WhereOption = None,
    db: DbOption = None,
    service: ServiceOption = "",
    shard: ShardOption = 0,
    snapshot: SnapshotOption = "",
    as_json: JsonOption = False,
) -> None:
    """Count the rows of a table, or of a range of its keys, by reading them."""
    keys = KeyRange(prefix, start, end)
    with _opened(context, db, service, shard, snapshot, table) as tables:
        if where:
            rows = sum(1 for _ in _matching(tables.scan(table, keys), where, tables.fields(table)))
        else:
            rows = tables.count(table, keys)
    if as_json:
        print_json_line({"table": table, "rows": rows})
    else:
        say(counted(rows, "row"))


@app.command()
def get(
    context: typer.Context,
    table: TableArgument,
    key: Annotated[str, typer.Argument(metavar="KEY", help="The key, as scan prints it.")],
    db: DbOption = None,
    service: ServiceOption = "",
    shard: ShardOption = 0,
    snapshot: SnapshotOption = "",
    as_json: JsonOption = False,
) -> None:
    """Show the row of one key."""
    with _opened(context, db, service, shard, snapshot, table) as tables:
        row = tables.get(table, key)
    if as_json:
        print_json_line({"key": row.key, "value": row.value})
    else:
        _print_row(row)


@app.command()
def scan(
    context: typer.Context,
    table: TableArgument,
    prefix: PrefixOption = "",
    start: FromOption = "",
    end: ToOption = "",
    where: WhereOption = None,
    fields: Annotated[
        str,
        typer.Option(
            "--fields", metavar="A,B", help="Only these fields, in columns; also @version and @bytes of the stored row."
        ),
    ] = "",
    limit: Annotated[int | None, typer.Option(min=1, help="Maximum number of rows.")] = None,
    is_keys_only: Annotated[bool, typer.Option("--keys-only", help="Only the keys.")] = False,
    db: DbOption = None,
    service: ServiceOption = "",
    shard: ShardOption = 0,
    snapshot: SnapshotOption = "",
    as_json: JsonOption = False,
) -> None:
    """Show the rows of a table in the order of their keys; with --json one object a line."""
    names = [name.strip() for name in fields.split(",") if name.strip()]
    with _opened(context, db, service, shard, snapshot, table) as tables:
        paths = {name: field_path(name, tables.fields(table)) for name in names}
        scanned = tables.scan(table, KeyRange(prefix, start, end))
        rows = islice(_matching(scanned, where, tables.fields(table)), limit)
        if as_json:
            for row in rows:
                value = {} if is_keys_only else {"value": _selected(row, paths) if paths else row.value}
                print_json_line({"key": row.key, **value})
        elif is_keys_only:
            for row in rows:
                say(row.key)
        elif paths:
            _print_columns(rows, paths)
        else:
            for number, row in enumerate(rows):
                say(*[""] * bool(number))
                _print_row(row)
        following = None if limit is None else next(scanned, None)
    if following is not None:
        say(f"The limit is reached: continue with --from {quote(following.key)}", err=True)


def _places(
    context: typer.Context, db: Path | None, service: str, shard: int, snapshot: str, table: str = ""
) -> list[TablesPlace]:
    if db is None:
        return places_in_home(made_session(context).home, service, shard, snapshot, table)
    if service or snapshot:
        raise TableReadError("--db names one database: leave out --service and --snapshot, or --db")
    return [place_in_directory(db)]


@contextmanager
def _opened(
    context: typer.Context, db: Path | None, service: str, shard: int, snapshot: str, table: str
) -> Iterator[ReadableTables]:
    """Open the only database that has a table."""
    places = _places(context, db, service, shard, snapshot, table)
    if len(places) > 1:
        choice = " or ".join(f"--service {place.service}" for place in places)
        raise TableReadError(f"several services have a table {table}: add {choice}")
    with reading_tables(places[0]) as tables:
        yield tables


def _matching(rows: Iterator[ReadableRow], where: list[str] | None, fields: Sequence[str]) -> Iterator[ReadableRow]:
    """Return the rows that meet all conditions."""
    wanted = conditions(where or (), fields)
    return (row for row in rows if all(one.holds(row) for one in wanted))


def _selected(row: ReadableRow, paths: Mapping[str, str]) -> Mapping[str, Any]:
    found = {name: list(values_at(row, path)) for name, path in paths.items()}
    return {name: values[0] if len(values) == 1 else values or None for name, values in found.items()}


def _print_columns(rows: Iterator[ReadableRow], paths: Mapping[str, str]) -> None:
    """Print fields in columns, numbers right-aligned. Some rows are read, aligned and printed together."""
    heads = ["KEY", *map(str.upper, paths)]
    widths, lines = [len(head) for head in heads], [heads]
    while part := [_cells(row, paths) for row in islice(rows, ROWS_ALIGNED)]:
        columns = list(zip(*part, strict=True))
        widths = [max(width, *map(len, column)) for width, column in zip(widths, columns, strict=True)]
        pads = [str.rjust if all(map(_is_number, column)) else str.ljust for column in columns]
        for cells in [*lines, *part]:
            say("  ".join(pad(cell, width) for pad, cell, width in zip(pads, cells, widths, strict=True)).rstrip())
        lines = []
    for heads in lines:
        say("  ".join(heads))


def _cells(row: ReadableRow, paths: Mapping[str, str]) -> list[str]:
    return [row.key, *(printable(", ".join(map(plain_text, values_at(row, path)))) for path in paths.values())]


def _is_number(text: str) -> bool:
    return text.removeprefix("-").isdecimal()


def _print_row(row: ReadableRow) -> None:
    """Print a row: its key, and a line for each field."""
    say(row.key)
    if row.value:
        print_fields((f"  {name}", value) for name, value in _lines(row.value, ""))


def _lines(value: Any, path: str) -> Iterator[tuple[str, str]]:
    """Yield the path and the text of each field, however deeply it is nested."""
    if isinstance(value, Mapping):
        for name, one in value.items():
            yield from _lines(one, f"{path}.{name}" if path else name)
    elif isinstance(value, list) and any(isinstance(one, Mapping) for one in value):
        for number, one in enumerate(value):
            yield from _lines(one, f"{path}.{number}")
    elif isinstance(value, list):
        yield path, ", ".join(map(plain_text, value))
    else:
        is_time = path.endswith("_ms") and isinstance(value, int) and value > FIRST_TIME_MS
        yield path, f"{value} ({time_text(value)})" if is_time else plain_text(value)
