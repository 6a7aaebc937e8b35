"""Random histories on the whole plane in memory: the ledger is what the log says, and what is planted is found."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schemas.codec import codec
from schemas.records import (
    BlockGroups,
    ClaimRows,
    DeletedKind,
    FinishRows,
    LedgerRows,
    MetadataCommand,
    RowNames,
)
from schemas.topics import LEDGER, METADATA_COMMANDS, METADATA_PROGRESS
from services.metadata.collecting import claims
from services.metadata.collecting.breaker import Gate
from services.metadata.state.space import SpaceChanges
from services.metadata.state.tables import (
    DELETED_TABLE,
    FILE_TABLE,
    KEY_TABLE,
    TRANSACTION_INFO_KEY,
    TRANSACTION_INFO_TABLE,
)
from services.plane.in_memory.client import InMemoryClient
from services.plane.in_memory.plane import InMemoryPlane
from services.snapshots.settings import SnapshotsSettings
from services.storage.tables import TablesReader
from services.verifier.report import FindingKind, VerifyReport
from services.verifier.run import VerifyError, verify_shard
from services.workloads import workload
from services.workloads.replay import Replay
from tests.rollback_workload import random_workload

pytestmark = pytest.mark.long


def played(seed: int) -> InMemoryPlane:
    """A plane that has carried out a random workload and settled."""
    page = Random(seed).choice((1, 3, 10, 2_000))
    plane = InMemoryPlane(snapshots_settings=SnapshotsSettings(max_rollback_page_entries=page))
    for _ in Replay(InMemoryClient(plane)).run(random_workload(seed, "vol")):
        pass
    return plane


def verified(plane: InMemoryPlane) -> VerifyReport:
    """The report of the plane's only shard."""
    return verify_shard(plane.log, 0, lambda: InMemoryClient(plane).scm(0).totals().deleted_bytes)


