"""Defects of the import of an Ozone Manager's database."""

from __future__ import annotations

from typing import Any

import pytest

from schemas.records import CreateSnapshot, MetadataReply
from services.cli.lens import importing
from services.cli.lens.importing import Importer
from streaming.lens.ozone import changes
from tests.faults.fault import Fault


def names_change_places_without_a_third(patch: pytest.MonkeyPatch) -> None:
    """Of two objects that exchange their names neither was put aside, so the plane refused the renames."""
    patch.setattr(changes, "_CLASSIFY", changes._CLASSIFY.replace("OR EXISTS (SELECT", "OR 0 = (SELECT"))


def what_stays_is_put_again(patch: pytest.MonkeyPatch) -> None:
    """A row whose key or update alone had changed was put: an older snapshot then held bytes of its own."""
    patch.setattr(changes, "_PUT", changes._PUT.replace("new.blocks IS NOT old.blocks AND ", ""))


def what_nobody_could_reach_is_renamed(patch: pytest.MonkeyPatch) -> None:
    """A file below a lost directory was renamed when a directory led to it again, but the plane had never had it."""
    lost = "DELETE FROM old WHERE parent NOT IN (SELECT id FROM was);"
    patch.setattr(changes, "_CLASSIFY", changes._CLASSIFY.replace(lost, ""))


def a_bucket_that_exists_is_changed(patch: pytest.MonkeyPatch) -> None:
    """The plane was asked for each bucket only when its turn came: those before it were there already."""
    patch.setattr(Importer, "_exists", lambda *_: False)


def snapshots_are_of_today(patch: pytest.MonkeyPatch) -> None:
    """Snapshots had the time of the import, so that retention saw none of them as old."""

    def of_today(volume: str, bucket: str, name: str, at_ms: int) -> Any:
        del at_ms
        return CreateSnapshot(volume, bucket, name)

    patch.setattr(importing, "CreateSnapshot", of_today)


def keys_that_a_deletion_left_are_not_counted(patch: pytest.MonkeyPatch) -> None:
    """A deletion of several keys is no error if it leaves some: the import seemed complete."""

    def errors_alone(self: Importer, command: Any, reply: MetadataReply) -> None:
        if reply.error:
            self._refuse(1, f"{command}: {reply.error}")

    patch.setattr(Importer, "_note", errors_alone)


COMMAND = "tests/unit/test_import_command.py::"
CHANGES = "tests/property/test_ozone_changes.py::"

FAULTS = (
    Fault(
        names_change_places_without_a_third,
        caught_by=f"{CHANGES}test_names_that_change_places_are_renamed",
        message=r"assert 'd' not in \{",
    ),
    Fault(
        what_stays_is_put_again,
        caught_by=f"{CHANGES}test_each_state_is_reached_and_what_stays_is_not_put_again",
        message=r"= \{.*\}\.setdefault",
    ),
    Fault(
        what_nobody_could_reach_is_renamed,
        caught_by=f"{CHANGES}test_a_file_that_comes_out_of_a_lost_directory_is_put",
        message="cannot unpack non-iterable NoneType",
    ),
    Fault(
        a_bucket_that_exists_is_changed,
        caught_by=f"{COMMAND}test_a_bucket_that_exists_is_refused_before_anything_is_done",
        message="assert 'The plane has vol/bbb already",
    ),
    Fault(
        snapshots_are_of_today,
        caught_by=f"{COMMAND}test_a_tree_is_shown_with_the_figures_of_the_lens",
        message=r"== \[1700000000000, 1700000001000\]",
    ),
    Fault(
        keys_that_a_deletion_left_are_not_counted,
        caught_by=f"{COMMAND}test_a_key_that_could_not_be_deleted_is_counted",
        message="assert 'The plane has refused 2 changes",
    ),
)
