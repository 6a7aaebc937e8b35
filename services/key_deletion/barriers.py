"""Barriers that arrive on two topics: when both copies have arrived, all earlier messages have, too."""

from __future__ import annotations

from dataclasses import replace

from schemas.records import Barrier
from schemas.topics import PURGE_KEYS, SWEEP_RESULTS, Topic
from services.key_deletion.tables import BARRIER_TABLE, barrier_key
from services.runtime.loop.service import Work


def joined(barrier: Barrier, topic: Topic, work: Work) -> Barrier | None:
    """Return a barrier that has now arrived on both topics. Store one that has not, and return None.

    A repeat of a barrier that has passed waits for a copy that may never arrive. The next round of its request replaces
    it, so that a request leaves at most one row. A barrier does not replace one of a later round, which is still valid.
    """
    table = work.table(BARRIER_TABLE)
    own_key = barrier_key(topic, barrier.barrier_id)
    counterpart_key = barrier_key(SWEEP_RESULTS if topic is PURGE_KEYS else PURGE_KEYS, barrier.barrier_id)
    own, counterpart = table.get(own_key), table.get(counterpart_key)
    if any(known is not None and known.round > barrier.round for known in (own, counterpart)):
        return None
    if counterpart is None or counterpart.round < barrier.round:
        table.put(own_key, barrier)
        return None
    table.delete(own_key)
    table.delete(counterpart_key)
    # A barrier that was sent again has passed metadata at two txns.
    passed_txn = min(barrier.passed_txn, counterpart.passed_txn)
    return replace(barrier, work=max(barrier.work, counterpart.work), passed_txn=passed_txn)
