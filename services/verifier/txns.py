"""How many txns a command has that is not refused."""

from __future__ import annotations

from typing import Any

from schemas.records import PutKeys


def txns_of(body: Any) -> int:
    """Return how many txns a command has: ``PutKeys`` has one for each key, refused ones included."""
    return max(1, len(body.keys)) if isinstance(body, PutKeys) else 1
