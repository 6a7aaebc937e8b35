"""A plane in memory does not wait for ever: services have something to do every hour of its time."""

from __future__ import annotations

from typing import Any

import pytest

from schemas.records import ClaimRows, CreateVolume
from schemas.topics import DEAD_LETTERS
from services.client.errors import PlaneTimeoutError
from services.plane.in_memory.client import InMemoryClient
from services.plane.in_memory.plane import InMemoryPlane


def test_a_command_that_became_a_dead_letter_is_never_answered() -> None:
    client = InMemoryClient(InMemoryPlane())
    assert not client.answer(0, client.submit(0, CreateVolume("vol"))).error
    foreign: Any = ClaimRows(1, 1, ())  # comes from key_deletion alone
    with pytest.raises(PlaneTimeoutError, match="stands still"):
        client.answer(0, client.submit(0, foreign))
    assert len(client.plane.log.records(DEAD_LETTERS.name, 0)) == 1
