"""A log that is replayed by parts gives the same report as in one part, whatever it and its ledger have."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schemas.codec import codec
from schemas.records import (
    BucketLayout,
    CreateBucket,
    CreateBucketLink,
    CreateVolume,
    DeleteBucket,
    DeletedKind,
    DeleteKey,
    LedgerRows,
    MetadataCommand,
    PutKey,
    PutKeys,
    RepairQuota,
    RequeueOrphans,
    RowName,
    Undelete,
)
from schemas.topics import METADATA_COMMANDS, METADATA_PROGRESS
from services.domain.table_keys import object_id
from services.plane.in_memory.plane import InMemoryPlane
from services.verifier import divided
from services.verifier.divided import _Numbering
from services.verifier.report import FindingKind, VerifyReport
from tests.property import test_ledger
from tests.property.test_ledger import _FORGERIES, _plant, played
from tests.simulation.simulator import Simulation
from tests.verification_in_process import InProcess, by_parts_and_whole
from tests.writing_workload import writers

pytestmark = pytest.mark.long

BUCKETS = 8


def same(plane: InMemoryPlane, engine: InProcess) -> VerifyReport:
    """The report of a plane's only shard, which is the same by parts and as one part."""
    by_parts, whole = by_parts_and_whole(plane.log, engine)
    assert by_parts == whole
    assert list(by_parts.findings) == list(whole.findings), "in the order in which they were found"
    return by_parts


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 2**32), parts=st.integers(1, 5), messages=st.integers(1, 60))
def test_a_workload_with_rollbacks(seed: int, parts: int, messages: int) -> None:
    engine = InProcess(parts, messages)
    assert same(played(seed), engine).is_clean
    assert engine.why_whole == []


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 2**32), steps=st.integers(20, 150))
def test_keys_that_are_written_in_steps(seed: int, steps: int) -> None:
    written = writers(seed, steps)
    engine = InProcess()
    assert same(written.plane, engine).is_clean
    written.settle()
    assert same(written.plane, engine).is_clean
    assert engine.why_whole == []


def test_runs_with_faults() -> None:
    rounds = []
    for seed in range(1, 16):
        simulation = Simulation(seed)
        simulation.trims.share = 0.0
        simulation.run()
        for shard in range(len(simulation.shards)):
            engine = InProcess(2, 50)
            by_parts, whole = by_parts_and_whole(simulation.plane.log, engine, shard)
            assert by_parts == whole, seed
            if not engine.why_whole:
                rounds.append(engine.rounds)
    assert len(rounds) > 12, "most logs divide"
    assert max(rounds) > 1, "some commands turn out to be refused"


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_commands_that_nobody_waits_for(seed: int) -> None:
    """Only the replay of its bucket knows whether such a command was refused, and all later ones are numbered by it."""
    random, plane = Random(seed), InMemoryPlane()
    for place in range(120):
        command = _some_command(random, place)
        plane.log.append(METADATA_COMMANDS.name, 0, codec(MetadataCommand).encode_message(command))
    plane.run_until(lambda: False, max_idle_advances=3)
    engine = InProcess(4, 10)
    report = same(plane, engine)
    assert engine.why_whole == []
    assert report.txn < report.commands


