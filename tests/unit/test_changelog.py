"""A database of snapshots that is older than its peers, or empty, is brought up to date by what was changed since."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from schemas import formats
from schemas.codec import codec
from schemas.records import (
    BucketLayout,
    ChangelogRow,
    CreateBucket,
    CreateSnapshot,
    CreateTag,
    CreateVolume,
    DeleteSnapshot,
    PositionRow,
    PutKey,
    RetentionPolicy,
    RollBackBucket,
    RowChange,
    SetConsumer,
    SetRetention,
    Settle,
    SnapshotCommand,
    SnapshotReply,
    StateChange,
)
from schemas.stored_rows import NewerRowError, row_codec
from schemas.topics import SNAPSHOTS_CHANGELOG, SNAPSHOTS_COMMANDS, SNAPSHOTS_REPLIES, TOPICS
from services.domain.errors import PositionError, RetryableError
from services.log.clock import VirtualClock
from services.log.memory import MemoryLog
from services.log.port import Headers, LogAround
from services.plane.in_memory.client import InMemoryClient
from services.plane.in_memory.plane import InMemoryPlane
from services.plane.upkeep.lost_tail import LostTail, accept_losses, find_losses
from services.plane.upkeep.shard_databases import database_directory, new_database, positions_of
from services.plane.upkeep.trimming import plan_trims
from services.runtime.copies.manifests import Backup, InputPosition, ServiceCopy
from services.runtime.loop import changelog, changelog_table, changelog_units
from services.runtime.loop.changelog import Changelog, LostChangesError
from services.runtime.loop.changelog_table import CHANGELOG, CHANGELOG_KEY
from services.runtime.loop.changelog_units import Unit
from services.runtime.loop.outbox import OUTBOX
from services.runtime.loop.runner import RUNTIME_TABLES, Runner
from services.snapshots.service import SnapshotsService
from services.storage.memory import MemoryStore
from services.storage.store import Batch, Store, StoreError
from services.storage.tables import TablesReader
from tests.unit.test_stored_rows import with_field, written

TOPIC = SNAPSHOTS_CHANGELOG.name
FAMILIES = [table.name for table in (*SnapshotsService.tables, *RUNTIME_TABLES)]

Step = Callable[[InMemoryClient], Any]


def _rows(store: Store) -> dict[str, dict[bytes, bytes]]:
    """All that a database holds, but for what waits to be sent and where the changelog is looked up."""
    return {
        family: dict(store.scan(family, b"", b"\xff" * 9))
        for family in FAMILIES
        if family not in (OUTBOX.name, CHANGELOG.name)
    }


def _number(store: Store) -> int:
    row = TablesReader(store).table(CHANGELOG).get(CHANGELOG_KEY)
    return row.number if row else 0


def _append(log: MemoryLog, number: int, body: CreateTag) -> None:
    encoder = codec(SnapshotCommand)
    value = encoder.encode_message(SnapshotCommand(0, "another", number, body))
    log.append(SNAPSHOTS_COMMANDS.name, 0, value)


class Plane:
    """A plane with one bucket, whose snapshots are copied and put back."""

    def __init__(self, max_batch_messages: int = 2_000) -> None:
        self.plane = InMemoryPlane(max_batch_messages=max_batch_messages)
        self.client = InMemoryClient(self.plane)
        self.do(CreateVolume("vol"))
        self.do(CreateBucket("vol", "bucket", BucketLayout.OBJECT_STORE))
        self.do(PutKey("vol", "bucket", "key", 5))

    def do(self, command: Any) -> None:
        assert not self.client.answer(0, self.client.submit(0, command)).error

    def ask(self, command: Any) -> SnapshotReply:
        reply: SnapshotReply = self.client.request(0, command)
        return reply

    @property
    def store(self) -> MemoryStore:
        return self.plane.processes["snapshots", 0].store

    def quiet(self) -> None:
        while self.plane.step():
            pass

    def restart(self, store: MemoryStore | None = None) -> None:
        self.plane.start("snapshots", 0, store)


def _history(plane: Plane, copies: list[MemoryStore]) -> None:
    """Commands whose answers depend on what metadata had answered before them."""
    commands = [
        SetRetention("vol", "bucket", RetentionPolicy(num_retained_min=1, time_retained_ms=7 * 86_400_000)),
        CreateSnapshot("vol", "bucket", "one"),
        CreateTag("vol", "bucket", "one", "audit", "ann", "year end", 0),
        SetConsumer("vol", "bucket", "reader", "one"),
        CreateSnapshot("vol", "bucket", "two"),
        RollBackBucket("vol", "bucket", "two"),
        CreateSnapshot("vol", "bucket", "three"),
        DeleteSnapshot("vol", "bucket", "three"),
        CreateSnapshot("vol", "bucket", "three"),
        DeleteSnapshot("vol", "bucket", "two"),
    ]
    copies.append(plane.store.clone())
    for command in commands:
        assert not plane.ask(command).error, command
        plane.quiet()
        copies.append(plane.store.clone())


@pytest.mark.parametrize("batch", [1, 2_000])
def test_an_older_copy_becomes_what_the_newest_one_was(batch: int) -> None:
    plane = Plane(batch)
    copies = [MemoryStore()]
    _history(plane, copies)
    plane.quiet()
    expected, number = _rows(plane.store), _number(plane.store)
    replies = len(plane.plane.log.records(SNAPSHOTS_REPLIES.name, 0))
    for copy in copies:
        plane.restart(copy)
        assert _rows(plane.store) == expected
        assert _number(plane.store) == number
        plane.quiet()
        assert _rows(plane.store) == expected
    # Of answers only those of the newest unit are given once more, at each start.
    assert len(plane.plane.log.records(SNAPSHOTS_REPLIES.name, 0)) <= replies + len(copies)
    assert not InMemoryClient(plane.plane, "later").request(0, Settle("later")).error


def test_what_a_rollback_dropped_stays_dropped() -> None:
    plane = Plane()
    plane.ask(CreateSnapshot("vol", "bucket", "one"))
    copy = plane.store.clone()
    # Read again at once, the rollback would come before the snapshot that made it refused.
    assert not plane.ask(CreateSnapshot("vol", "bucket", "two")).error
    assert not plane.ask(CreateTag("vol", "bucket", "two", "keep", "ann", "", 0)).error
    assert plane.ask(RollBackBucket("vol", "bucket", "one")).error == "TAGGED_SNAPSHOT"
    plane.quiet()
    before = _rows(plane.store)
    plane.restart(copy)
    plane.quiet()
    assert _rows(plane.store) == before


def test_what_the_newest_unit_said_is_said_by_whoever_goes_on_from_it() -> None:
    plane = Plane()
    copy = plane.store.clone()
    process = plane.plane.processes["snapshots", 0]
    _append(plane.plane.log, 1, CreateTag("vol", "bucket", "none", "audit", "ann", "", 0))
    sink = process.runner._sink
    sent = sink.send

    def send_changes_alone(topic: str, partition: int, value: bytes, key: bytes = b"", headers: Headers = ()) -> None:
        if topic != TOPIC:
            raise StoreError("the machine is lost here")
        sent(topic, partition, value, key, headers)

    sink.send = send_changes_alone  # type: ignore[method-assign]
    with pytest.raises(StoreError, match="lost here"):
        process.runner.step()
    replies = len(plane.plane.log.records(SNAPSHOTS_REPLIES.name, 0))
    plane.restart(copy)
    plane.quiet()
    (reply,) = plane.plane.log.records(SNAPSHOTS_REPLIES.name, 0)[replies:]
    assert codec(SnapshotReply).decode_message(reply.value).error == "FILE_NOT_FOUND"


def test_changes_are_acknowledged_before_anything_else_is_sent() -> None:
    plane = Plane()
    plane.quiet()
    sink, events = plane.plane.processes["snapshots", 0].runner._sink, list[str]()
    send, flush = sink.send, sink.flush

    def noted_send(topic: str, partition: int, value: bytes, key: bytes = b"", headers: Headers = ()) -> None:
        events.append(topic)
        send(topic, partition, value, key, headers)

    def noted_flush() -> None:
        events.append("flush")
        flush()

    sink.send, sink.flush = noted_send, noted_flush  # type: ignore[method-assign]
    assert not plane.ask(CreateSnapshot("vol", "bucket", "one")).error
    assert events.count(TOPIC) >= 2
    for before, event in pairwise(events):
        assert event in (TOPIC, "flush") or before != TOPIC, events


def test_late_changes_of_an_earlier_start_are_left_out() -> None:
    plane = Plane()
    assert not plane.ask(CreateSnapshot("vol", "bucket", "one")).error
    plane.quiet()
    copy = plane.store.clone()
    on_the_way = list[tuple[str, int, bytes, bytes]]()
    process = plane.plane.processes["snapshots", 0]
    process.runner._sink.send = lambda *message: on_the_way.append(message)  # type: ignore[method-assign]
    _append(plane.plane.log, 1, CreateTag("vol", "bucket", "one", "lost", "ann", "", 0))
    process.runner.step()
    assert on_the_way[0][0] == TOPIC
    plane.plane.log.partitions[SNAPSHOTS_COMMANDS.name, 0].pop()  # of which nobody was told
    plane.restart(copy)
    plane.plane.log.append(*on_the_way[0])
    assert not plane.ask(CreateTag("vol", "bucket", "one", "kept", "bob", "", 0)).error
    plane.plane.log.append(*on_the_way[0])
    assert not plane.ask(CreateTag("vol", "bucket", "one", "too", "bob", "", 0)).error
    plane.quiet()
    expected = _rows(plane.store)
    plane.restart(MemoryStore())
    assert _rows(plane.store) == expected
    assert list(expected["tagTable"]) == [b"/vol/bucket/kept", b"/vol/bucket/too"]


class _OnTheWay:
    """A sink whose messages are on their way when its process ends: of each flush only the last has arrived, if any."""

    def __init__(self, log: MemoryLog, arriving: int = 0) -> None:
        self.messages: list[tuple[str, int, bytes, bytes]] = []
        self._log, self._arriving = log, arriving

    def send(self, *message: Any) -> None:
        self.messages.append(message)

    def start_flush(self) -> None:
        pass

    def flush(self) -> None:
        if self.messages:
            for message in self.messages[len(self.messages) - self._arriving :]:
                self._log.append(*message)
            raise RetryableError("nobody has acknowledged it")

    def close(self) -> None:
        pass


def _beginning_on_its_way(store: Store, log: MemoryLog) -> tuple[str, int, bytes, bytes]:
    """What a start has sent that ended then."""
    sink = _OnTheWay(log)
    with pytest.raises(RetryableError):
        Changelog("snapshots", SNAPSHOTS_CHANGELOG, 0, log).catch_up(store, sink)
    (beginning,) = sink.messages
    return beginning


def _leave_waiting(store: Store, log: MemoryLog, number: int) -> None:
    """A start that takes in a command, and ends before anybody has acknowledged what came of it."""
    runner = Runner(SnapshotsService(), 0, store, log, log.clock)
    runner.step()
    runner._sink = runner._outbox._sink = _OnTheWay(log)
    _append(log, number, CreateTag("vol", "bucket", "none", f"t{number}", "ann", "", 0))
    with pytest.raises(RetryableError):
        runner.step()


def test_a_beginning_that_comes_behind_a_later_one_is_left_out() -> None:
    log, store = MemoryLog(VirtualClock()), MemoryStore()
    _run(store, log, range(1, 4))
    copies = [MemoryStore(), _copied(store)]
    store.write({OUTBOX.name: dict.fromkeys([key for key, _ in store.scan(OUTBOX.name, b"", b"\xff" * 9)])})
    late = _beginning_on_its_way(store, log)
    runner = Runner(SnapshotsService(), 0, store, log, log.clock)
    log.append(*late)
    for number in range(4, 9):
        _append(log, number, CreateTag("vol", "bucket", "none", f"t{number}", "ann", "", 0))
        assert runner.step()
    runner.step()
    expected = _rows(store)
    for copy in (*copies, store):
        _run(copy, log, ())
        assert _rows(copy) == expected


def test_an_older_copy_learns_the_schemas_of_what_a_newer_program_has_changed() -> None:
    log, store = MemoryLog(VirtualClock()), MemoryStore()
    _run(store, log, range(1, 3))
    copy = store.clone()
    newer = with_field("later", type="long", default=0)
    schemas = {b"schema/PositionRow/1": b"{}", b"schema/PositionRow/8": json.dumps(newer).encode()}
    store.write({formats.FAMILY: schemas})
    _run(store, log, range(3, 6))
    changes = [codec(StateChange).decode_message(record.value) for record in log.records(TOPIC, 0)]
    sent = [row.key for change in changes for row in change.rows if row.table == formats.FAMILY]
    assert sent == [b"schema/PositionRow/8"], "once a start, without what every program knows"
    row = written(8, newer, topic="gc.space", topic_id="id", next_offset=7, later=5)
    with pytest.raises(NewerRowError):
        row_codec(PositionRow).decode(row)
    _run(copy, log, ())
    assert copy.get(formats.FAMILY, sent[0]) == schemas[sent[0]]
    assert row_codec(PositionRow).decode(row) == PositionRow("gc.space", "id", 7)


def test_a_start_that_another_has_come_before_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    log, store = MemoryLog(VirtualClock()), MemoryStore()
    late = _beginning_on_its_way(store, log)
    sink = log.open_sink()
    sent = sink.send

    def send_behind(*message: Any) -> None:
        log.append(*late)
        sent(*message)

    monkeypatch.setattr(sink, "send", send_behind)
    started = Changelog("snapshots", SNAPSHOTS_CHANGELOG, 0, log)
    with pytest.raises(RetryableError, match="came too late"):
        started.catch_up(store, sink)
    _run(store, log, range(1, 4))
    copy = MemoryStore()
    _run(copy, log, ())
    assert _rows(copy) == _rows(store)


def test_what_waits_is_acknowledged_before_a_start_begins() -> None:
    log, store = MemoryLog(VirtualClock()), MemoryStore()
    _run(store, log, range(1, 4))
    _leave_waiting(store, log, 4)
    # As a sink may: what was sent last has arrived, and what was sent before it has not.
    with pytest.raises(RetryableError):
        Changelog("snapshots", SNAPSHOTS_CHANGELOG, 0, log).catch_up(store, _OnTheWay(log, arriving=1))
    _run(store, log, range(5, 7))
    copy = MemoryStore()
    _run(copy, log, ())
    assert _rows(copy) == _rows(store)


def test_the_next_start_reads_from_where_this_one_has_read_to() -> None:
    plane = Plane()
    _history(plane, [])
    plane.quiet()
    plane.restart(MemoryStore())
    row = TablesReader(plane.store).table(CHANGELOG).get(CHANGELOG_KEY)
    assert row is not None
    assert row.base_offset == plane.plane.log.end_offset(TOPIC, 0)
    assert row.base_number == row.number


def test_a_backup_says_from_where_on_it_needs_the_topic() -> None:
    log, store = MemoryLog(VirtualClock()), MemoryStore()
    _run(store, log, range(1, 4))
    _run(store, log, range(4, 6))
    row = TablesReader(store).table(CHANGELOG).get(CHANGELOG_KEY)
    assert row is not None
    assert positions_of(store, "snapshots")[TOPIC].next_offset == row.base_offset > 0


MEBIBYTE = 1024 * 1024


@pytest.mark.parametrize("sizes", [(10, 9 * MEBIBYTE, 10), (MEBIBYTE - 200, 9 * MEBIBYTE), (100,) * 40_000])
def test_a_part_is_no_larger_than_its_largest_row_needs(sizes: tuple[int, ...]) -> None:
    rows = [RowChange("deadLetterPlaceTable", b"key", False, bytes(size)) for size in sizes]
    parts = list(changelog_units.parts_of("start", Unit(7, b"previous"), rows, ()))
    assert [row for part in parts for row in part.rows] == rows
    assert [part.part for part in parts] == list(range(len(parts)))
    assert [part.is_last for part in parts] == [False] * (len(parts) - 1) + [True]
    largest = max(MEBIBYTE, *sizes)
    assert all(len(codec(StateChange).encode(part)) < largest + 1_000 for part in parts)


class TestParts:
    @pytest.fixture(autouse=True)
    def small_parts(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(changelog_units, "PART_BYTES", 200)
        monkeypatch.setattr(changelog_table, "WRITTEN_AT_ONCE_BYTES", 50)

    def test_a_unit_in_parts_is_whole_again(self) -> None:
        plane = Plane()
        copies = [MemoryStore()]
        _history(plane, copies)
        plane.quiet()
        changes = [codec(StateChange).decode_message(one.value) for one in plane.plane.log.records(TOPIC, 0)]
        assert max(change.part for change in changes) > 3
        expected = _rows(plane.store)
        for copy in copies:
            plane.restart(copy)
            assert _rows(plane.store) == expected

    @pytest.mark.parametrize("left", [1, 2, 3])
    def test_one_that_was_cut_off_never_was(self, left: int) -> None:
        plane = Plane()
        copy = plane.store.clone()
        number = _number(copy)
        assert not plane.ask(CreateSnapshot("vol", "bucket", "one")).error
        records = plane.plane.log.records(TOPIC, 0)
        first = next(
            i for i, one in enumerate(records) if codec(StateChange).decode_message(one.value).number == number + 1
        )
        del records[first + left :]
        plane.restart(copy)
        assert _number(plane.store) == number
        # Its number is taken by the unit that comes in its place, in as many parts as that has.
        plane.quiet()
        expected = _rows(plane.store)
        plane.restart(MemoryStore())
        assert _rows(plane.store) == expected

    def test_messages_that_come_twice_or_late_change_nothing(self) -> None:
        plane = Plane()
        _history(plane, [])
        plane.quiet()
        expected = _rows(plane.store)
        log = plane.plane.log
        records = list(log.records(TOPIC, 0))
        again = [*records[:40], *records[30:], *records[5:9], *records[-3:]]
        log.partitions[TOPIC, 0] = []
        for one in again:
            log.append(TOPIC, 0, one.value)
        plane.restart(MemoryStore())
        assert _rows(plane.store) == expected

    def test_a_part_that_comes_again_amid_its_own_unit_does_not_begin_it_again(self) -> None:
        plane = Plane()
        _history(plane, [])
        plane.quiet()
        expected, log = _rows(plane.store), plane.plane.log
        records = list(log.records(TOPIC, 0))
        log.partitions[TOPIC, 0] = []
        first = records[0]
        for one in records:
            change = codec(StateChange).decode_message(one.value)
            first = one if change.part == 0 else first
            if change.is_last:  # what was on its way when nobody had acknowledged it, and was sent again
                log.append(TOPIC, 0, first.value)
            log.append(TOPIC, 0, one.value)
        plane.restart(MemoryStore())
        assert _rows(plane.store) == expected

    @pytest.mark.parametrize("writes", range(5))
    def test_a_catch_up_that_is_cut_off_goes_on(self, writes: int) -> None:
        plane = Plane()
        _history(plane, [])
        plane.quiet()
        expected = _rows(plane.store)
        store, log = _Failing(writes), plane.plane.log
        with pytest.raises(StoreError):
            Changelog("snapshots", SNAPSHOTS_CHANGELOG, 0, log).catch_up(store, log.open_sink())
        assert _number(store) < _number(plane.store)
        store.writes = 1_000_000
        plane.restart(store)
        assert _rows(plane.store) == expected


class _Failing(MemoryStore):
    """A database whose machine goes off."""

    def __init__(self, writes: int) -> None:
        super().__init__()
        self.writes = writes

    def write(self, batch: Batch) -> None:
        if not self.writes:
            raise StoreError("the disk is away")
        self.writes -= 1
        super().write(batch)


class TestWhatIsMissing:
    def test_what_cannot_be_read_is_left_out(self) -> None:
        plane = Plane()
        _history(plane, [])
        plane.quiet()
        log, expected = plane.plane.log, _rows(plane.store)
        for value in (b"", b"\xff" * 30):
            log.append(TOPIC, 0, value)
        plane.restart(MemoryStore())
        assert _rows(plane.store) == expected

    def test_a_copy_from_before_what_was_trimmed_is_refused(self) -> None:
        plane = Plane()
        copies: list[MemoryStore] = []
        _history(plane, copies)
        plane.quiet()
        plane.restart(copies[-1])
        row = TablesReader(plane.store).table(CHANGELOG).get(CHANGELOG_KEY)
        assert row is not None
        plane.plane.log.trim(TOPIC, 0, row.base_offset)
        for refused in (copies[0], MemoryStore()):
            with pytest.raises(PositionError, match=r"begins at offset \d+, and this database needs it from 0 on"):
                plane.restart(refused)
        expected = _rows(plane.store)
        plane.restart()
        plane.quiet()
        assert _rows(plane.store) == expected

    def test_a_database_that_was_never_published_cannot_be_made_from_later_changes(self) -> None:
        plane = Plane()
        assert not plane.ask(CreateSnapshot("vol", "bucket", "zero")).error
        waiting = dict.fromkeys([key for key, _ in plane.store.scan(OUTBOX.name, b"", b"\xff" * 9)])
        plane.store.write({CHANGELOG.name: {CHANGELOG_KEY: None}, OUTBOX.name: waiting})
        plane.plane.log.partitions[TOPIC, 0] = []
        plane.restart()
        assert not plane.ask(CreateSnapshot("vol", "bucket", "one")).error
        plane.restart()
        with pytest.raises(PositionError, match="lacks the units 1 to 1"):
            plane.restart(MemoryStore())

    def test_a_recreated_topic_is_refused(self, monkeypatch: pytest.MonkeyPatch) -> None:
        plane = Plane()
        assert not plane.ask(CreateSnapshot("vol", "bucket", "one")).error
        topic_ids = MemoryLog.topic_ids
        monkeypatch.setattr(
            MemoryLog, "topic_ids", lambda log, topics: topic_ids(log, topics) | dict.fromkeys([TOPIC], "other")
        )
        with pytest.raises(PositionError, match="keep the database"):
            plane.restart()
        backup, before = plane.store.clone(), _rows(plane.store)
        found = Changelog("snapshots", SNAPSHOTS_CHANGELOG, 0, plane.plane.log)
        assert found.find_loss(plane.store) is not None
        found.accept_loss(plane.store)
        plane.restart()
        assert _rows(plane.store) == before
        with pytest.raises(PositionError, match="recreated"):
            plane.restart(backup)

    def test_a_database_of_a_past_that_was_given_up_is_refused(self) -> None:
        log, store = MemoryLog(VirtualClock()), MemoryStore()
        _run(store, log, range(1, 4))
        older = _copied(store)
        ends = {topic: len(records) for topic, records in log.partitions.items()}
        _run(store, log, range(4, 8))
        of_lost_past = _copied(store)
        for topic, records in log.partitions.items():
            del records[ends.get(topic, 0) :]
        _run(older, log, range(4, 8))
        with pytest.raises(LostChangesError, match="an abandoned history"):
            _run(of_lost_past, log, ())
        _run(older, log, range(8, 12))
        with pytest.raises(LostChangesError, match="an abandoned history"):
            _run(of_lost_past, log, ())
        of_other_past = _copied(older)
        found = Changelog("snapshots", SNAPSHOTS_CHANGELOG, 0, log)
        assert found.find_loss(of_lost_past) is not None
        # Should a person decide for it all the same, it is the other one that is refused from then on.
        found.accept_loss(of_lost_past)
        _run(of_lost_past, log, range(12, 24))
        with pytest.raises(PositionError, match="lacks the units"):
            _run(of_other_past, log, ())

    def test_what_follows_must_name_what_this_database_has(self) -> None:
        log, store = MemoryLog(VirtualClock()), MemoryStore()
        _run(store, log, range(1, 4))
        row = TablesReader(store).table(CHANGELOG).get(CHANGELOG_KEY)
        assert row is not None
        copies = {digest: _copied(store) for digest in (row.digest, b"another")}
        for digest, copy in copies.items():
            known = replace(row, digest=digest, base_offset=log.end_offset(TOPIC, 0), base_number=row.number)
            copy.write({CHANGELOG.name: {CHANGELOG_KEY: row_codec(ChangelogRow).encode(known)}})
        _run(store, log, range(4, 8))
        _run(copies[row.digest], log, ())
        with pytest.raises(LostChangesError, match="an abandoned history"):
            _run(copies[b"another"], log, ())

    def test_an_accepted_loss_that_is_trimmed_away_does_not_look_like_a_beginning(self) -> None:
        log, store = MemoryLog(VirtualClock()), MemoryStore()
        _run(store, log, range(1, 4))
        older = _copied(store)
        _run(store, log, range(4, 8))
        Changelog("snapshots", SNAPSHOTS_CHANGELOG, 0, log).accept_loss(store)
        row = TablesReader(store).table(CHANGELOG).get(CHANGELOG_KEY)
        assert row is not None
        log.trim(TOPIC, 0, row.base_offset)
        for refused in (older, MemoryStore()):
            with pytest.raises(PositionError, match="it was trimmed"):
                _run(refused, log, ())
        _run(store, log, range(8, 10))

    @pytest.mark.parametrize("lost", [2, 3, 1_000])
    @pytest.mark.parametrize("has_grown", [False, True])
    def test_a_lost_tail_is_noticed_and_a_person_goes_on_without_it(
        self, tmp_path: Path, lost: int, has_grown: bool
    ) -> None:
        log = MemoryLog(VirtualClock())
        store = new_database(database_directory(tmp_path, "snapshots", 0), "snapshots")
        try:
            _run(store, log, range(1, 6))
            backup = _copied(store)
            _run(store, log, range(6, 12))
            lost_records = log.partitions[TOPIC, 0][-lost:]
            del log.partitions[TOPIC, 0][-lost:]
            if has_grown:
                for record in lost_records[-1:]:
                    log.append(TOPIC, 0, record.value)
            with pytest.raises(LostChangesError, match="accept-lost-tail"):
                _run(store, log, ())
        finally:
            store.close()
        losses = find_losses(log, tmp_path, 0)
        assert [(one.service, one.topic) for one in losses.tails] == [("snapshots", TOPIC)]
        assert isinstance(losses.tails[0], LostTail)
        assert losses.tails[0].read_to > losses.tails[0].end
        assert accept_losses(log, tmp_path, 0, losses, "a test") is None
        assert not find_losses(log, tmp_path, 0)
        store = new_database(database_directory(tmp_path, "snapshots", 0), "snapshots")
        try:
            _run(store, log, range(12, 15))
        finally:
            store.close()
        if lost > 6:
            with pytest.raises(PositionError, match=r"later backup|accept-lost-tail"):
                _run(backup, log, ())

    @pytest.mark.parametrize("lost", range(1, 8))
    @pytest.mark.parametrize("units", [1, 2])
    def test_whatever_a_start_refuses_can_be_accepted(self, lost: int, units: int) -> None:
        log, store = MemoryLog(VirtualClock()), MemoryStore()
        _run(store, log, range(1, 4))
        older = _copied(store)
        _run(store, log, range(4, 4 + units))
        expected, found = _rows(store), Changelog("snapshots", SNAPSHOTS_CHANGELOG, 0, log)
        del log.partitions[TOPIC, 0][-lost:]
        is_lost = found.find_loss(store) is not None
        for _ in range(3 if is_lost else 0):
            with pytest.raises(LostChangesError):
                _run(store, log, ())
            assert found.find_loss(store) is not None
        if is_lost:
            found.accept_loss(store)
        _run(store, log, ())
        assert found.find_loss(store) is None
        assert _rows(store) == expected
        if not is_lost:  # then nobody else lacks anything either
            _run(older, log, ())
            assert _rows(older) == expected

    @pytest.mark.parametrize("units", [0, 1, 3])
    def test_a_unit_that_was_never_published_is_given_up_when_another_database_has_begun(self, units: int) -> None:
        """As of an owner that was fenced, and becomes the owner again."""
        log, store, other, _ = _overtaken()
        _run(other, log, range(5, 5 + units))
        _run(store, log, ())
        assert _rows(store) == _rows(other)
        _run(store, log, range(8, 10))
        _run(other, log, ())
        assert _rows(store) == _rows(other)

    def test_a_database_with_such_a_unit_is_kept_where_it_cannot_be_built_anew(self) -> None:
        log, store, other, found = _overtaken()
        _run(other, log, ())
        assert found.find_loss(store) is None
        row = TablesReader(store).table(CHANGELOG).get(CHANGELOG_KEY)
        assert row is not None
        log.trim(TOPIC, 0, row.base_offset)
        before = _rows(store)
        with pytest.raises(PositionError, match=r"took this shard over before the last unit.* restore a backup"):
            _run(store, log, ())
        assert _rows(store) == before


def _overtaken() -> tuple[MemoryLog, MemoryStore, MemoryStore, Changelog]:
    """A database whose last unit waits, one from before it that a later start has begun on, and their log."""
    log, store = MemoryLog(VirtualClock()), MemoryStore()
    _run(store, log, range(1, 4))
    other = _copied(store)
    _leave_waiting(store, log, 4)
    found = Changelog("snapshots", SNAPSHOTS_CHANGELOG, 0, log)
    assert found.find_loss(store) is None
    Runner(SnapshotsService(), 0, other, log, log.clock).close()
    return log, store, other, found


def _run(store: Store, log: MemoryLog, numbers: Any) -> None:
    """A start of snapshots that takes in some commands, each in a unit of its own."""
    runner = Runner(SnapshotsService(), 0, store, log, log.clock)
    for number in numbers:
        _append(log, number, CreateTag("vol", "bucket", "none", f"t{number}", "ann", "", 0))
        assert runner.step()
    runner.step()
    runner.close()


def _copied(store: Store) -> MemoryStore:
    copy = MemoryStore()
    copy.write({family: dict(store.scan(family, b"", b"\xff" * 9)) for family in FAMILIES})
    return copy


def test_a_start_reads_a_bounded_part_of_the_topic(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(changelog, "UNITS_BETWEEN_BASES", 4)
    log, store = MemoryLog(VirtualClock()), MemoryStore()
    _run(store, log, range(1, 40))
    row = TablesReader(store).table(CHANGELOG).get(CHANGELOG_KEY)
    assert row is not None
    assert log.end_offset(TOPIC, 0) - row.base_offset <= 6
    assert log.end_offset(SNAPSHOTS_COMMANDS.name, 0) == 39
    _run(store, log, range(40, 45))
    _run(MemoryStore(), log, ())


def test_starts_that_change_nothing_leave_nothing_to_read_to_the_next_one() -> None:
    log, store = MemoryLog(VirtualClock()), MemoryStore()
    _run(store, log, range(1, 5))
    older, expected = _copied(store), _rows(store)
    for _ in range(20):
        Runner(SnapshotsService(), 0, store, log, log.clock).close()
    row = TablesReader(store).table(CHANGELOG).get(CHANGELOG_KEY)
    assert row is not None
    assert log.end_offset(TOPIC, 0) - row.base_offset <= 2
    log.partitions[TOPIC, 0].pop()  # a beginning alone is no loss
    assert Changelog("snapshots", SNAPSHOTS_CHANGELOG, 0, log).find_loss(store) is None
    _run(store, log, ())
    _run(older, log, ())
    assert _rows(store) == _rows(older) == expected


def test_the_topic_is_not_trimmed_beyond_where_the_running_database_would_look_next() -> None:
    log, store = MemoryLog(VirtualClock()), MemoryStore()
    _run(store, log, range(1, 20))
    before = positions_of(store, "snapshots")[TOPIC]  # of a backup from before a loss: it may lie beyond the new end
    del log.partitions[TOPIC, 0][8:]
    Changelog("snapshots", SNAPSHOTS_CHANGELOG, 0, log).accept_loss(store)
    _run(store, log, range(20, 40))
    runner = Runner(SnapshotsService(), 0, store, log, log.clock)
    offset = runner.changelog_offset()
    runner.close()
    assert offset is not None
    backup = Backup(
        "b", 0, 1, (ServiceCopy("snapshots", 0, (InputPosition(TOPIC, "id", before.next_offset + 99),), 1),)
    )
    firsts = {(topic.name, 0): 0 for topic in TOPICS}
    trims = plan_trims(1, firsts, {("snapshots", TOPIC, 0): offset}, [backup], lambda _shard, _until: None)
    (trim,) = [trim for trim in trims if trim.topic == TOPIC]
    assert 0 < trim.until == offset
    log.trim(TOPIC, 0, trim.until)
    _run(store, log, range(40, 42))


class _LateLog(LogAround):
    """A log whose readers see a message only when its end was asked for a few times more."""

    def __init__(self, log: MemoryLog, times: int) -> None:
        super().__init__(log)
        self._seen, self._times, self._asked = log.end_offset(TOPIC, 0), times, 0

    def end_offset(self, topic: str, partition: int) -> int:
        end = self._log.end_offset(topic, partition)
        if topic != TOPIC:
            return end
        self._asked += 1
        if end > self._seen and self._asked % self._times == 0:
            self._seen = end
        return self._seen


def test_a_beginning_that_readers_see_later_is_awaited() -> None:
    log, store = MemoryLog(VirtualClock()), MemoryStore()
    _run(store, log, range(1, 4))
    copy = MemoryStore()
    changelog = Changelog("snapshots", SNAPSHOTS_CHANGELOG, 0, _LateLog(log, times=4))
    assert changelog.catch_up(copy, log.open_sink()) > 0
    assert _rows(copy) == _rows(store)
