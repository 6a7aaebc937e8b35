"""The output of sub-commands: tables, or JSON with the field names of the records."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

import typer
from pydantic import TypeAdapter
from rich.console import Console
from rich.table import Table

from schemas.records import MetadataReply
from services.cli.terminal import printable, say, with_escapes

_ADAPTER: TypeAdapter[Any] = TypeAdapter(Any)


def print_json(value: Any) -> None:
    """Print records, or values made of records, as indented JSON; unprintable characters become JSON escapes."""
    text = json.dumps(_ADAPTER.dump_python(value, mode="json"), indent=2, ensure_ascii=False)
    typer.echo("\n".join(with_escapes(line, _json_escape) for line in text.split("\n")))


def _json_escape(letter: str) -> str:
    units = letter.encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{units[start : start + 4]}" for start in range(0, len(units), 4))


def print_json_line(value: Any) -> None:
    """Print a record, or a value of plain types, as JSON in one line, for results that are streamed."""
    plain = _ADAPTER.dump_python(value, mode="json")
    typer.echo(with_escapes(json.dumps(plain, ensure_ascii=False), _json_escape))


def print_result(record: Any, sentence: str, *, as_json: bool) -> None:
    """Print the result of a command: a sentence, or a record as JSON."""
    if as_json:
        print_json(record)
    else:
        say(sentence)


def print_reply(reply: MetadataReply, sentence: str, *, as_json: bool) -> None:
    """Print the result of a command: a sentence, or as JSON its txn and what it committed."""
    print_result({"txn": reply.txn, "committed": reply.committed}, sentence, as_json=as_json)


def print_table(columns: Sequence[str], rows: Iterable[Sequence[object]], *, numbers: Iterable[str] = ()) -> None:
    """Print a table whose cells are never cut to the terminal width; ``numbers`` are the right-aligned columns."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    aligned = set(numbers)
    for column in columns:
        table.add_column(column, justify="right" if column in aligned else "left", overflow="fold")
    for row in rows:
        table.add_row(*(printable(str(cell)) for cell in row))
    console = Console(highlight=False, markup=False)
    if console.is_terminal:
        console.print(table)
        return
    console = Console(highlight=False, markup=False, width=10_000)
    with console.capture() as printed:
        console.print(table)
    for line in printed.get().splitlines():
        say(line.rstrip())  # files and programs do not need the padding of the last column


def print_fields(fields: Iterable[tuple[str, object]]) -> None:
    """Print one record, a line for each field."""
    pairs = [(printable(name), str(value)) for name, value in fields]
    width = max(len(name) for name, _ in pairs)
    for name, value in pairs:
        say(f"{name:<{width}}  {value}".rstrip())
