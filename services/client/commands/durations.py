"""Durations as people write them: ``90s``, ``15m``, ``1h``, ``7d``."""

from __future__ import annotations

import re

import typer

_UNITS_MS = {"d": 86_400_000, "h": 3_600_000, "m": 60_000, "s": 1_000}
BEYOND_MS = 2.0**63
SHOWN_LETTERS = 40
_WRITTEN = re.compile(r"(?:\d+(?:\.\d+)?[dhms])+")
_PART = re.compile(r"(\d+(?:\.\d+)?)([dhms])")


def duration_ms(text: str) -> int:
    """Milliseconds of ``1d12h``, ``90s`` or ``0``."""
    compact = text.strip().lower()
    if compact == "0":
        return 0
    if not _WRITTEN.fullmatch(compact):
        raise typer.BadParameter(f"{text!r} is no duration; write 90s, 15m, 1h, 7d or 1d12h")
    milliseconds = sum(float(number) * _UNITS_MS[unit] for number, unit in _PART.findall(compact))
    if milliseconds >= BEYOND_MS:
        raise typer.BadParameter(f"{text[:SHOWN_LETTERS]!r} is too long: 2^63-1 milliseconds are the most")
    return round(milliseconds)


def duration_text(milliseconds: int) -> str:
    """A duration in its own units, as ``duration_ms`` reads it."""
    if milliseconds == 0:
        return "0s"
    parts = []
    for unit, unit_ms in _UNITS_MS.items():
        if unit == "s" and milliseconds:
            parts.append(f"{milliseconds / unit_ms:g}s")
        elif milliseconds >= unit_ms:
            parts.append(f"{milliseconds // unit_ms}{unit}")
            milliseconds %= unit_ms
    return "".join(parts)
