"""Barriers that come on two topics: only when both twins are here is everything before them here, too."""

from __future__ import annotations

from dataclasses import replace

from schemas.records import Barrier
from schemas.topics import PURGE_KEYS, SWEEP_RESULTS, Topic
from services.key_deletion.tables import BARRIER_TABLE, barrier_key
from services.runtime.loop.service import Work


def joined(barrier: Barrier, topic: Topic, work: Work) -> Barrier | None:
    """The barrier once its twin was here; until then it is kept in a table, and None is said.

    A repeat of one that has passed waits for a twin that may never come; the next round of its request takes its
    place, so that a request leaves one row at most. It does not take the place of a later round, which others wait for.
    """
    table = work.table(BARRIER_TABLE)
    counterpart_topic = SWEEP_RESULTS if topic is PURGE_KEYS else PURGE_KEYS
    own_key, counterpart_key = (
        barrier_key(topic, barrier.barrier_id),
        barrier_key(counterpart_topic, barrier.barrier_id),
    )
    own, counterpart = table.get(own_key), table.get(counterpart_key)
    if any(known is not None and known.round > barrier.round for known in (own, counterpart)):
        return None
    if counterpart is None or counterpart.round < barrier.round:
        table.put(own_key, barrier)
        return None
    table.delete(own_key)
    table.delete(counterpart_key)
    # A round that was asked again has passed metadata twice.
    passed_txn = min(barrier.passed_txn, counterpart.passed_txn)
    return replace(barrier, work=max(barrier.work, counterpart.work), passed_txn=passed_txn)
