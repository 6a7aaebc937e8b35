"""Databases read side by side: each row once for each stretch of databases that have it, with their bits."""

from __future__ import annotations

from collections.abc import Iterator

from hypothesis import given
from hypothesis import strategies as st

from streaming.rocksdb.checkpoint_rows import Row
from streaming.rocksdb.side_by_side import distinct_rows

CONTENTS = st.dictionaries(st.integers(0, 300), st.integers(0, 2), max_size=200)


class Listed:
    """Rows in memory."""

    def __init__(self, rows: list[Row], most: int) -> None:
        self._rows = rows
        self._most = most

    def scan(self, family: str, start: bytes, end: bytes) -> Iterator[Row]:
        return iter([row for row in self._rows if start <= row[0] < end])

    def chunks(self, family: str, start: bytes, end: bytes, most: int = 0) -> Iterator[list[Row]]:
        rows = list(self.scan(family, start, end))
        return (rows[place : place + self._most] for place in range(0, len(rows), self._most))

    def boundaries(self, family: str, start: bytes, end: bytes, parts: int) -> set[bytes]:
        return set()

    def table_files(self) -> None:
        return None


@given(
    st.lists(st.tuples(CONTENTS, st.integers(1, 250)), min_size=1, max_size=5),
    st.dictionaries(st.integers(0, 300), st.just(9), max_size=300),
)
def test_each_row_is_there_once_for_each_stretch(
    copies: list[tuple[dict[int, int], int]], shared: dict[int, int]
) -> None:
    """With many rows that all have, and some of each."""
    expected: dict[Row, list[int]] = {}
    open_copies = []
    for place, (own, most) in enumerate(copies):
        rows = [(b"%03d" % key, b"%d" % value) for key, value in sorted({**shared, **own}.items())]
        open_copies.append((1 << place, Listed(rows, most)))
        for row in rows:
            if b"010" <= row[0] < b"290":
                stretches = expected.setdefault(row, [])
                if stretches and stretches[-1] >> place - 1:
                    stretches[-1] |= 1 << place
                else:
                    stretches.append(1 << place)
    found: dict[Row, list[int]] = {}
    last = b""
    for rows, masks in distinct_rows(open_copies, "family", b"010", b"290"):
        assert last < min(key for key, _ in rows)
        last = max(key for key, _ in rows)
        for row, mask in zip(rows, masks, strict=True):
            found.setdefault(row, []).append(mask)
    assert found == expected
