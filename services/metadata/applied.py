"""Ends a txn: stores its number, and publishes what its changes mean for collection."""

from __future__ import annotations

from services.metadata.collecting import breaker
from services.metadata.state.transaction import Transaction


def applied(transaction: Transaction) -> None:
    """Finish the present command, or its present part, after its changes to the tables."""
    transaction.counters.txn = transaction.txn
    # Each of these is rarely needed, and a call that does nothing is a hundredth of what a command costs.
    if transaction.space.lowered or transaction.space.disagreements:
        breaker.trip_where_figures_disagree(transaction)
    if transaction.collection_states.changed:
        send_changed_states(transaction)
    if transaction.orphans.row is not None or not transaction.orphans.is_known:
        transaction.orphans.look_at_message(transaction.work)


def send_changed_states(transaction: Transaction) -> None:
    """Publish the present command's changes of collection states to the services that claim and purge."""
    level = transaction.counters.feature_level
    transaction.collection_states.send_changed(transaction.work, transaction.txn, level)
