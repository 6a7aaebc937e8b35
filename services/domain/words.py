"""Numbers with their nouns, for messages."""

from __future__ import annotations


def counted(number: int, noun: str, plural: str = "") -> str:
    """Return a number with its noun, singular for one; the plural is the noun with an s unless it is given."""
    return f"{number:,} {noun if number == 1 else plural or f'{noun}s'}"