def _some_command(random: Random, place: int) -> MetadataCommand:
    bucket, key = f"bucket-{random.randrange(BUCKETS)}", random.choice("abc")
    txn = random.randrange(1, 100)
    gone = RowName(DeletedKind.KEY, object_id(0, txn, 1), object_id(0, txn, 1), txn, random.randrange(txn, txn + 20))
    body: Any = random.choices(
        [
            CreateVolume("vol"),
            CreateBucket("vol", bucket, random.choice((BucketLayout.OBJECT_STORE, BucketLayout.FILE_SYSTEM_OPTIMIZED))),
            CreateBucketLink("vol", bucket, "vol", f"bucket-{random.randrange(BUCKETS)}"),
            DeleteBucket("vol", bucket),
            PutKey("vol", bucket, key, random.choice((0, 5))),
            DeleteKey("vol", bucket, key),
            PutKeys("vol", bucket, (key, f"{key}/d", "e")[: random.randrange(4)], (5, 5, 5)[: random.randrange(4)]),
            Undelete("vol", bucket, key, gone.kind, gone.object_id, gone.birth, gone.death),
        ],
        [1, 4, 1, 2, 12, 8, 5, 1],
    )[0]
    # The numbers of a client rise, except when it repeats one. Whether an undelete was refused is always answered.
    number = random.choice((0, place // 2 + 1)) if not isinstance(body, Undelete) else place + 1
    client = "undeletes" if isinstance(body, Undelete) else "others"
    return MetadataCommand(0, client if number else "", number, body, wants_reply=False)


@pytest.mark.parametrize("forgery", _FORGERIES)
def test_a_forged_row(forgery: str) -> None:
    forge, kind = _FORGERIES[forgery]
    plane, engine = played(0), InProcess()
    _plant(plane, lambda messages: [forge(messages[0]), *messages[1:]])
    assert kind in same(plane, engine).findings
    is_unknown = kind is FindingKind.UNKNOWN_VERSION
    assert bool(engine.why_whole) == is_unknown, "the version of such a row is looked for in all buckets"


@pytest.mark.parametrize(
    "change",
    [
        lambda messages: messages[:-1],
        lambda messages: [*messages, messages[-1], *messages],
        lambda messages: [*messages, dataclasses.replace(messages[0], finish_txn=1_000_000)],
        lambda messages: [],
    ],
    ids=["missing", "repeated", "twice", "all missing"],
)
def test_another_ledger(change: Callable[[list[LedgerRows]], list[LedgerRows]]) -> None:
    plane = played(0)
    _plant(plane, change)
    same(plane, InProcess())


def test_a_version_that_was_freed_though_a_snapshot_held_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(test_ledger, "verified", lambda plane: same(plane, InProcess()))
    report = test_ledger._freed_by_force(
        monkeypatch,
        [
            {"op": "put_key", "key": "k", "size": 10, "tag": ""},
            {"op": "create_snapshot", "snapshot": "holder"},
            {"op": "delete_key", "key": "k"},
        ],
    )
    assert FindingKind.FREED_WHILE_HELD in report.findings


def test_a_log_that_does_not_divide_is_replayed_as_one_part() -> None:
    plane, engine = played(1), InProcess()
    command = MetadataCommand(0, "", 0, RequeueOrphans(1, 1, (), 1), "audit")
    plane.log.append(METADATA_COMMANDS.name, 0, codec(MetadataCommand).encode_message(command))
    same(plane, engine)
    assert engine.why_whole == ["the log has RequeueOrphans"]


def test_a_page_of_an_expiry_ends_for_all_buckets_where_it_is_full() -> None:
    why = list[str]()
    for seed in range(8, 20):
        written = writers(seed, 120)
        log = written.plane.log
        log.trim(METADATA_PROGRESS.name, 0, log.end_offset(METADATA_PROGRESS.name, 0))  # nobody says where
        engine = InProcess()
        same(written.plane, engine)
        why += engine.why_whole
    assert why
    assert all("the page of the expiry" in one for one in why)


def test_the_number_of_a_dead_letter_does_not_count() -> None:
    plane, engine = played(1), InProcess()
    repair = RepairQuota(1, 1, 0, 0, 0, 0, 0, 0, 0)
    for number, body in ((7, repair), (5, CreateVolume("late"))):
        command = MetadataCommand(0, "me", number, body)
        plane.log.append(METADATA_COMMANDS.name, 0, codec(MetadataCommand).encode_message(command))
    same(plane, engine)
    assert ["does not count" in why for why in engine.why_whole] == [True]


def test_the_parts_have_to_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without corrections a log in which one command was refused is never taken for one that was replayed."""
    plane, engine = InMemoryPlane(), InProcess()
    for body in (CreateVolume("vol"), DeleteKey("vol", "none", "k"), CreateVolume("other")):
        command = MetadataCommand(0, "", 0, body, wants_reply=False)
        plane.log.append(METADATA_COMMANDS.name, 0, codec(MetadataCommand).encode_message(command))
    monkeypatch.setattr(_Numbering, "correct", lambda *_: None)
    assert same(plane, engine).txn == 2
    assert engine.rounds == divided.MAX_ROUNDS
    assert engine.why_whole == [f"after {divided.MAX_ROUNDS} rounds the parts do not agree about the txns"]
