"""How many txns a command has that is not refused."""

from __future__ import annotations

from typing import Any

from schemas.records import PutKeys
from services.domain.table_keys import MAX_KEYS_PER_COMMAND


def txns_of(body: Any) -> int:
    """Return how many txns a command has: ``PutKeys`` has one for each key, refused ones included.

    One with more keys than a command may have is always refused.
    """
    if isinstance(body, PutKeys) and 1 <= len(body.keys) <= MAX_KEYS_PER_COMMAND:
        return len(body.keys)
    return 1
