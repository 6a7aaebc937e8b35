"""Defects of upgrades: what a later program writes, read by an older one and by a rebuild."""

from __future__ import annotations

from dataclasses import replace

import pytest

from schemas.topics import METADATA_COMMANDS
from services.log import schema_topic
from services.metadata.state import upgrades
from services.runtime.loop import changelog
from tests.faults.fault import Fault


def commands_are_applied_by_any_schema_that_can_be_read(patch: pytest.MonkeyPatch) -> None:
    """A rebuild applied commands that the plane had dead-lettered before their schema was published."""
    patch.setattr(upgrades, "check_announced", lambda *_: None)


def announced_schemas_are_not_awaited(patch: pytest.MonkeyPatch) -> None:
    """metadata dead-lettered commands by an announced schema that it could not look up yet."""
    patch.setattr(upgrades, "_require", lambda _: None)


def schemas_are_published_without_announcement(patch: pytest.MonkeyPatch) -> None:
    """Commands by a published schema were dead-lettered for ever."""
    patch.setattr(schema_topic, "METADATA_COMMANDS", replace(METADATA_COMMANDS, name="none"))


def a_changelog_leaves_schemas_out(patch: pytest.MonkeyPatch) -> None:
    """After going back, an older copy of snapshots could not read the rows that the newer program had changed."""
    patch.setattr(changelog, "later_schemas", lambda _: ())


_ANNOUNCED = "tests/unit/test_announced_schemas.py::"
FAULTS = (
    Fault(
        commands_are_applied_by_any_schema_that_can_be_read,
        caught_by=f"{_ANNOUNCED}test_a_command_is_applied_behind_its_announcement_alone_also_in_a_rebuild",
        message="assert",
    ),
    Fault(
        announced_schemas_are_not_awaited,
        caught_by=f"{_ANNOUNCED}test_metadata_waits_for_an_announced_schema_and_does_not_start_without_it",
        message="DID NOT RAISE",
    ),
    Fault(
        schemas_are_published_without_announcement,
        caught_by=f"{_ANNOUNCED}test_the_schemas_of_commands_are_announced_before_they_are_published",
        message="assert",
    ),
    Fault(
        a_changelog_leaves_schemas_out,
        caught_by="tests/unit/test_changelog.py::test_an_older_copy_learns_the_schemas_of_what_a_newer_program_has_changed",
        message="once a start",
    ),
)
