"""Permissions that were given by default, put back by hand."""

from __future__ import annotations

import pytest

from services.runtime.parts.signers import Signers
from tests.faults.fault import Fault


def whoever_is_forgotten_administers(patch: pytest.MonkeyPatch) -> None:
    """Signers that had read no table demanded nothing: a forgotten argument made everybody an administrator."""
    initialize = Signers.__init__

    def is_off(self: Signers) -> None:
        initialize(self)
        self.is_on = False

    patch.setattr(Signers, "__init__", is_off)


FAULTS = (
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
