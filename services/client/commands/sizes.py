"""Sizes as people write them on the command line: ``10GiB``, ``1.5 MB``, ``4096``."""

from __future__ import annotations

import re
from fractions import Fraction

import typer

_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([kmgtp]?)(i?)b?", re.IGNORECASE)
MOST_BYTES = 2**63 - 1
MOST_DIGITS = 40
"""Of a number; Python reads no more than some thousand."""
_POWERS = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4, "p": 5}


def parse_size(text: str) -> int:
    """Bytes: KiB, MiB, … are powers of 1,024, KB, MB, … of 1,000; no unit means bytes."""
    matched = _SIZE.fullmatch(text.strip())
    if matched is None or (matched[3] and not matched[2]):
        raise typer.BadParameter(f"{text!r} is no size; write 10GiB, 1.5MB or 4096")
    number, unit, binary = matched.groups()
    if len(number) <= MOST_DIGITS:
        size = int(Fraction(number) * (1024 if binary else 1000) ** _POWERS[unit.lower()])
        if size <= MOST_BYTES:
            return size
    raise typer.BadParameter(f"{text[:MOST_DIGITS]!r} is too much: 2^63-1 bytes are the most")
