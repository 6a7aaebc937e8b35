"""Conditions on the fields of rows, as in ``size_bytes>1000``, and the fields that a command shows."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import typer

from services.plane.upkeep.readable_tables import UNREADABLE, ReadableRow, TableReadError, nearest

KEY = "@key"
OF_ROWS: dict[str, Callable[[ReadableRow], Any]] = {
    KEY: lambda row: row.key,
    "@version": lambda row: row.version,
    "@bytes": lambda row: row.stored_bytes,
}
"""What can be named like a field: the key of a row, the version of the schema that has written it, its stored bytes."""
_CONDITION = re.compile(r"([\w.@]+)\s*(!=|<=|>=|=|<|>|~)\s*(.*)", re.DOTALL)
_WORDS = {None: "null", True: "true", False: "false"}
_COMPARE: dict[str, Callable[[Any, Any], bool]] = {
    "=": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


@dataclass(frozen=True, slots=True)
class Condition:
    """A condition on one field; of a list it holds if it holds for one of its elements."""

    path: str
    sign: str
    wanted: str

    def holds(self, row: ReadableRow) -> bool:
        """Return whether a row meets the condition. A row that cannot be decoded always does, so that it is seen."""
        return UNREADABLE in row.value or any(map(self._holds_for, values_at(row, self.path)))

    def _holds_for(self, value: Any) -> bool:
        if self.sign == "~":
            return re.search(self.wanted, plain_text(value)) is not None
        if isinstance(value, int) and not isinstance(value, bool):
            return _COMPARE[self.sign](value, self._number())
        if value is None and self.sign not in ("=", "!="):
            return False
        return _COMPARE[self.sign](plain_text(value), self.wanted)

    def _number(self) -> int:
        try:
            return int(self.wanted.replace(",", "").replace("_", ""))
        except ValueError as error:
            raise TableReadError(f"{self.path} is a number, and {self.wanted} is none: compare it with one") from error


def conditions(texts: Iterable[str], fields: Sequence[str]) -> list[Condition]:
    """Parse conditions on the fields of a table, given by their paths."""
    return [_condition(text, fields) for text in texts]


def _condition(text: str, fields: Sequence[str]) -> Condition:
    found = _CONDITION.fullmatch(text.strip())
    if found is None:
        raise typer.BadParameter(f"{text!r} is not FIELD OP VALUE with =, !=, <, <=, >, >= or ~ (a regular expression)")
    field, sign, wanted = found.groups()
    if sign == "~":
        try:
            re.compile(wanted)
        except re.error as error:
            raise typer.BadParameter(f"{wanted!r} is no regular expression: {error}") from error
    return Condition(field_path(field, fields), sign, wanted)


def field_path(name: str, fields: Sequence[str]) -> str:
    """Return the path of a field: of several that end in this name the one that is nested the least.

    Raises:
        TableReadError: no field has this name, or several of the same depth.
    """
    if name in OF_ROWS or name in fields:
        return name
    ending = [path for path in fields if path.endswith(f".{name}")]
    least = min((path.count(".") for path in ending), default=0)
    found = [path for path in ending if path.count(".") == least]
    if len(found) == 1:
        return found[0]
    if found:
        raise TableReadError(f"several fields are named {name}: choose {' or '.join(found)}")
    raise TableReadError(f"no field is named {name}: {nearest(name, (*fields, *OF_ROWS))}")


def values_at(row: ReadableRow, path: str) -> Iterator[Any]:
    """Yield the values of a row at a path: several if a list is on the way, none if a record there is missing.

    Of a row that cannot be decoded it is the reason.
    """
    if path in OF_ROWS:
        return iter([OF_ROWS[path](row)])
    return _values(row.value, UNREADABLE if UNREADABLE in row.value else path)


def _values(value: Any, path: str) -> Iterator[Any]:
    if isinstance(value, list):
        for one in value:
            yield from _values(one, path)
    elif not path:
        yield value
    elif isinstance(value, Mapping):
        name, _, rest = path.partition(".")
        if name in value:
            yield from _values(value[name], rest)


def plain_text(value: Any) -> str:
    """Return a value as text, spelled as in JSON but without quotes."""
    return _WORDS[value] if value is None or isinstance(value, bool) else str(value)
