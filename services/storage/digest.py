"""Digests of the rows of tables: two tables with the same digest hold the same rows, byte by byte."""

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


@dataclass(frozen=True, slots=True)
class ShardDigest:
    """Digests of a shard's tables and checkpoints."""

    txn: int
    tables: dict[str, RowsDigest]
    checkpoints: dict[str, RowsDigest]
    """For each live snapshot the digest of its checkpoint: from feature level 2 on, of its own bucket's rows."""

    @property
    def digest(self) -> str:
        """The digest of all tables and checkpoints."""
        named = [(f"table {name}", one) for name, one in sorted(self.tables.items())]
        named += [(f"checkpoint {name}", one) for name, one in sorted(self.checkpoints.items())]
        return digest_names(named)

    @property
    def rows(self) -> int:
        """Rows of all tables, without checkpoints."""
        return sum(one.rows for one in self.tables.values())

    def differences(self, other: ShardDigest) -> list[str]:
        """Return the names of the tables and checkpoints that differ."""
        differing = []
        pairs = (("", self.tables, other.tables), ("checkpoint ", self.checkpoints, other.checkpoints))
        for kind, mine, theirs in pairs:
            names = sorted(mine.keys() | theirs.keys())
            differing += [f"{kind}{name}" for name in names if mine.get(name) != theirs.get(name)]
        return differing


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
