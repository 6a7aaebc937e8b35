"""Read a listing to its end, or up to a limit, page by page."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Generic, TypeVar

from schemas.answers import ListedDeletion, ListedOpenKey
from schemas.records import UploadRow

PAGE_ROWS = 1_000

R = TypeVar("R")


def all_rows(
    fetch_page: Callable[[str, int], list[R]], name_of: Callable[[R], str], *, start_after: str = ""
) -> Iterator[R]:
    """Yield the rows of all pages; ``fetch_page`` takes the name to start after and the size of the page."""
    while page := fetch_page(start_after, PAGE_ROWS):
        yield from page
        if len(page) < PAGE_ROWS:
            return
        start_after = name_of(page[-1])


def deleted_position(entry: ListedDeletion) -> str:
    """Return the position at which a listing of deletions continues after an entry."""
    return f"{entry.death}:{entry.object_id}"


def open_key_position(listed: ListedOpenKey) -> str:
    """Return the position at which a listing of open keys continues after an entry."""
    directory = f"{listed.row.parent_id}/" if listed.row.parent_id else ""
    return f"{directory}{listed.row.name}/{listed.row.session}"


def upload_position(upload: UploadRow) -> str:
    """Return the position at which a listing of uploads continues after one."""
    return f"{upload.key}/{upload.upload_id}"


@dataclass(frozen=True, slots=True)
class FirstRows(Generic[R]):
    """The first rows of a listing, and whether others follow."""

    rows: list[R]
    has_more: bool


def first_rows(rows: Iterator[R], limit: int) -> FirstRows[R]:
    """Return at most ``limit`` rows, or all for a limit of 0."""
    if not limit:
        return FirstRows(list(rows), has_more=False)
    first = list(islice(rows, min(limit, sys.maxsize)))
    return FirstRows(first, has_more=len(first) == limit and next(rows, None) is not None)
