"""The ids of traces. They come from the version itself, so every reader of the log makes the same trace.

The lowest 56 bits of an id are as good as random, as W3C's Trace Context asks for. By them a share of all traces is
chosen, so that whoever chooses a smaller share chooses among the same ones.
"""

from __future__ import annotations

from hashlib import blake2b

from services.tracing.steps import Version

RANDOM_BITS = 56


def trace_id(shard: int, version: Version) -> int:
    """Return the id of a version's trace, of 16 bytes."""
    return _digest(" ".join([str(shard), version.kind.value, *map(str, version[1:])]), 16)


def trace_id_text(shard: int, version: Version) -> str:
    """Return the id of a version's trace as tools print it: 32 hexadecimal digits."""
    return f"{trace_id(shard, version):032x}"


def span_id(trace: int, name: str) -> int:
    """Return the id of a span, of 8 bytes, from its trace and a name that is its own there."""
    return _digest(f"{trace} {name}", 8)


def is_chosen(trace: int, share: float) -> bool:
    """Return whether a trace is among a share of all, 0 to 1."""
    return trace % (1 << RANDOM_BITS) >= (1 - share) * (1 << RANDOM_BITS)


def _digest(text: str, size: int) -> int:
    return int.from_bytes(blake2b(text.encode(), digest_size=size).digest(), "big")
