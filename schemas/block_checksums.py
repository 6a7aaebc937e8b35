"""Checksums of blocks: CRC32 of each piece of 16 KiB, as clients make them and datanodes keep and compare them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from zlib import crc32

PIECE_BYTES = 16 * 1024
CHECKSUM_TYPE = "CRC32"


def checksums_of(data: bytes | memoryview) -> list[int]:
    """Return the checksum of each piece, the last one of the rest."""
    view = memoryview(data)
    return [crc32(view[start : start + PIECE_BYTES]) for start in range(0, len(view), PIECE_BYTES)]


def checksums_of_parts(parts: Iterable[bytes]) -> Iterator[int]:
    """Yield the checksum of each piece of what the parts are together."""
    left = b""
    for part in parts:
        left += part
        whole = len(left) - len(left) % PIECE_BYTES
        yield from checksums_of(left[:whole])
        left = left[whole:]
    yield from checksums_of(left)
