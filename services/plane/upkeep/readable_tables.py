"""The interface between ``deepclean tables`` and a database: its tables, with keys and rows as a person reads them.

``services.plane.upkeep.stored_tables`` implements it for the databases of this project. Another kind of database needs
another implementation, and nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cached_property
from itertools import islice
from typing import Any, Protocol

from services.domain.errors import DeepcleanError

MOST_NAMES = 40
UNREADABLE = "unreadable"
"""Only field of a row that cannot be decoded; its value is the reason."""


class TableReadError(DeepcleanError):
    """What was asked for cannot be read; the message says what to do."""


@dataclass(frozen=True, slots=True)
class TableSummary:
    """One table of a database."""

    name: str
    record: str
    """Name of the record that describes its rows."""
    key_format: str
    rows: int
    is_exact: bool
    """Whether all rows were counted; else ``rows`` is an estimate."""
    size_bytes: int
    """Bytes in table files."""


@dataclass(frozen=True, slots=True)
class KeyRange:
    """The keys that begin with ``prefix``, from ``start`` on and below ``end``, as keys are shown; empty: no limit."""

    prefix: str = ""
    start: str = ""
    end: str = ""


@dataclass(frozen=True)
class ReadableRow:
    """One row. Its value is decoded when it is first used."""

    key: str
    version: int
    """Version of the schema that has written the row."""
    stored_bytes: int
    read: Callable[[], Mapping[str, Any]]

    @cached_property
    def value(self) -> Mapping[str, Any]:
        """The fields by name, nested as in the record."""
        return self.read()


class ReadableTables(Protocol):
    """The tables of one database at one moment. Unknown tables and wrong keys raise TableReadError."""

    def names(self) -> Sequence[str]:
        """Return the names of the tables."""

    def summary(self, table: str) -> TableSummary:
        """Describe a table."""

    def fields(self, table: str) -> Sequence[str]:
        """Return the paths of the fields that a row may have, as in ``key.blocks.container_id``."""

    def count(self, table: str, keys: KeyRange) -> int:
        """Count the rows of a range."""

    def get(self, table: str, key: str) -> ReadableRow:
        """Return a row. Raise TableReadError when there is none."""

    def scan(self, table: str, keys: KeyRange) -> Iterator[ReadableRow]:
        """Yield the rows of a range in the order of their keys."""


def nearest(wanted: str, names: Iterable[str]) -> str:
    """Return which names an unknown one may mean, or which there are."""
    by_lower = {name.lower(): name for name in sorted(names)}
    if near := get_close_matches(wanted.lower(), by_lower, 3, 0.5):
        return f"choose {' or '.join(by_lower[one] for one in near)}"
    shown = [*islice(by_lower.values(), MOST_NAMES), *["…"][: max(0, len(by_lower) - MOST_NAMES)]]
    return f"there are {', '.join(shown) or 'none'}"
