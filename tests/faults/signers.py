"""Permissions that were given by default, put back by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from schemas.records import AclObject
from services.metadata.namespace import access, acls
from services.metadata.state.transaction import Transaction
from services.runtime.parts.signers import Signers
from tests.faults.fault import Fault


def whoever_is_forgotten_administers(patch: pytest.MonkeyPatch) -> None:
    """Signers that had read no table demanded nothing: a forgotten argument made everybody an administrator."""
    initialize = Signers.__init__

    def is_off(self: Signers) -> None:
        initialize(self)
        self.is_on = False

    patch.setattr(Signers, "__init__", is_off)


def the_list_of_a_volume_is_changed_by_way_of_a_bucket(patch: pytest.MonkeyPatch) -> None:
    """Rights were checked for the bucket that the command named beside its object, the volume."""
    object_of = acls.object_of

    def named(transaction: Transaction, command: Any) -> tuple[int, int]:
        bucket = "" if command.object is AclObject.VOLUME else command.bucket
        path = "" if command.object in (AclObject.VOLUME, AclObject.BUCKET) else command.path
        return object_of(transaction, replace(command, bucket=bucket, path=path))

    patch.setattr(acls, "object_of", named)


def the_owner_of_a_bucket_owns_all_of_its_name(patch: pytest.MonkeyPatch) -> None:
    """Deleted buckets of that name, which the owner of the volume had paused, were resumed."""
    patch.setattr(access, "manages_volume", lambda *_: True)


FAULTS = (
    Fault(
        the_list_of_a_volume_is_changed_by_way_of_a_bucket,
        caught_by="tests/unit/test_access_lists.py::TestChanges::test_what_is_wrong_is_refused",
        message="bob may own the bucket alone",
    ),
    Fault(
        the_owner_of_a_bucket_owns_all_of_its_name,
        caught_by="tests/unit/test_collection_rights.py::"
        "test_the_owner_of_a_new_bucket_lets_none_of_that_name_go_which_was_deleted",
        message="PERMISSION_DENIED",
    ),
    Fault(
        whoever_is_forgotten_administers,
        caught_by="tests/unit/test_signers.py::test_an_unknown_sender_is_no_administrator_where_no_secret_is_set",
        message="assert not True",
    ),
    Fault(
        whoever_is_forgotten_administers,
        caught_by="tests/unit/test_signers.py::test_a_service_that_has_read_no_table_refuses_its_clients",
        message=r"'' == 'PERMISSION_DENIED'",
    ),
)
