"""The sinks of simulated owners keep what a broker keeps: a transaction is seen whole or not at all."""

from __future__ import annotations

from random import Random

import pytest

from services.domain.errors import FencedError, RetryableError
from services.log.clock import VirtualClock
from services.log.memory import MemoryLog
from tests.simulation.faults import FaultMix, Faults
from tests.simulation.owned_sinks import OwnedLog, Owners

OWNER, TOPICS = "owner", ("one", "two")
SEEDS = range(40)


class Broker:
    """A log, and what its owners have sent."""

    def __init__(self, seed: int, unacknowledged: float = 0.0) -> None:
        self.log = MemoryLog(VirtualClock(), has_control_records=True)
        faults = Faults(Random(seed), FaultMix(unacknowledged=unacknowledged))
        self.owned = OwnedLog(self.log, faults, ("metadata", 0), Owners())

    def seen(self) -> list[list[bytes]]:
        return [[record.value for record in self.log.records(topic, 0)] for topic in TOPICS]


@pytest.mark.parametrize("seed", SEEDS)
def test_what_a_former_owner_has_not_flushed_is_never_seen(seed: int) -> None:
    broker = Broker(seed)
    former = broker.owned.open_sink(OWNER)
    former.send("one", 0, b"before")
    former.flush()
    for topic in TOPICS:
        former.send(topic, 0, b"open")
    broker.owned.open_sink(OWNER)
    with pytest.raises(FencedError):
        former.flush()
    for _ in range(3):
        with pytest.raises(FencedError):
            former.send("one", 0, b"late")
    assert broker.seen() == [[b"before"], []]
    assert broker.log.end_offset("two", 0) > 0, "an aborted transaction leaves offsets"


def test_a_former_owner_cannot_tell_how_its_last_transaction_has_ended() -> None:
    found = set()
    for seed in SEEDS:
        broker = Broker(seed, unacknowledged=1.0)
        former = broker.owned.open_sink(OWNER)
        for topic in TOPICS:
            former.send(topic, 0, b"ending")
        try:
            former.flush()
        except RetryableError:
            is_known = False
        else:
            is_known = True
        broker.owned.open_sink(OWNER)
        found.add((is_known, str(broker.seen())))
    whole, nothing = "[[b'ending'], [b'ending']]", "[[], []]"
    assert found == {(True, whole), (False, whole), (False, nothing)}
