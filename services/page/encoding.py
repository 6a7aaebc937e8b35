"""Answers as JSON for a browser, whose numbers are exact up to 2^53 only: bytes are texts of digits."""

from __future__ import annotations

import json
from dataclasses import asdict, is_dataclass
from typing import Any

_OF_BYTES = "bytes"


def encoded(value: Any) -> bytes:
    """Return records, dictionaries, or lists of them as JSON; integers whose name ends in ``bytes`` become texts.

    A list of other values is taken as it is.
    """
    text = json.dumps(_plain(value), separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return text.encode("utf-8", "replace")


def _plain(value: Any, name: str = "") -> Any:
    if is_dataclass(value) and not isinstance(value, type):
        value = asdict(value)
    if isinstance(value, dict):
        return {str(key): _plain(one, str(key)) for key, one in value.items()}
    if isinstance(value, list | tuple) and value and (isinstance(value[0], dict) or is_dataclass(value[0])):
        return [_plain(one) for one in value]
    return str(value) if name.endswith(_OF_BYTES) and isinstance(value, int) else value
