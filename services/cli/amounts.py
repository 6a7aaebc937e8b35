"""Durations and sizes of options and arguments: what cannot be read is a mistake of usage."""

from __future__ import annotations

import typer

from services.wording import amounts
from services.wording.amounts import AmountError


def duration_ms(text: str) -> int:
    """Return the milliseconds of ``1d12h``, ``90s`` or ``0``."""
    try:
        return amounts.duration_ms(text)
    except AmountError as error:
        raise typer.BadParameter(str(error)) from None


def parse_size(text: str) -> int:
    """Return the bytes of ``10GiB``, ``1.5MB`` or ``4096``."""
    try:
        return amounts.parse_size(text)
    except AmountError as error:
        raise typer.BadParameter(str(error)) from None