@settings(max_examples=80, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_the_ledger_is_what_the_log_says(seed: int) -> None:
    plane = played(seed)
    report = verified(plane)
    assert report.is_clean, report.examples
    assert report.commands == plane.log.end_offset(METADATA_COMMANDS.name, 0)
    assert (report.unfinished_rows, report.beyond_rows) == (0, 0)
    assert report.size_bytes == report.deleted_bytes_after


def test_the_replay_numbers_commands_as_metadata_does() -> None:
    for seed in range(20):
        plane = played(seed)
        state = TablesReader(plane.processes["metadata", 0].store).table(TRANSACTION_INFO_TABLE)
        counters = state.get(TRANSACTION_INFO_KEY)
        assert counters is not None
        assert counters.txn == verified(plane).txn, seed


def _ledger(plane: InMemoryPlane) -> list[LedgerRows]:
    return [codec(LedgerRows).decode_message(record.value) for record in plane.log.records(LEDGER.name, 0)]


def _plant(plane: InMemoryPlane, change: Callable[[list[LedgerRows]], list[LedgerRows]]) -> None:
    """Put another ledger in place of the plane's own."""
    messages = change(_ledger(plane))
    plane.log.partitions[LEDGER.name, 0].clear()
    for message in messages:
        plane.log.append(LEDGER.name, 0, codec(LedgerRows).encode_message(message))


def _of_groups(message: LedgerRows, **columns: tuple[int, ...]) -> LedgerRows:
    return dataclasses.replace(message, groups=dataclasses.replace(message.groups, **columns))


def _of_claim(message: LedgerRows, **facts: int) -> LedgerRows:
    return dataclasses.replace(message, claims=(dataclasses.replace(message.claims[0], **facts), *message.claims[1:]))


def _plus(column: tuple[int, ...], number: int) -> tuple[int, ...]:
    return (column[0] + number, *column[1:])


_FORGERIES: dict[str, tuple[Callable[[LedgerRows], LedgerRows], FindingKind]] = {
    "another object": (
        lambda m: _of_groups(m, object_ids=_plus(m.groups.object_ids, 1 << 30)),
        FindingKind.UNKNOWN_VERSION,
    ),
    "another birth": (lambda m: _of_groups(m, births=_plus(m.groups.births, 10_000)), FindingKind.UNKNOWN_VERSION),
    "another bucket": (lambda m: _of_groups(m, bucket_ids=_plus(m.groups.bucket_ids, 1)), FindingKind.UNKNOWN_VERSION),
    "another death": (lambda m: _of_groups(m, deaths=_plus(m.groups.deaths, 1)), FindingKind.DIFFERENT),
    "other blocks": (
        lambda m: _of_groups(m, container_ids=_plus(m.groups.container_ids, 1)),
        FindingKind.DIFFERENT,
    ),
    "other bytes": (lambda m: _of_groups(m, sizes_bytes=_plus(m.groups.sizes_bytes, 1)), FindingKind.DIFFERENT),
    "another snapshot before": (
        lambda m: _of_claim(m, previous_txn=77_777),
        FindingKind.DIFFERENT,
    ),
    "another snapshot after": (lambda m: _of_claim(m, next_txn=77_777), FindingKind.DIFFERENT),
    "another chain version": (lambda m: _of_claim(m, chain_version=99), FindingKind.DIFFERENT),
    "another first judge": (lambda m: _of_claim(m, first_judge_version=99), FindingKind.DIFFERENT),
    "another second judge": (lambda m: _of_claim(m, second_judge_version=99), FindingKind.DIFFERENT),
    "another task": (lambda m: _of_claim(m, task=99), FindingKind.DIFFERENT),
    "another time": (lambda m: dataclasses.replace(m, finish_time_ms=m.finish_time_ms + 1), FindingKind.DIFFERENT),
    "a claim that is not there": (lambda m: dataclasses.replace(m, claims=()), FindingKind.UNREADABLE),
}


@pytest.mark.parametrize("forgery", _FORGERIES)
def test_a_forged_ledger_row_is_found(forgery: str) -> None:
    forge, kind = _FORGERIES[forgery]
    plane = played(0)
    _plant(plane, lambda messages: [forge(messages[0]), *messages[1:]])
    assert kind in verified(plane).findings


def test_a_row_that_is_missing_twice_or_repeated() -> None:
    plane = played(0)
    _plant(plane, lambda messages: messages[:-1])
    assert verified(plane).findings.keys() == {FindingKind.MISSING, FindingKind.BYTES}
    plane = played(0)
    _plant(plane, lambda messages: [*messages, messages[-1], *messages])
    assert verified(plane).is_clean, "a message that comes again says nothing new"
    plane = played(0)
    again = 1_000_000
    _plant(plane, lambda messages: [*messages, dataclasses.replace(messages[0], finish_txn=again)])
    assert FindingKind.TWICE in verified(plane).findings
    plane = played(0)
    _plant(plane, lambda _: [])
    assert FindingKind.MISSING in verified(plane).findings


def test_bytes_that_the_block_store_deleted_on_its_own_are_found() -> None:
    plane = played(0)
    deleted = InMemoryClient(plane).scm(0).totals().deleted_bytes
    for other in (deleted + 1, deleted - 1):
        assert FindingKind.BYTES in verify_shard(plane.log, 0, lambda other=other: other).findings  # type: ignore[misc]


def _ask(plane: InMemoryPlane, body: ClaimRows | FinishRows) -> None:
    command = MetadataCommand(0, "", 0, body, "key_deletion", wants_reply=False)
    encoder = codec(MetadataCommand)
    plane.log.append(METADATA_COMMANDS.name, 0, encoder.encode_message(command))


def _freed_by_force(monkeypatch: pytest.MonkeyPatch, operations: list[dict[str, object]]) -> VerifyReport:
    """A plane whose third judge lets everything pass is asked for all that is dead, and the claims are finished."""
    monkeypatch.setattr(claims, "is_reclaimable_after", lambda birth, previous: True)
    # Left as they are, the breaker notices and holds it back, or the space matrix notices and stops the process.
    monkeypatch.setattr(Gate, "admit", lambda *_: True)
    monkeypatch.setattr(SpaceChanges, "subtract", lambda *_: None)
    plane = InMemoryPlane()
    place: dict[str, object] = {"volume": "vol", "bucket": "bucket"}
    setting: list[dict[str, object]] = [
        {"op": "create_volume", "volume": "vol"},
        {"op": "create_bucket", **place, "layout": "OBS"},
    ]
    lines = [*setting, *({**operation, **place} for operation in operations), {"op": "settle"}]
    parsed = [(number, workload.parse_line(json.dumps(line), number)) for number, line in enumerate(lines)]
    for _ in Replay(InMemoryClient(plane)).run(parsed):
        pass
    store = TablesReader(plane.processes["metadata", 0].store)
    rows = [(key, row) for key, row in store.table(DELETED_TABLE).scan(b"/", b"0")]
    names = [(int(key.split(b"/")[2]), row.key.object_id, row.key.birth, row.death) for key, row in rows]
    held = RowNames(DeletedKind.KEY, *zip(*names, strict=True))
    _ask(plane, ClaimRows(9_999, 0, (held,)))
    _ask(plane, FinishRows(9_999, (held,)))
    plane.run_until(lambda: len(_ledger(plane)) > 0)
    return verified(plane)


def test_a_version_that_was_freed_though_a_snapshot_held_it_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    report = _freed_by_force(
        monkeypatch,
        [
            {"op": "put_key", "key": "k", "size": 10, "tag": ""},
            {"op": "create_snapshot", "snapshot": "holder"},
            {"op": "delete_key", "key": "k"},
        ],
    )
    assert report.has_losses
    (finding,) = (one for one in report.examples if one.kind is FindingKind.FREED_WHILE_HELD)
    assert "the snapshot of txn 4 held it" in finding.reason


def test_a_version_that_was_freed_while_it_was_live_is_found() -> None:
    """Somebody writes into the ledger, and deletes, what no command has taken away."""
    plane = played(0)
    first = _ledger(plane)[0]
    live = TablesReader(plane.processes["metadata", 0].store).table(KEY_TABLE)
    rows = [row for _, row in live.scan(b"/", b"0") if row.blocks is not None]
    tree = TablesReader(plane.processes["metadata", 0].store).table(FILE_TABLE)
    rows += [row for _, row in tree.scan(b"/", b"0") if row.blocks is not None]
    run = rows[0].blocks
    assert run is not None
    group = BlockGroups(
        *((number,) for number in (first.groups.bucket_ids[0], rows[0].object_id, rows[0].birth, rows[0].birth + 1)),
        *((number,) for number in dataclasses.astuple(run)),
    )
    forged = dataclasses.replace(first, finish_txn=10_000, claim_places=(0,), groups=group)
    _plant(plane, lambda messages: [*messages, forged])
    report = verified(plane)
    assert FindingKind.FREED_WHILE_LIVE in report.findings
    assert report.has_losses


def test_a_trimmed_log_is_refused() -> None:
    plane = played(0)
    plane.log.trim(METADATA_COMMANDS.name, 0, 3)
    with pytest.raises(VerifyError, match="trimmed"):
        verified(plane)


def test_a_rollback_ends_where_its_last_page_was_when_its_answers_are_trimmed() -> None:
    for seed in range(12):
        plane = played(seed)
        plane.log.trim(METADATA_PROGRESS.name, 0, plane.log.end_offset(METADATA_PROGRESS.name, 0))
        assert verified(plane).is_clean, seed
