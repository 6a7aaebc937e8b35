"""A log that has lost what was read and has grown again is noticed, and one that was only trimmed is not."""

from __future__ import annotations

import pytest

from schemas.codec import codec
from schemas.records import Barrier, MetadataProgress
from schemas.topics import METADATA_PROGRESS
from services.domain.errors import OutdatedError, PositionError
from services.log.clock import VirtualClock
from services.log.memory import MemoryLog
from services.runtime.loop.positions import POSITIONS
from services.runtime.loop.runner import Runner
from services.storage.memory import MemoryStore
from services.storage.tables import TablesReader
from tests.unit.test_loop import Recorder

PROGRESS = METADATA_PROGRESS.name


def append(log: MemoryLog, *txns: int) -> None:
    encoder = codec(MetadataProgress)
    for txn in txns:
        log.append(PROGRESS, 0, encoder.encode_message(MetadataProgress(txn, Barrier("", txn, 0, ""))))


def noted(log: MemoryLog, store: MemoryStore, max_batch_messages: int = 2_000) -> list[int]:
    """What a service has noted that is started on a database and reads to the end."""
    service = Recorder()
    runner = Runner(service, 0, store, log, log.clock, max_batch_messages=max_batch_messages)
    while runner.step():
        pass
    assert runner.lag() == {PROGRESS: 0}
    return service.noted


@pytest.fixture
def log() -> MemoryLog:
    log = MemoryLog(VirtualClock())
    append(log, 1, 2, 3, 4)
    return log


@pytest.mark.parametrize("max_batch_messages", [1, 2_000])
def test_what_was_read_is_not_handed_out_again(log: MemoryLog, max_batch_messages: int) -> None:
    store = MemoryStore()
    for more in ((), (5,), (6, 7)):
        append(log, *more)
        assert noted(log, store, max_batch_messages) == list(range(1, log.end_offset(PROGRESS, 0) + 1))


@pytest.mark.parametrize("grown", [(9,), (9, 10, 11)], ids=["as long as before", "longer"])
def test_a_log_that_has_lost_its_tail_and_grown_again_is_refused(log: MemoryLog, grown: tuple[int, ...]) -> None:
    store = MemoryStore()
    noted(log, store)
    del log.partitions[PROGRESS, 0][3:]
    append(log, *grown)
    before = store.clone()
    with pytest.raises(PositionError, match=r"now holds another record at offset 3.*accept-lost-tail"):
        noted(log, store)
    assert TablesReader(store).table(POSITIONS).get(PROGRESS.encode()) == TablesReader(before).table(POSITIONS).get(
        PROGRESS.encode()
    )


def test_the_same_bytes_at_another_time_are_another_message(log: MemoryLog) -> None:
    store = MemoryStore()
    noted(log, store)
    lost = log.partitions[PROGRESS, 0].pop()
    log.partitions[PROGRESS, 0].append(lost._replace(timestamp_ms=lost.timestamp_ms + 1))
    with pytest.raises(PositionError, match="lost its tail"):
        noted(log, store)


def test_what_was_trimmed_is_not_looked_for(log: MemoryLog) -> None:
    store = MemoryStore()
    noted(log, store)
    append(log, 5)
    log.trim(PROGRESS, 0, 4)
    assert noted(log, store) == [1, 2, 3, 4, 5]


def test_a_trim_between_the_start_and_the_first_read_is_no_loss(log: MemoryLog) -> None:
    """The record before the position was only to be checked; a standby was not followed any more without it."""
    store = MemoryStore()
    noted(log, store)
    append(log, 5)
    service = Recorder()
    runner = Runner(service, 0, store, log, log.clock)
    log.trim(PROGRESS, 0, 4)
    while runner.step():
        pass
    assert service.noted == [1, 2, 3, 4, 5]


def test_a_trim_of_what_was_not_read_is_refused_with_what_to_do(log: MemoryLog) -> None:
    store = MemoryStore()
    noted(log, store)
    append(log, 5)
    runner = Runner(Recorder(), 0, store, log, log.clock)
    log.trim(PROGRESS, 0, 5)
    for _ in range(2):
        with pytest.raises(OutdatedError, match=r"begins at offset 5.*from 4 on: it was trimmed"):
            runner.step()
