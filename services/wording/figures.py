"""Sizes, amounts and times as text."""

from __future__ import annotations

from datetime import UTC, datetime

from services.domain.words import counted

_STEP = 1024
_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")


def bytes_text(size_bytes: float) -> str:
    """Return a size as text with a unit."""
    size = float(size_bytes)
    for unit in _UNITS:
        if abs(size) < _STEP or unit == _UNITS[-1]:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= _STEP
    raise AssertionError  # the loop always returns at the last unit


def on_disks(size_bytes: float, replicated_bytes: float) -> str:
    """Return what blocks take on disks, with all copies and parity, as text behind their size; nothing if it is that,
    or not known.
    """
    return f" ({bytes_text(replicated_bytes)} on disks)" if replicated_bytes not in (0, size_bytes) else ""


def size_text(size_bytes: int, replicated_bytes: int = 0, *, is_exact: bool) -> str:
    """Return a size; with ``~`` while a deleted directory is not yet expanded and the figure may still change."""
    return f"{'' if is_exact else '~'}{bytes_text(size_bytes)}{on_disks(size_bytes, replicated_bytes)}"


def amount_in_words(size_bytes: float, versions: int, replicated_bytes: float = 0) -> str:
    """Return a number of versions and their bytes as text."""
    return f"{bytes_text(size_bytes)}{on_disks(size_bytes, replicated_bytes)} in {counted(versions, 'version')}"


def time_text(time_ms: int) -> str:
    """Return a time as text; empty if it is not set."""
    return "" if time_ms < 0 else datetime.fromtimestamp(time_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")
