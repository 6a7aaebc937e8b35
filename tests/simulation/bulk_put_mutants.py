"""Faults in the command that puts many keys: a txn for all of them, and a refused key that takes others with it."""

from __future__ import annotations

from collections.abc import Mapping

from services.metadata.state.transaction import Transaction
from tests.simulation.faults import FaultMix
from tests.simulation.mutant import Mutant
from tests.simulation.mutants import Patch


def many_keys_share_a_txn(patch: Patch) -> None:
    """All keys of a command are born at one txn, and so are their blocks."""

    def begin_next(self: Transaction) -> None:
        self.has_parts = True
        self.work.begin_message()
        self.counters.txn -= 1
        self._begin_txn()

    patch.setattr(Transaction, "begin_next", begin_next)


def a_refused_key_undoes_those_before_it(patch: Patch) -> None:
    """What undoes a refused key of a command undoes the keys before it as well."""

    def begin_next(self: Transaction) -> None:
        self.counters.skipped_txns += 1
        self._begin_txn()

    patch.setattr(Transaction, "begin_next", begin_next)


BULK_PUT_MUTANTS: Mapping[str, Mutant] = {
    "many keys share a txn": Mutant(many_keys_share_a_txn, FaultMix(), "answers", "expected txn and error"),
    "a refused key undoes those before it": Mutant(
        a_refused_key_undoes_those_before_it, FaultMix(), "listings", "lists|has other directories"
    ),
}
