"""Reads what a browser asks by, so that each mistake of a reader is refused with a sentence before any work is done.

What an answer raises otherwise is a defect of the server, and is told as one.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any, TypeVar

from services.client.errors import PlaneError

INVALID_REQUEST = "INVALID_REQUEST"
MOST_DIGITS = 19
MOST_NUMBER = 2**63 - 1
_SHOWN_LETTERS = 40

Choice = TypeVar("Choice", bound=StrEnum)


def text_of(asked: Mapping[str, Any], name: str, default: str | None = None) -> str:
    """Return a text; without a default it has to be there.

    Raises:
        PlaneError: INVALID_REQUEST for one that is missing, or of another type.
    """
    if name not in asked:
        if default is None:
            raise PlaneError(INVALID_REQUEST, f"{name} is missing")
        return default
    return _text(name, asked[name])


def texts_of(asked: Mapping[str, Any], name: str) -> list[str]:
    """Return a list of texts.

    Raises:
        PlaneError: INVALID_REQUEST for one that is missing, or of another type.
    """
    if not isinstance(asked.get(name), list):
        raise PlaneError(INVALID_REQUEST, f"{name} is no list of texts")
    return [_text(name, one) for one in asked[name]]


def number_of(asked: Mapping[str, Any], name: str) -> int:
    """Return a whole number, which the browser sends as digits, since its own numbers are exact up to 2^53 only.

    Raises:
        PlaneError: INVALID_REQUEST for another text, or a number beyond 2^63-1.
    """
    digits = text_of(asked, name)
    if not (digits.isascii() and digits.isdigit() and len(digits) <= MOST_DIGITS and int(digits) <= MOST_NUMBER):
        raise PlaneError(INVALID_REQUEST, f"{name} is {digits[:_SHOWN_LETTERS]!r}: write a whole number up to 2^63-1")
    return int(digits)


def choice_of(asked: Mapping[str, Any], name: str, choices: type[Choice]) -> Choice:
    """Return one of several words.

    Raises:
        PlaneError: INVALID_REQUEST for another word.
    """
    word = text_of(asked, name)
    found = next((one for one in choices if one.value == word), None)
    if found is None:
        raise PlaneError(INVALID_REQUEST, f"{name} is {word[:_SHOWN_LETTERS]!r}: write one of {', '.join(choices)}")
    return found


def _text(name: str, value: object) -> str:
    if not isinstance(value, str):
        raise PlaneError(INVALID_REQUEST, f"{name} is no text")
    return value
