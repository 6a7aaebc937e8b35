"""Conditions on the live version of a key: the generation that it must have, or that there must be none."""

from __future__ import annotations

from schemas.error_codes import ErrorCode
from schemas.records import KeyRow
from services.domain.refusals import CommandError

NO_CONDITION = 0
MUST_BE_ABSENT = -1


def check_generation(live: KeyRow | None, expected: int, path: str) -> None:
    """Refuse a command whose condition the live version does not meet.

    Raises:
        CommandError: KEY_ALREADY_EXISTS, or KEY_NOT_FOUND when the key is missing or has another generation.
    """
    if expected == NO_CONDITION:
        return
    if expected == MUST_BE_ABSENT:
        if live is not None:
            raise CommandError(ErrorCode.KEY_ALREADY_EXISTS, f"there is a key {path} already")
    elif live is None or live.update_id != expected:
        found = "does not exist" if live is None else f"has generation {live.update_id}"
        raise CommandError(ErrorCode.KEY_NOT_FOUND, f"{path} {found}, not generation {expected}")
