"""Reads a listing to its end, or to a limit, page by page."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from typing import TypeVar

PAGE_ROWS = 1_000

R = TypeVar("R")


def all_rows(
    fetch_page: Callable[[str, int], list[R]], name_of: Callable[[R], str], *, start_after: str = ""
) -> Iterator[R]:
    """Rows of all pages; ``fetch_page`` takes the name to start after and the size of the page."""
    while page := fetch_page(start_after, PAGE_ROWS):
        yield from page
        if len(page) < PAGE_ROWS:
            return
        start_after = name_of(page[-1])


def first_rows(rows: Iterator[R], limit: int) -> list[R]:
    """So many rows; all for a limit of 0."""
    return list(islice(rows, limit) if limit else rows)
