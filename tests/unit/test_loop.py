"""The loop when something fails half way: nothing is lost, nothing is left out, everything is tried again."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from schemas import codec as codecs
from schemas import published, stored_rows
from schemas.codec import codec, frame
from schemas.records import Barrier, MetadataCommand, MetadataProgress
from schemas.stored_rows import row_codec
from schemas.topics import BY_NAME, METADATA_COMMANDS, METADATA_PROGRESS, Topic
from services.domain.errors import RetryableError
from services.log.clock import VirtualClock
from services.log.memory import MemoryLog, MemorySource
from services.log.port import Headers, Sink, Source
from services.runtime.loop.runner import RUNTIME_TABLES, BatchSummary, LoopMetrics, Runner
from services.runtime.loop.service import Message, Work
from services.storage.memory import MemoryStore
from services.storage.tables import TableDefinition, TablesReader

NOTES = TableDefinition("notes", Barrier)


class Recorder:
    """Notes the txn of every message, and lets some stand alone."""

    name = "recorder"
    inputs: Sequence[Topic] = (METADATA_PROGRESS,)
    tables: Sequence[TableDefinition[Any]] = (NOTES, *RUNTIME_TABLES)

    def __init__(self, every_so_many_alone: int = 3) -> None:
        self._every_so_many_alone = every_so_many_alone
        self.noted: list[int] = []
        self.fails_at = 0
        self.failure: BaseException = RetryableError("not now")
        self.caught_up: list[bool] = []
        self.fails_at_end = False

    def restore(self, tables: TablesReader) -> None:
        self.noted = [row.round for _, row in tables.table(NOTES).scan(b"", b"\xff")]

    def stands_alone(self, message: Message) -> bool:
        return bool(message.record.txn % self._every_so_many_alone == 0)

    def apply(self, message: Message, work: Work) -> None:
        txn = message.record.txn
        if txn == self.fails_at:
            self.fails_at = 0
            raise self.failure
        self.noted.append(txn)
        work.table(NOTES).put(b"%08d" % txn, Barrier("", txn, 0, ""))
        work.send(METADATA_COMMANDS, MetadataCommand(0, "", 0, message.record.body, "recorder"))

    def tick(self, now_ms: int, work: Work) -> None:
        self.caught_up.append(work.is_caught_up)

    def end_batch(self, work: Work) -> None:
        if self.fails_at_end:
            self.fails_at_end = False
            raise ValueError("too much at once")


class FailingSink:
    """A sink over another whose acknowledgement fails at some flushes."""

    def __init__(self, sink: Sink, log: FailingLog) -> None:
        self._sink, self._log = sink, log

    def send(self, topic: str, partition: int, value: bytes, key: bytes = b"", headers: Headers = ()) -> None:
        self._sink.send(topic, partition, value, key, headers)

    def start_flush(self) -> None:
        self._sink.start_flush()

    def flush(self) -> None:
        self._log.flushes += 1
        if self._log.flushes in self._log.failing_flushes:
            raise RetryableError("the broker is away")
        self._sink.flush()

    def close(self) -> None:
        self._sink.close()


class FailingLog:
    """A log in memory whose sinks fail when they are told to, and which can be away."""

    def __init__(self) -> None:
        self.memory = MemoryLog(VirtualClock())
        self.flushes = 0
        self.failing_flushes: set[int] = set()
        self.is_away = False

    def topic_ids(self, topics: Sequence[str]) -> dict[str, str]:
        return self.memory.topic_ids(topics)

    def topic_settings(self, topics: Sequence[str]) -> dict[str, dict[str, str]]:
        return self.memory.topic_settings(topics)

    def end_offset(self, topic: str, partition: int) -> int:
        if self.is_away:
            raise RetryableError("the broker is away")
        return self.memory.end_offset(topic, partition)

    def first_offset(self, topic: str, partition: int) -> int:
        return self.memory.first_offset(topic, partition)

    def open_source(self, topics: Sequence[str], partition: int, next_offsets: Mapping[str, int]) -> Source:
        return self.memory.open_source(topics, partition, next_offsets)

    def open_sink(self, owner: str = "") -> Sink:
        return FailingSink(self.memory.open_sink(owner), self)


@pytest.fixture
def log() -> FailingLog:
    log = FailingLog()
    encoder = codec(MetadataProgress)
    for txn in range(1, 11):
        body = Barrier("", txn, 0, "")
        log.memory.append(METADATA_PROGRESS.name, 0, encoder.encode_message(MetadataProgress(txn, body)))
    return log


def run_to_the_end(runner: Runner, steps: int = 20) -> int:
    failures = 0
    for _ in range(steps):
        try:
            runner.step()
        except (RetryableError, MemoryError, OSError):
            failures += 1
    return failures


def test_a_message_whose_schema_cannot_be_looked_up_now_is_applied_later(log: FailingLog) -> None:
    service, encoder = Recorder(), codec(MetadataProgress)
    later = {**encoder.schema, "fields": [*encoder.schema["fields"], {"name": "later", "type": "long"}]}
    newer = frame(66) + encoder.encode(MetadataProgress(11, Barrier("", 11, 0, ""))) + b"\x00"
    log.memory.append(METADATA_PROGRESS.name, 0, newer)
    answers = iter([RetryableError("the broker is away"), None])

    def read() -> None:
        if (answer := next(answers)) is not None:
            raise answer
        published.learn(66, later)

    published.read_from(read)
    assert run_to_the_end(Runner(service, 0, MemoryStore(), log, VirtualClock())) == 1
    assert service.noted == list(range(1, 12))


@pytest.mark.parametrize("failing", [{1}, {2}, {1, 2, 3}, {3, 5, 7}])
def test_a_failed_acknowledgement_leaves_out_no_message(log: FailingLog, failing: set[int]) -> None:
    service, store = Recorder(), MemoryStore()
    log.failing_flushes = failing
    runner = Runner(service, 0, store, log, VirtualClock())
    assert run_to_the_end(runner) == len(failing)
    assert service.noted == list(range(1, 11))
    assert [row.round for _, row in TablesReader(store).table(NOTES).scan(b"", b"\xff")] == list(range(1, 11))


@pytest.mark.parametrize("failure", [RetryableError("not now"), MemoryError(), OSError("no space left")])
@pytest.mark.parametrize("fails_at", [1, 2, 3, 9, 10])
def test_a_message_that_fails_for_now_comes_again(log: FailingLog, fails_at: int, failure: Exception) -> None:
    """What the machine lacks says nothing about the message: put aside here, a rebuild would apply it."""
    service = Recorder()
    service.fails_at, service.failure = fails_at, failure
    runner = Runner(service, 0, MemoryStore(), log, VirtualClock())
    assert run_to_the_end(runner) == 1
    assert service.noted == list(range(1, 11))


def test_a_broker_that_is_away_when_it_failed_is_asked_again(log: FailingLog) -> None:
    service = Recorder()
    runner = Runner(service, 0, MemoryStore(), log, VirtualClock())
    service.fails_at = 4
    with pytest.raises(RetryableError, match="not now"):
        [runner.step() for _ in range(3)]
    log.is_away = True
    for _ in range(3):
        with pytest.raises(RetryableError, match="away"):
            runner.step()
    log.is_away = False
    assert run_to_the_end(runner) == 0
    assert service.noted == list(range(1, 11))


def test_a_service_knows_when_it_has_read_what_was_there_at_its_start(log: FailingLog) -> None:
    service, store = Recorder(), MemoryStore()
    runner = Runner(service, 0, store, log, VirtualClock(), max_batch_messages=4)
    run_to_the_end(runner)
    assert not any(service.caught_up[: service.caught_up.index(True)])
    assert service.caught_up.index(True) > 0
    assert all(service.caught_up[service.caught_up.index(True) :])
    again = Recorder()
    assert Runner(again, 0, store, log, VirtualClock()).step() == 0
    assert again.caught_up == [True]


class Asking(Recorder):
    """Asks, with every unit of work, whether it has read all."""

    def __init__(self) -> None:
        super().__init__()
        self.answers: list[tuple[int, bool]] = []

    def tick(self, now_ms: int, work: Work) -> None:
        super().tick(now_ms, work)
        self.answers.append((len(self.noted), work.has_read_all(METADATA_PROGRESS)))


def test_the_log_is_asked_whether_all_of_an_input_is_read(log: FailingLog, monkeypatch: pytest.MonkeyPatch) -> None:
    service = Asking()
    runner = Runner(service, 0, MemoryStore(), log, VirtualClock(), max_batch_messages=4)
    run_to_the_end(runner)
    assert all(count == 10 for count, has_read_all in service.answers if has_read_all), "it has said so too early"
    assert service.answers[-1] == (10, True)
    monkeypatch.setattr(MemorySource, "end", lambda *_: None)
    runner.step()
    assert service.answers[-1] == (10, False), "nobody can say"


def test_what_could_not_be_written_was_not_read(log: FailingLog) -> None:
    """The messages of a unit that failed come one by one, and the first of them is not the last one of the log."""
    service = Recorder()
    service.fails_at_end = True
    runner = Runner(service, 0, MemoryStore(), log, VirtualClock())
    run_to_the_end(runner, steps=7)
    assert service.noted == list(range(1, 11))
    first, *others = service.caught_up
    assert not first
    assert others.count(True) == 1
    assert others[-1]


def test_a_unit_of_work_applies_no_more_bytes_than_it_may(log: FailingLog) -> None:
    sizes = [len(record.value) for record in log.memory.partitions[METADATA_PROGRESS.name, 0]]
    store, service = MemoryStore(), Recorder(every_so_many_alone=100)
    writes: list[int] = []
    runner = Runner(
        service,
        0,
        store,
        log,
        log.memory.clock,
        unit_bytes=2 * max(sizes),
        after_write=lambda: writes.append(len(service.noted)),
    )
    assert [runner.step() for _ in range(6)] == [2, 2, 2, 2, 2, 0]
    assert writes == [2, 4, 6, 8, 10]
    assert service.noted == list(range(1, 11))
    writes.clear()
    again = Recorder(every_so_many_alone=100)
    run_to_the_end(
        Runner(
            again,
            0,
            MemoryStore(),
            log,
            log.memory.clock,
            unit_bytes=1,  # what is larger is alone, and taken in all the same
            after_write=lambda: writes.append(len(again.noted)),
        )
    )
    assert writes == list(range(1, 11))


def test_a_unit_of_work_ends_when_it_has_changed_enough(log: FailingLog) -> None:
    store, service = MemoryStore(), Recorder(every_so_many_alone=100)
    service.fails_at, service.failure = 2, ValueError("never")
    writes: list[int] = []
    metrics = Written()
    runner = Runner(
        service,
        0,
        store,
        log,
        log.memory.clock,
        unit_rows=4,  # each message changes one row
        metrics=metrics,
        after_write=lambda: writes.append(runner.positions()[METADATA_PROGRESS.name]),
    )
    assert [runner.step() for _ in range(4)] == [5, 4, 1, 0]
    assert writes == [5, 9, 10], "one was put aside, and has changed nothing"
    assert service.noted == [1, *range(3, 11)]
    assert metrics.messages == [5, 4, 1]
    assert metrics.dead_letters == [1, 0, 0]
    again = Recorder(every_so_many_alone=100)
    again.fails_at_end = True
    run_to_the_end(Runner(again, 0, MemoryStore(), log, log.memory.clock, unit_rows=1))
    assert again.noted == list(range(1, 11)), "where a unit of few fails, too"


class Reader(Recorder):
    """Looks through some rows for every message, and changes none."""

    def __init__(self, rows: int) -> None:
        super().__init__(every_so_many_alone=100)
        self._rows = rows

    def apply(self, message: Message, work: Work) -> None:
        rows = itertools.islice(work.table(NOTES).scan(b"", b"\xff"), self._rows)
        self.noted += [message.record.txn for _ in rows][:1]


@pytest.mark.parametrize(("rows", "units"), [(2, [5, 5]), (3, [4, 4, 2]), (9, [2, 2, 2, 2, 2]), (10, [1] * 10)])
def test_a_unit_of_work_ends_when_it_has_looked_through_enough(log: FailingLog, rows: int, units: list[int]) -> None:
    store = MemoryStore()
    store.write(
        {NOTES.name: {b"%d" % number: row_codec(Barrier).encode(Barrier("", 1, 0, "")) for number in range(20)}}
    )
    metrics = Written()
    runner = Runner(Reader(rows), 0, store, log, VirtualClock(), unit_rows=10, metrics=metrics)
    run_to_the_end(runner)
    assert metrics.messages == units


def test_a_unit_of_work_ends_when_its_time_is_over(log: FailingLog) -> None:
    metrics = Written()
    runner = Runner(
        Recorder(every_so_many_alone=100), 0, MemoryStore(), log, VirtualClock(), unit_seconds=0.0, metrics=metrics
    )
    run_to_the_end(runner)
    assert metrics.messages == [1] * 10


class ReadingAhead(Recorder):
    """Counts what its units are offered: the service reads ahead for that."""

    def __init__(self) -> None:
        super().__init__(every_so_many_alone=10_000)
        self.offered: list[int] = []
        self._work: Work | None = None

    def apply(self, message: Message, work: Work) -> None:
        if work is not self._work:
            self._work = work
            self.offered.append(len(work.inputs))
        super().apply(message, work)


def append_up_to(last: int, log: FailingLog) -> None:
    """Append messages behind the ten that the log has."""
    encoder = codec(MetadataProgress)
    for number in range(11, last + 1):
        record = MetadataProgress(number, Barrier("", number, 0, ""))
        log.memory.append(METADATA_PROGRESS.name, 0, encoder.encode_message(record))


def test_a_unit_of_work_is_offered_little_more_than_it_has_room_for(log: FailingLog) -> None:
    """Else each unit would read ahead for all that waits, and the more there is, the longer it would take."""
    append_up_to(2_000, log)
    service, metrics = ReadingAhead(), Written()
    run_to_the_end(Runner(service, 0, MemoryStore(), log, VirtualClock(), unit_rows=100, metrics=metrics))
    assert metrics.messages == [100] * 20
    assert (service.offered[0], max(service.offered[1:])) == (2_000, 129)


def test_a_unit_of_work_is_offered_more_again_when_it_has_room(log: FailingLog) -> None:
    append_up_to(2_000, log)
    service, metrics = ReadingAhead(), Written()
    runner = Runner(service, 0, MemoryStore(), log, VirtualClock(), unit_rows=1, metrics=metrics)
    runner.step()
    runner._unit_rows = 10_000
    run_to_the_end(runner)
    assert metrics.messages[:4] == [1, 4, 9, 15]
    assert sum(metrics.messages) == 2_000


def test_a_step_applies_one_unit_and_looks_into_the_log_before_the_next(log: FailingLog) -> None:
    """However much was read at once: nobody waits for all of it, and what comes meanwhile is taken with the rest."""
    service, metrics = Recorder(every_so_many_alone=7), Written()
    runner = Runner(service, 0, MemoryStore(), log, VirtualClock(), unit_rows=4, metrics=metrics)
    assert (runner.step(), runner.lag()) == (4, {METADATA_PROGRESS.name: 6})
    append_up_to(11, log)
    assert [runner.step() for _ in range(4)] == [2, 1, 4, 0]
    assert runner.lag() == {METADATA_PROGRESS.name: 0}
    assert service.noted == list(range(1, 12))
    assert metrics.messages == [4, 2, 1, 4]


@pytest.mark.parametrize("fails_at", [5, 9])
def test_what_was_read_and_not_applied_comes_again_after_a_failure(log: FailingLog, fails_at: int) -> None:
    service = Recorder(every_so_many_alone=100)
    service.fails_at = fails_at
    runner = Runner(service, 0, MemoryStore(), log, VirtualClock(), unit_rows=4)
    assert run_to_the_end(runner) == 1
    assert service.noted == list(range(1, 11))


class Written(LoopMetrics):
    """Notes what each unit of work has taken in and put aside."""

    def __init__(self) -> None:
        self.messages: list[int] = []
        self.dead_letters: list[int] = []

    def batch_written(self, batch: BatchSummary, waiting_messages: int) -> None:
        del waiting_messages
        self.messages.append(sum(batch.messages.values()))
        self.dead_letters.append(sum(batch.dead_letters.values()))


def test_no_message_waits_for_a_codec_to_be_made(log: FailingLog, monkeypatch: pytest.MonkeyPatch) -> None:
    """A codec takes a millisecond to make, and a command that touches some tables for the first time needs several."""
    monkeypatch.setattr(codecs, "_CODECS", {})
    monkeypatch.setattr(stored_rows, "_ROW_CODECS", {})
    service = Recorder()
    Runner(service, 0, MemoryStore(), log, VirtualClock())
    assert {topic.record for topic in BY_NAME.values()} <= codecs._CODECS.keys()
    assert {table.record for table in service.tables} <= stored_rows._ROW_CODECS.keys()


@pytest.mark.parametrize("at_once", [1, 3, 2_000])
@pytest.mark.parametrize("control_records", [1, 2, 40])
def test_a_start_has_caught_up_before_the_control_records_at_the_end(at_once: int, control_records: int) -> None:
    """The end of a transaction has an offset, and no message reaches it."""
    log, service, encoder = MemoryLog(VirtualClock(), has_control_records=True), Asking(), codec(MetadataProgress)
    for txn in range(1, 5):
        body = Barrier("", txn, 0, "")
        log.append(METADATA_PROGRESS.name, 0, encoder.encode_message(MetadataProgress(txn, body)))
        log.append_control_record(METADATA_PROGRESS.name, 0)
    for _ in range(control_records):
        log.append_control_record(METADATA_PROGRESS.name, 0)
    runner = Runner(service, 0, MemoryStore(), log, VirtualClock(), max_batch_messages=at_once)
    noted: list[tuple[int, bool]] = []
    for _ in range(60):
        runner.step()
        noted.append((len(service.noted), service.caught_up[-1]))
    assert noted[-1] == (4, True)
    assert service.answers[-1] == (4, True)
    assert all(count == 4 for count, is_caught_up in noted if is_caught_up), "it has said so too early"
    assert runner.lag() == {METADATA_PROGRESS.name: 0}
