"""Faults put by hand into who may order what: signatures that nobody asks for, or that anybody could have made."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from schemas.records import SecretRole
from services.metadata.service import MetadataService
from services.runtime.parts import signers
from services.runtime.parts.signers import Signers
from services.snapshots.access import Access
from tests.simulation import silent_scripts
from tests.simulation.faults import FaultMix
from tests.simulation.mutant import Mutant
from tests.simulation.scripts import PLAIN
from tests.simulation.signing import SECRETS

Patch = pytest.MonkeyPatch
_UNAUTHORIZED = FaultMix(forgeries=0.5, is_secured=True)
_CARRIED_OUT = "expected txn and error"
"""A stranger's order has taken a txn, or was answered otherwise."""


def services_need_not_sign(patch: Patch) -> None:
    """Who names a service as the sender is believed."""
    patch.setattr(Signers, "require_service", lambda *_: None)


def clients_need_not_sign(patch: Patch) -> None:
    """Who names an administrator is believed."""
    patch.setattr(Signers, "require_person", lambda *_: SecretRole.ADMINISTRATOR)


def any_service_signs(patch: Patch) -> None:
    """A service signs for every other one."""
    original = signers._is_signed_by

    def is_signed_by(row: Any, message: Any) -> bool:
        secrets = {row.secret, *SECRETS.values()} if row.role is SecretRole.SERVICE else {row.secret}
        return any(original(replace(row, secret=secret), message) for secret in secrets)

    patch.setattr(signers, "_is_signed_by", is_signed_by)


def signed_for_ever(patch: Patch) -> None:
    """What was signed long ago is good, although its number is forgotten."""
    patch.setattr(signers, "is_timely", lambda *_: True)


def denied_orders_count(patch: Patch) -> None:
    """A stranger uses up the numbers of a client."""
    original = MetadataService._denial

    def denial(self: MetadataService, message: Any, transaction: Any) -> Any:
        found = original(self, message, transaction)
        if found is not None:
            client_id, number = message.record.client_id.encode(), message.record.number
            transaction.clients.applied(client_id, number, transaction.log_time_ms, b"")
        return found

    patch.setattr(MetadataService, "_denial", denial)


def snapshots_believes_clients(patch: Patch) -> None:
    """snapshots alone asks no client for a signature."""
    patch.setattr(Access, "check_client", lambda *_: None)


def snapshots_believes_key_deletion(patch: Patch) -> None:
    """snapshots alone takes flags from whoever names key_deletion."""
    patch.setattr(Access, "check_service", lambda *_: None)


SIGNING_MUTANTS = {
    "snapshots asks no client for a signature": Mutant(
        snapshots_believes_clients, _UNAUTHORIZED, "answers", "a stranger was answered"
    ),
    "snapshots takes flags from strangers": Mutant(
        snapshots_believes_key_deletion, _UNAUTHORIZED, "flags", "shown as clean since a reset that no flag knows"
    ),
    "a service need not sign": Mutant(services_need_not_sign, _UNAUTHORIZED, "answers", _CARRIED_OUT),
    "a client need not sign": Mutant(clients_need_not_sign, _UNAUTHORIZED, "answers", _CARRIED_OUT),
    "a service signs for another": Mutant(any_service_signs, _UNAUTHORIZED, "answers", _CARRIED_OUT),
    "a signature is good for ever": Mutant(
        signed_for_ever,
        FaultMix(is_secured=True),
        "answers",
        _CARRIED_OUT,
        1,
        silent_scripts.a_command_of_long_ago,
        PLAIN,
    ),
    "a denied order uses up a number": Mutant(denied_orders_count, _UNAUTHORIZED, "answers", _CARRIED_OUT),
}
