"""Defects of a verification by parts, which would make it decide what a replay in one part does not."""

from __future__ import annotations

import pytest

from services.verifier import divided, survey
from services.verifier.division import Division
from services.verifier.part import PartReport
from services.verifier.survey import Seen
from tests.faults.fault import Fault


def corrections_are_lost(patch: pytest.MonkeyPatch) -> None:
    """Txns were counted as if no command had been refused."""
    patch.setattr(PartReport, "corrections", property(lambda _: [], lambda *_: None))


def each_part_has_a_page_of_its_own(patch: pytest.MonkeyPatch) -> None:
    """An expiry closed as many keys in each part as it may in all of them together."""
    patch.setattr(divided, "_is_one_page", lambda *_: True)


def repeats_are_new(patch: pytest.MonkeyPatch) -> None:
    """A command that a client sent again to another bucket was carried out again."""
    patch.setattr(survey, "Seen", lambda _, time_ms: Seen(-1, time_ms))
    patch.setattr(Seen, "after", lambda self, *_: self)


def links_lead_nowhere(patch: pytest.MonkeyPatch) -> None:
    """Commands on a link went to another part than those on its bucket."""
    patch.setattr(Division, "head_of", lambda _, volume, bucket: (volume, bucket))


_PARTS = "tests/property/test_verify_by_parts.py"
FAULTS = (
    Fault(corrections_are_lost, caught_by=f"{_PARTS}::test_commands_that_nobody_waits_for", message="assert"),
    Fault(
        each_part_has_a_page_of_its_own,
        caught_by=f"{_PARTS}::test_a_page_of_an_expiry_ends_for_all_buckets_where_it_is_full",
        message="assert",
    ),
    Fault(repeats_are_new, caught_by=f"{_PARTS}::test_commands_that_nobody_waits_for", message="assert"),
    Fault(links_lead_nowhere, caught_by=f"{_PARTS}::test_commands_that_nobody_waits_for", message="assert"),
)
