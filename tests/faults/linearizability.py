"""Faults that several clients at once can see."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from schemas.answers import ListedEntry
from services.metadata.reads import queries
from services.metadata.state.client_numbers import ClientNumbers
from services.storage.memory import MemoryStore
from tests.faults.fault import Fault

_SEEN = "tests/linearizability/test_simulated.py::test_what_clients_see_is_linearizable"
_NO_ORDER = "no order of the calls explains"


def repeated_commands_are_applied_again(patch: pytest.MonkeyPatch) -> None:
    """A command that a client sent again was carried out again."""
    patch.setattr(ClientNumbers, "last", lambda *_: (0, b""))


def listings_of_two_moments(patch: pytest.MonkeyPatch) -> None:
    """The second half of a listing was read from older rows than the first."""
    original = queries.list_entries
    before: dict[str, Sequence[ListedEntry]] = {}

    def list_entries(tables: Any, bucket: Any, *page: Any) -> list[ListedEntry]:
        now = original(tables, bucket, *page)
        old, before[bucket.bucket] = before.get(bucket.bucket, now), now
        return [*now[: len(now) // 2], *old[len(now) // 2 :]]

    patch.setattr(queries, "list_entries", list_entries)


def checkpoints_go_on_changing(patch: pytest.MonkeyPatch) -> None:
    """A snapshot was read from the rows of the present."""
    original = MemoryStore.open_checkpoint

    def open_checkpoint(self: MemoryStore, name: str) -> Any:
        original(self, name)  # raises where there is none
        return self.reading()

    patch.setattr(MemoryStore, "open_checkpoint", open_checkpoint)


FAULTS = (
    Fault(repeated_commands_are_applied_again, caught_by=_SEEN, message=_NO_ORDER),
    Fault(listings_of_two_moments, caught_by=_SEEN, message=_NO_ORDER),
    Fault(checkpoints_go_on_changing, caught_by=_SEEN, message=_NO_ORDER),
)
