"""Parse and print durations and sizes: ``90s``, ``1d12h``; ``10GiB``, ``1.5 MB``, ``4096``."""

from __future__ import annotations

import re
from fractions import Fraction

from services.domain.errors import DeepcleanError


class AmountError(DeepcleanError):
    """A text is no duration, size or number, or too large a one."""


_UNITS_MS = {"d": 86_400_000, "h": 3_600_000, "m": 60_000, "s": 1_000}
BEYOND_MS = 2.0**63
SHOWN_LETTERS = 40
_WRITTEN = re.compile(r"(?:\d+(?:\.\d+)?[dhms])+")
_PART = re.compile(r"(\d+(?:\.\d+)?)([dhms])")


def duration_ms(text: str) -> int:
    """Return the milliseconds of ``1d12h``, ``90s`` or ``0``.

    Raises:
        AmountError: another text, or too long a time.
    """
    compact = text.strip().lower()
    if compact == "0":
        return 0
    if not _WRITTEN.fullmatch(compact):
        raise AmountError(f"{text!r} is not a duration: write 90s, 15m, 1h, 7d or 1d12h")
    milliseconds = sum(float(number) * _UNITS_MS[unit] for number, unit in _PART.findall(compact))
    if milliseconds >= BEYOND_MS:
        raise AmountError(f"{text[:SHOWN_LETTERS]!r} is too long: the limit is 2^63-1 milliseconds")
    return round(milliseconds)


def duration_text(milliseconds: int) -> str:
    """Return a duration as text that ``duration_ms`` reads."""
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


_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([kmgtp]?)(i?)b?", re.IGNORECASE)
MOST_BYTES = 2**63 - 1
MOST_DIGITS = 40
"""Most digits of a number; Python itself refuses numbers of several thousand digits."""
_POWERS = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4, "p": 5}


def parse_size(text: str) -> int:
    """Return bytes: KiB, MiB, … are powers of 1,024, KB, MB, … of 1,000; no unit means bytes.

    Raises:
        AmountError: another text, or too many bytes.
    """
    matched = _SIZE.fullmatch(text.strip())
    if matched is None or (matched[3] and not matched[2]):
        raise AmountError(f"{text!r} is not a size: write 10GiB, 1.5MB or 4096")
    number, unit, binary = matched.groups()
    if len(number) <= MOST_DIGITS:
        size = int(Fraction(number) * (1024 if binary else 1000) ** _POWERS[unit.lower()])
        if size <= MOST_BYTES:
            return size
    raise AmountError(f"{text[:MOST_DIGITS]!r} is too large: the limit is 2^63-1 bytes")


def typed_size_text(text: str, *, is_replicated: bool = False) -> str:
    """Return a size that ``parse_size`` reads with the number and the unit that were typed, as ``10 GiB``, since other
    units would make it look like another size. ``is_replicated``: it is what is taken on disks.
    """
    matched = _SIZE.fullmatch(text.strip())
    number, unit, binary = matched.groups() if matched else (text, "", "")
    return f"{number} {unit.upper()}{binary.lower()}B{' on disks' if is_replicated else ''}"
