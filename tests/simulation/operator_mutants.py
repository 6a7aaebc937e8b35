"""Faults put by hand into what an operator relies on: pauses that let something through, or keep something for ever."""

from __future__ import annotations

from typing import Any

import pytest

from services.directory_deletion.trees import Trees
from services.key_deletion.stores import Stores
from services.metadata import claims
from tests.simulation.errors import LivenessError, SafetyError
from tests.simulation.faults import FaultMix
from tests.simulation.mutants import Mutant

Patch = pytest.MonkeyPatch


def claim_ignores_a_pause(patch: Patch) -> None:
    """What was asked for before a pause was heard of is claimed behind it."""
    patch.setattr(claims, "is_held_back", lambda *_: False)


def resume_forgets_rows(patch: Patch) -> None:
    """What was held back is not looked at again."""
    patch.setattr(Stores, "sweep_again", lambda *_: None)


def resume_forgets_trees(patch: Patch) -> None:
    """Trees that have waited go on waiting."""
    original = Trees.enlist_again

    def enlist_again(self: Trees, tables: Any) -> None:
        if self._collector.is_running and self._states:
            return
        original(self, tables)

    patch.setattr(Trees, "enlist_again", enlist_again)


OPERATOR_MUTANTS = {
    "a claim ignores a pause": Mutant(claim_ignores_a_pause, FaultMix(), (SafetyError,), runs=120),
    "a resume forgets rows": Mutant(resume_forgets_rows, FaultMix(), (LivenessError,), runs=120),
    "a resume forgets trees": Mutant(resume_forgets_trees, FaultMix(), (LivenessError,), runs=120),
}
