"""The output of sub-commands: tables, or JSON with the field names of the records."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any

import typer
from pydantic import TypeAdapter
from rich.console import Console
from rich.table import Table

from schemas.records import MetadataReply
from services.cli.terminal import printable, say, with_escapes
from services.domain import words

_STEP = 1024
counted = words.counted
_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
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


def bytes_text(size_bytes: float) -> str:
    """Return a size as text with a unit."""
    size = float(size_bytes)
    for unit in _UNITS:
        if abs(size) < _STEP or unit == _UNITS[-1]:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= _STEP
    raise AssertionError  # the loop always returns at the last unit


def on_disks(size_bytes: float, replicated_bytes: float) -> str:
    """Return what blocks take on disks, with all copies and parity, as text behind their size; nothing if it is that,
    or not known.
    """
    return f" ({bytes_text(replicated_bytes)} on disks)" if replicated_bytes not in (0, size_bytes) else ""


def size_text(size_bytes: int, replicated_bytes: int = 0, *, is_exact: bool) -> str:
    """Return a size; with ``~`` while a deleted directory is not yet expanded and the figure may still change."""
    return f"{'' if is_exact else '~'}{bytes_text(size_bytes)}{on_disks(size_bytes, replicated_bytes)}"


def amount_in_words(size_bytes: float, versions: int, replicated_bytes: float = 0) -> str:
    """Return a number of versions and their bytes as text."""
    return f"{bytes_text(size_bytes)}{on_disks(size_bytes, replicated_bytes)} in {counted(versions, 'version')}"


def time_text(time_ms: int) -> str:
    """Return a time as text; empty if it is not set."""
    return "" if time_ms < 0 else datetime.fromtimestamp(time_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")
