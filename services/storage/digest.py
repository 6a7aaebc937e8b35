"""Digests of the rows of a table: two tables with the same digest hold the same rows, byte by byte."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import blake2b

DIGEST_BYTES = 16
ROWS_AT_ONCE = 512


@dataclass(frozen=True, slots=True)
class RowsDigest:
    """The number of rows, and the digest of the rows in the order of their keys."""

    rows: int
    digest: str


def digest_rows(rows: Iterable[tuple[bytes, bytes]]) -> RowsDigest:
    """Return the digest of rows. It covers the lengths: a byte that moves to the value or the next row changes it."""
    found = blake2b(digest_size=DIGEST_BYTES)
    count = 0
    parts: list[bytes] = []
    for key, value in rows:
        parts.append(b"%d,%d:%b%b" % (len(key), len(value), key, value))
        if len(parts) == ROWS_AT_ONCE:
            found.update(b"".join(parts))
            count += ROWS_AT_ONCE
            parts.clear()
    found.update(b"".join(parts))
    return RowsDigest(count + len(parts), found.hexdigest())


def digest_names(named: Iterable[tuple[str, RowsDigest]]) -> str:
    """Return one digest over several named ones."""
    found = blake2b(digest_size=DIGEST_BYTES)
    for name, one in named:
        found.update(f"{len(name)},{name},{one.rows},{one.digest};".encode())
    return found.hexdigest()
