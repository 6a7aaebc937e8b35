"""Snapshots: what clients are answered, and what becomes of rows, links and flags. Codes in names are Ozone's tests."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from unittest.mock import Mock

import pytest

from schemas.records import (
    BucketCollection,
    CaptureSnapshot,
    CollectionChanged,
    CollectionState,
    CreateSnapshot,
    DeleteSnapshot,
    DropSnapshot,
    MetadataProgress,
    RenameSnapshot,
    SetDeepClean,
    Settle,
    SnapshotCommand,
    SnapshotInfo,
    SnapshotSize,
    SnapshotStatus,
    SpaceCellValue,
    SpaceUpdate,
)
from schemas.topics import METADATA_COMMANDS, METADATA_PROGRESS, SNAPSHOT_CHAIN, SNAPSHOTS_COMMANDS, SPACE, Topic
from services.domain.errors import InvalidMessageError
from services.domain.refusals import CommandError
from services.runtime.loop.service import Work
from services.snapshots import service
from services.snapshots.reads import queries
from services.snapshots.service import REPORTED_MS
from services.snapshots.settings import SnapshotsSettings
from services.snapshots.state.tables import CLIENT_TABLE, SNAPSHOT_INFO_TABLE, SNAPSHOT_SIZE_TABLE
from services.storage.tables import RowCache
from tests.unit.snapshots_harness import Harness, verify

DELETED = SnapshotStatus.SNAPSHOT_DELETED
ACTIVE = SnapshotStatus.SNAPSHOT_ACTIVE


def assert_linked(harness: Harness) -> None:
    """Rows name their neighbours, in both chains, in the order of takes; a restart finds the same."""
    rows = queries.snapshot_chain(harness.tables)
    assert verify(harness.tables).corruption == ""
    newest: dict[str, str] = {"": ""}
    for row in rows:
        assert row.global_previous_snapshot_id == newest[""]
        assert row.path_previous_snapshot_id == newest.get(row.snapshot_path, "")
        newest[""] = newest[row.snapshot_path] = row.snapshot_id


# Create


@pytest.mark.parametrize("name", ["4c0b1a0e-5a9c-4a52-9f4e-5a3f0a6c9d11", "sn1", "a" * 63])
def test_s1_names_that_are_allowed(name: str) -> None:
    harness = Harness()
    assert harness.create(name).error == ""
    assert harness.names() == [name]


@pytest.mark.parametrize("name", ["a?b", "1234", "s1", "a" * 64, "", "Upper", "under_score", "a..b", "1.2.3.4"])
def test_s2_names_that_are_refused(name: str) -> None:
    harness = Harness()
    assert harness.create(name).error == "INVALID_SNAPSHOT_ERROR"
    assert harness.asked == []


def test_s5_a_create_is_answered_by_metadata_alone() -> None:
    harness = Harness()
    number = harness.command(CreateSnapshot("vol", "bucket", "snap-1"))
    assert [reply for reply in harness.replies if reply.number == number] == []
    assert harness.names(with_deleted=True) == []
    with pytest.raises(CommandError):
        harness.info("snap-1")
    reply = harness.answered(number)
    row = harness.info("snap-1")
    assert reply.snapshot_id == row.snapshot_id
    captured = harness.metadata.captured[row.snapshot_id]
    assert row.status is ACTIVE
    assert (row.create_txn, row.last_txn) == (1, 1)
    assert row.creation_time_ms == captured.creation_time_ms
    assert (row.bucket_id, row.ordinal) == (7, 1)
    assert row.referenced_bytes == row.referenced_replicated_bytes == 100
    assert row.exclusive_bytes == 0
    assert row.snapshot_path == "vol/bucket"
    assert row.deletion_time_ms == -1
    assert row.chain_version_of_reset == 1
    assert [published.name for published in harness.published] == ["snap-1"]
    assert harness.metric("deepclean_snapshots_commands_total", operation="create") == 1
    assert harness.metric("deepclean_snapshots_rows", shard="0", state="active") == 1


def test_s7_a_name_is_given_once() -> None:
    harness = Harness()
    harness.create("snap-1")
    assert harness.create("snap-1").error == "FILE_ALREADY_EXISTS"
    assert harness.metric("deepclean_snapshots_refusals_total", operation="create") == 1
    assert harness.metric("deepclean_snapshots_rows", shard="0", state="active") == 1


def test_a_name_is_in_use_while_its_snapshot_is_being_created() -> None:
    harness = Harness()
    harness.command(CreateSnapshot("vol", "bucket", "snap-1"))
    assert harness.answered(harness.command(CreateSnapshot("vol", "bucket", "snap-1")), is_run=False).error == (
        "FILE_ALREADY_EXISTS"
    )


def test_the_same_name_in_another_bucket_is_another_snapshot() -> None:
    harness = Harness()
    harness.metadata.buckets["vol", "bucket1"] = 8
    first = harness.create("snap-1")
    second = harness.create("snap-1", bucket="bucket1")
    assert second.error == ""
    assert second.snapshot_id != first.snapshot_id
    assert harness.names() == harness.names("bucket1") == ["snap-1"]


def test_s8_the_limit_counts_those_being_made() -> None:
    harness = Harness(SnapshotsSettings(max_snapshots=3))
    harness.create("snap-1")
    harness.create("snap-2")
    harness.command(CreateSnapshot("vol", "bucket", "snap-3"))
    assert harness.answered(harness.command(CreateSnapshot("vol", "bucket", "snap-4")), is_run=False).error == (
        "TOO_MANY_SNAPSHOTS"
    )
    harness.run()
    assert harness.create("snap-5").error == "TOO_MANY_SNAPSHOTS"


def test_s9_a_refused_create_frees_its_place() -> None:
    harness = Harness(SnapshotsSettings(max_snapshots=2))
    harness.create("snap-1")
    assert harness.create("snap-1").error == "FILE_ALREADY_EXISTS"
    assert harness.create("snap-2", bucket="absent").error == "BUCKET_NOT_FOUND"
    number = harness.command(CreateSnapshot("vol", "bucket", "snap-2"))
    assert harness.answered(harness.command(CreateSnapshot("vol", "bucket", "snap-3")), is_run=False).error == (
        "TOO_MANY_SNAPSHOTS"
    )
    assert harness.answered(number).error == ""
    assert harness.create("snap-4").error == "TOO_MANY_SNAPSHOTS"


def test_the_limit_counts_deleted_snapshots_until_their_removal() -> None:
    harness = Harness(SnapshotsSettings(max_snapshots=1))
    harness.create("snap-1")
    harness.delete("snap-1", is_run=False)
    assert harness.answered(harness.command(CreateSnapshot("vol", "bucket", "snap-2")), is_run=False).error == (
        "TOO_MANY_SNAPSHOTS"
    )
    harness.run()
    assert harness.create("snap-3").error == ""


def test_a_snapshot_of_a_missing_bucket_leaves_nothing() -> None:
    harness = Harness()
    assert harness.create("snap-1", bucket="absent").error == "BUCKET_NOT_FOUND"
    assert harness.names("absent", with_deleted=True) == []
    assert harness.published == []
    harness.metadata.buckets["vol", "absent"] = 9
    assert harness.create("snap-1", bucket="absent").error == ""


def test_a_refused_capture_that_succeeds_at_its_repeat_is_undone() -> None:
    """The outbox sent the take twice; between the two the bucket was made. Nobody may hold what nobody was given."""
    harness = Harness()
    harness.command(CreateSnapshot("vol", "absent", "snap-1"))
    [(_, capture)] = [(name, sent) for name, sent in harness.sent if name == "metadata.commands"]
    harness.metadata.buckets["vol", "absent"] = 9
    harness.inbox += harness.metadata.apply(capture)
    harness.run()
    assert harness.replies[-1].error == "BUCKET_NOT_FOUND"
    [(snapshot_id, _)] = harness.metadata.dropped.items()
    assert harness.asked == [replace(capture.body, snapshot_id=snapshot_id), DropSnapshot(snapshot_id)]
    assert harness.names("absent", with_deleted=True) == []
    assert harness.create("snap-1", bucket="absent").error == ""


def test_the_chain_has_the_order_of_captures_not_of_requests() -> None:
    harness = Harness()
    harness.metadata.buckets["vol", "bucket1"] = 8
    for name in ("snap-1", "snap-2", "snap-3"):
        harness.create(name, bucket="bucket1" if name == "snap-2" else "bucket")
    requests = [harness.command(CreateSnapshot("vol", "bucket", name)) for name in ("late", "early")]
    late, early = harness.inbox[-4:-2], harness.inbox[-2:]
    # metadata's log has them the other way round
    late_captured, early_captured = (messages[1][1].body for messages in (late, early))
    swapped = {late_captured.snapshot_id: early_captured, early_captured.snapshot_id: late_captured}
    harness.inbox.clear()
    for snapshot_id in (early_captured.snapshot_id, late_captured.snapshot_id):
        answer = replace(swapped[snapshot_id], snapshot_id=snapshot_id)
        harness.feed((METADATA_PROGRESS, MetadataProgress(answer.snapshot_txn, answer)))
    assert all(harness.answered(number).error == "" for number in requests)
    assert harness.names() == ["snap-1", "snap-3", "early", "late"]
    assert harness.info("early").path_previous_snapshot_id == harness.info("snap-3").snapshot_id
    assert harness.info("late").path_previous_snapshot_id == harness.info("early").snapshot_id


def test_an_older_capture_that_is_answered_late_finds_its_place() -> None:
    """After a restore metadata's first answers come before the commands are read again, and count for nothing."""
    harness = Harness()
    harness.metadata.buckets["vol", "bucket1"] = 8
    harness.create("snap-1")
    for name, bucket in (("snap-2", "bucket"), ("snap-3", "bucket1"), ("snap-4", "bucket")):
        harness.command(CreateSnapshot("vol", bucket, name))
    answers = [message for message in harness.inbox if message[0] is METADATA_PROGRESS]
    harness.inbox.clear()
    harness.feed(answers[2])
    harness.feed(answers[0], answers[1])
    assert harness.names() == ["snap-1", "snap-2", "snap-4"]
    assert_linked(harness)
    harness.delete("snap-2")
    assert_linked(harness)


def test_ids_follow_from_the_log() -> None:
    """Whoever reads the commands again makes the same snapshots again."""
    ids = []
    for _ in range(2):
        harness = Harness()
        ids.append([harness.create(name).snapshot_id for name in ("snap-1", "snap-2")])
    assert ids[0] == ids[1]
    assert len(set(ids[0])) == 2


def test_a_command_for_another_shard_is_refused() -> None:
    harness = Harness()
    command = SnapshotCommand(1, "client", 1, CreateSnapshot("vol", "bucket", "snap-1"))
    harness.feed((SNAPSHOTS_COMMANDS, command))
    assert harness.replies[-1].error == "WRONG_SHARD"
    assert harness.asked == []


# Delete


def test_d1_a_deleted_snapshot_keeps_its_row_until_the_removal() -> None:
    harness = Harness()
    snapshot_id = harness.create("snap-1").snapshot_id
    harness.now_ms += 5
    reply = harness.delete("snap-1", is_run=False)
    assert (reply.error, reply.snapshot_id) == ("", snapshot_id)
    row = harness.info("snap-1")
    assert (row.status, row.deletion_time_ms) == (DELETED, harness.now_ms)
    assert harness.names() == []
    assert harness.names(with_deleted=True) == ["snap-1"]
    assert harness.asked[-1] == DropSnapshot(snapshot_id)
    assert harness.metric("deepclean_snapshots_rows", shard="0", state="active") == 0
    assert harness.metric("deepclean_snapshots_rows", shard="0", state="deleted") == 1
    harness.run()
    assert harness.names(with_deleted=True) == []
    assert [(published.status, published.is_removed) for published in harness.published] == [
        (ACTIVE, False),
        (DELETED, False),
        (DELETED, True),
    ]


def test_d2_an_unknown_snapshot_cannot_be_deleted() -> None:
    harness = Harness()
    assert harness.delete("snap-1").error == "FILE_NOT_FOUND"
    assert harness.delete("snap-1", bucket="absent").error == "FILE_NOT_FOUND"


def test_d3_a_snapshot_is_deleted_once() -> None:
    harness = Harness()
    harness.create("snap-1")
    harness.delete("snap-1", is_run=False)
    assert harness.delete("snap-1", is_run=False).error == "FILE_NOT_FOUND"
    harness.run()
    assert harness.delete("snap-1").error == "FILE_NOT_FOUND"


def test_a_snapshot_that_is_being_made_cannot_be_deleted() -> None:
    harness = Harness()
    harness.command(CreateSnapshot("vol", "bucket", "snap-1"))
    assert harness.delete("snap-1", is_run=False).error == "FILE_NOT_FOUND"
    harness.run()
    assert harness.names() == ["snap-1"]


def test_a_name_is_free_after_the_removal_and_not_before() -> None:
    harness = Harness()
    first = harness.create("snap-1")
    harness.delete("snap-1", is_run=False)
    assert harness.answered(harness.command(CreateSnapshot("vol", "bucket", "snap-1")), is_run=False).error == (
        "FILE_ALREADY_EXISTS"
    )
    harness.run()
    second = harness.create("snap-1")
    assert second.error == ""
    assert second.snapshot_id != first.snapshot_id


# Rename


def test_n1_rename_is_refused_unless_it_is_enabled() -> None:
    harness = Harness()
    harness.create("snap-1")
    assert harness.rename("snap-1", "snap-2").error == "FEATURE_NOT_ENABLED"


def test_n2_rename_keeps_the_id() -> None:
    harness = Harness(SnapshotsSettings(is_rename_allowed=True))
    snapshot_id = harness.create("snap-1").snapshot_id
    assert harness.rename("snap-1", "snap-2").snapshot_id == snapshot_id
    assert harness.names() == ["snap-2"]
    assert harness.info("snap-2").snapshot_id == snapshot_id
    assert harness.published[-1].name == "snap-2"
    assert harness.create("snap-1").error == ""
    harness.restart()
    assert harness.delete("snap-2").snapshot_id == snapshot_id
    assert_linked(harness)


@pytest.mark.parametrize("target", ["snap-1", "snap-2", "snap-3", "snap-4"])
def test_n3_the_target_must_be_free(target: str) -> None:
    harness = Harness(SnapshotsSettings(is_rename_allowed=True))
    for name in ("snap-1", "snap-2", "snap-3"):
        harness.create(name)
    harness.delete("snap-3", is_run=False)
    harness.command(CreateSnapshot("vol", "bucket", "snap-4"))
    number = harness.command(RenameSnapshot("vol", "bucket", "snap-1", target))
    assert harness.answered(number, is_run=False).error == "FILE_ALREADY_EXISTS"


def test_n4_the_source_must_be_readable() -> None:
    harness = Harness(SnapshotsSettings(is_rename_allowed=True))
    harness.create("snap-1")
    harness.delete("snap-1", is_run=False)
    harness.command(CreateSnapshot("vol", "bucket", "snap-2"))
    for source in ("snap-1", "snap-2", "absent"):
        number = harness.command(RenameSnapshot("vol", "bucket", source, "target"))
        assert harness.answered(number, is_run=False).error == "FILE_NOT_FOUND"


def test_a_rename_follows_the_rules_of_names() -> None:
    harness = Harness(SnapshotsSettings(is_rename_allowed=True))
    harness.create("snap-1")
    assert harness.rename("snap-1", "Snap_1").error == "INVALID_SNAPSHOT_ERROR"


# Links and flags after a purge


def snapshots_in(harness: Harness, buckets: Sequence[str]) -> list[SnapshotInfo]:
    """One clean snapshot in each of these buckets, in this order."""
    for number, bucket in enumerate(buckets):
        harness.metadata.buckets.setdefault(("vol", bucket), 100 + len(harness.metadata.buckets))
        snapshot_id = harness.create(f"snap-{number}", bucket=bucket).snapshot_id
        harness.flag(snapshot_id, harness.metadata.chain_version)
    return queries.snapshot_chain(harness.tables)


ONE_BUCKET = ["bucket"] * 5
BUCKET_BY_BUCKET = ["bucket1"] * 5 + ["bucket2"] * 5 + ["bucket3"] * 5
ROUND_ROBIN = ["bucket1", "bucket2", "bucket3"] * 5
PURGES = [
    *[(ONE_BUCKET, purged) for purged in ([0], [1], [2], [3], [4], [1, 2, 3], [3, 2, 1], [0, 1, 2, 3, 4])],
    *[
        (buckets, purged)
        for buckets in (BUCKET_BY_BUCKET, ROUND_ROBIN)
        for purged in ([0], [0, 1, 2, 3, 4, 5], [7], [5, 6, 7, 8, 9], list(range(3, 13)), [10, 11, 12, 13, 14], [14])
    ],
]


@pytest.mark.parametrize(("buckets", "purged"), PURGES)
@pytest.mark.parametrize("is_one_batch", [False, True])
def test_u4_to_u7_a_removal_relinks_and_resets_the_next_two(
    buckets: list[str], purged: list[int], is_one_batch: bool
) -> None:
    harness = Harness()
    rows = snapshots_in(harness, buckets)
    assert all(row.has_deep_cleaned_keys and row.has_deep_cleaned_directories for row in rows)
    for index in purged:
        harness.delete(rows[index].name, bucket=rows[index].bucket, is_run=not is_one_batch)
    if is_one_batch:
        answers, harness.inbox = harness.inbox, []
        harness.feed(*answers)
    left = {row.snapshot_id: row for row in queries.snapshot_chain(harness.tables)}
    expected_reset: dict[str, int] = {}
    touched: set[str] = set()
    gone: set[str] = set()
    for index in purged:
        row = rows[index]
        gone.add(row.snapshot_id)
        behind = [other for other in rows[index + 1 :] if other.snapshot_id not in gone]
        behind_in_bucket = [other.snapshot_id for other in behind if other.bucket == row.bucket]
        version = harness.metadata.dropped[row.snapshot_id]
        expected_reset.update(dict.fromkeys(behind_in_bucket[:2], version))
        touched.update([*behind_in_bucket[:2], *[other.snapshot_id for other in behind[:1]]])
    assert left.keys() == {row.snapshot_id for row in rows} - gone
    for before in rows:
        if before.snapshot_id in gone:
            continue
        row = left[before.snapshot_id]
        is_reset = row.snapshot_id in expected_reset
        assert row.has_deep_cleaned_keys is row.has_deep_cleaned_directories is not is_reset
        assert row.chain_version_of_reset == expected_reset.get(row.snapshot_id, before.chain_version_of_reset)
        assert (row.last_txn > before.last_txn) is (row.snapshot_id in touched)
    assert_linked(harness)
    harness.restart()
    assert harness.create("another").error == ""
    assert_linked(harness)


def test_u2_answers_that_come_again_change_nothing() -> None:
    harness = Harness()
    rows = snapshots_in(harness, ONE_BUCKET)
    harness.delete("snap-1")
    first_answers = [
        (METADATA_PROGRESS, MetadataProgress(99, harness.metadata.captured[rows[index].snapshot_id]))
        for index in range(5)
    ]
    before, sent = dict(rows_of(harness)), len(harness.sent)
    harness.feed(*first_answers)
    for message in harness.metadata._drop(DropSnapshot(rows[1].snapshot_id)):
        harness.feed(message)
    assert rows_of(harness) == before
    assert len(harness.sent) == sent


def rows_of(harness: Harness) -> dict[str, SnapshotInfo]:
    return {row.name: row for row in queries.snapshot_chain(harness.tables)}


def test_neighbours_are_right_in_memory_too() -> None:
    """A second purge beside the first one, without a restart between them."""
    harness = Harness()
    snapshots_in(harness, ONE_BUCKET)
    for name in ("snap-2", "snap-1", "snap-3"):
        harness.delete(name)
        assert_linked(harness)
    harness.create("snap-5")
    assert harness.names() == ["snap-0", "snap-4", "snap-5"]
    assert_linked(harness)


# Flags


def test_a_new_snapshot_is_not_clean() -> None:
    harness = Harness()
    harness.create("snap-1")
    row = harness.info("snap-1")
    assert (row.has_deep_cleaned_keys, row.has_deep_cleaned_directories) == (False, False)
    assert harness.metric("deepclean_snapshots_unclean", shard="0") == 1


def test_flags_found_before_the_last_reset_are_ignored() -> None:
    harness = Harness()
    rows = snapshots_in(harness, ["bucket", "bucket"])
    harness.delete("snap-0")
    reset = harness.info("snap-1").chain_version_of_reset
    harness.flag(rows[1].snapshot_id, reset - 1)
    assert not harness.info("snap-1").has_deep_cleaned_keys
    harness.flag(rows[1].snapshot_id, reset)
    assert harness.info("snap-1").has_deep_cleaned_keys
    assert harness.published[-1].has_deep_cleaned_directories


def test_a_flag_found_after_a_drop_outlives_the_reset_that_comes_later() -> None:
    """key_deletion knew of the drop from the chain before metadata's answer was read here."""
    harness = Harness()
    rows = snapshots_in(harness, ["bucket", "bucket", "bucket"])
    harness.delete("snap-0", is_run=False)
    harness.flag(rows[1].snapshot_id, harness.metadata.chain_version)
    harness.run()
    assert harness.info("snap-1").has_deep_cleaned_keys
    assert not harness.info("snap-2").has_deep_cleaned_keys


def test_a_flag_may_overtake_the_answer_to_the_capture() -> None:
    harness = Harness()
    number = harness.command(CreateSnapshot("vol", "bucket", "snap-1"))
    [snapshot_id] = harness.metadata.captured
    harness.flag(snapshot_id, 1)
    harness.answered(number)
    assert harness.info("snap-1").has_deep_cleaned_keys


def test_t3_a_flag_of_an_unknown_snapshot_does_nothing() -> None:
    harness = Harness()
    harness.create("snap-1")
    sent = len(harness.sent)
    harness.flag("unknown", 5)
    assert len(harness.sent) == sent
    assert harness.metric("deepclean_snapshots_stale_flags_total") == 1


def test_only_key_deletion_sets_flags() -> None:
    harness = Harness()
    snapshot_id = harness.create("snap-1").snapshot_id
    harness.command(SetDeepClean(snapshot_id, 9, True, True))
    [error] = harness.dead_lettered
    assert isinstance(error, InvalidMessageError)
    assert not harness.info("snap-1").has_deep_cleaned_keys


# Repeats of clients


def test_a_repeat_gets_the_first_answer_and_changes_nothing() -> None:
    harness = Harness()
    number = harness.command(CreateSnapshot("vol", "bucket", "snap-1"))
    first = harness.answered(number)
    for _ in range(2):
        harness.command(CreateSnapshot("vol", "bucket", "snap-1"), number=number)
        harness.restart()
    assert harness.replies == [first] * 3
    assert len(harness.asked) == 1


def test_a_repeat_while_it_is_being_made_is_answered_once() -> None:
    harness = Harness()
    number = harness.command(CreateSnapshot("vol", "bucket", "snap-1"))
    harness.command(CreateSnapshot("vol", "bucket", "snap-1"), number=number)
    harness.restart()
    harness.command(CreateSnapshot("vol", "bucket", "snap-1"), number=number)
    assert harness.replies == []
    harness.run()
    assert len(harness.replies) == 1
    first, again = harness.asked
    assert first == again, "asked for once more after the start, with the same id"


def test_a_lower_number_is_an_old_request() -> None:
    harness = Harness()
    harness.create("snap-1")
    harness.create("snap-2")
    harness.command(DeleteSnapshot("vol", "bucket", "snap-1"), number=1)
    assert harness.replies[-1].error == "OLD_REQUEST"
    assert harness.names() == ["snap-1", "snap-2"]


def test_a_lower_number_that_is_being_made_is_answered_when_it_ends() -> None:
    harness = Harness()
    first = harness.command(CreateSnapshot("vol", "bucket", "snap-1"))
    second = harness.command(CreateSnapshot("vol", "bucket", "snap-2"))
    harness.command(CreateSnapshot("vol", "bucket", "snap-1"), number=first)
    harness.run()
    assert [(reply.number, reply.error) for reply in harness.replies] == [(first, ""), (second, "")]


def test_a_refusal_is_remembered_too() -> None:
    harness = Harness()
    number = harness.command(DeleteSnapshot("vol", "bucket", "snap-1"))
    harness.command(CreateSnapshot("vol", "bucket", "snap-1"), client_id="other", number=1)
    harness.run()
    harness.command(DeleteSnapshot("vol", "bucket", "snap-1"), number=number)
    assert [reply.error for reply in harness.replies if reply.number == number and reply.client_id == "client"] == [
        "FILE_NOT_FOUND"
    ] * 2
    assert harness.names() == ["snap-1"]


def test_clients_are_forgotten_after_an_hour_of_log_time() -> None:
    harness = Harness()
    for hour in range(6):
        harness.command(CreateSnapshot("vol", "bucket", f"snap-{hour}"), client_id=f"client-{hour}", number=1)
        harness.run()
        harness.now_ms += 3_600_000
    left = [key for key, _ in harness.tables.table(CLIENT_TABLE).scan()]
    assert b"client-5" in left
    assert b"client-0" not in left
    assert len(left) <= 3


def test_who_names_no_client_gets_no_answer() -> None:
    harness = Harness()
    harness.command(CreateSnapshot("vol", "bucket", "snap-1"), client_id="", number=0)
    harness.run()
    assert harness.replies == []
    assert harness.names() == ["snap-1"]


# Sizes


def cell(first: int, last: int, size_bytes: int) -> SpaceCellValue:
    versions = 1 if size_bytes else 0
    return SpaceCellValue(first, last, size_bytes, versions, versions, 0, 0)


def update(
    txn: int,
    *cells: SpaceCellValue,
    sizes: tuple[SnapshotSize, ...] = (),
    unexpanded: tuple[int, int] = (0, 0),
    bucket_id: int = 7,
) -> tuple[Topic, SpaceUpdate]:
    return SPACE, SpaceUpdate(txn, bucket_id, cells, sizes, *unexpanded)


def test_the_exclusive_size_is_the_cell_of_the_snapshot_alone() -> None:
    harness = Harness()
    first, second = (harness.create(name).snapshot_id for name in ("snap-1", "snap-2"))
    published = len(harness.published)
    harness.feed(update(3, cell(1, 1, 30), cell(1, 2, 500)), update(4, cell(1, 1, 40), cell(2, 2, 7), cell(0, 0, 9)))
    assert [harness.info(name).exclusive_bytes for name in ("snap-1", "snap-2")] == [40, 7]
    assert harness.info("snap-1").exclusive_replicated_bytes == 40
    assert [(row.snapshot_id, row.exclusive_bytes) for row in harness.published[published:]] in (
        [(first, 40), (second, 7)],
        [(second, 7), (first, 40)],
    )
    harness.feed(update(5, cell(1, 1, 0)))
    assert harness.info("snap-1").exclusive_bytes == 0


def test_figures_of_another_bucket_are_not_mixed_up() -> None:
    harness = Harness()
    harness.create("snap-1")
    harness.feed(update(3, cell(1, 1, 30), bucket_id=77))
    assert harness.info("snap-1").exclusive_bytes == 0


def test_figures_may_come_before_the_snapshot() -> None:
    harness = Harness()
    number = harness.command(CreateSnapshot("vol", "bucket", "snap-1"))
    [snapshot_id] = harness.metadata.captured
    harness.feed(update(9, cell(1, 1, 30), sizes=(SnapshotSize(snapshot_id, 80, 3),), unexpanded=(5, 5)))
    harness.answered(number)
    row = harness.info("snap-1")
    assert (row.referenced_bytes, row.referenced_replicated_bytes, row.exclusive_bytes) == (80, 80, 30)
    assert (row.is_referenced_exact, row.is_exclusive_exact) == (True, False)
    assert harness.published == [row]


def test_unexpanded_directories_make_sizes_inexact() -> None:
    """Takes at txns 1, 2 and 3; a directory that died at 2 or before counts in what snapshot 2 refers to."""
    harness = Harness()
    for name in ("snap-1", "snap-2", "snap-3"):
        harness.create(name)

    def exact() -> list[tuple[bool, bool]]:
        rows = queries.snapshot_chain(harness.tables)
        return [(row.is_referenced_exact, row.is_exclusive_exact) for row in rows]

    assert exact() == [(True, True)] * 3
    harness.feed(update(10, unexpanded=(2, 2)))
    assert exact() == [(True, False), (False, True), (False, True)]
    published = len(harness.published)
    harness.feed(update(11, unexpanded=(2, 3)))
    assert exact() == [(True, False), (False, False), (False, True)]
    assert len(harness.published) == published + 1
    harness.feed(update(12, unexpanded=(3, 9)))
    assert exact() == [(True, False), (True, False), (False, False)]
    harness.feed(update(13))
    assert exact() == [(True, True)] * 3


def test_older_figures_that_come_again_do_nothing() -> None:
    harness = Harness()
    harness.create("snap-1")
    harness.feed(update(3, cell(1, 1, 30)), update(5, cell(1, 1, 50)))
    published = len(harness.published)
    harness.feed(update(3, cell(1, 1, 30)))
    assert harness.info("snap-1").exclusive_bytes == 50
    assert len(harness.published) == published


def test_a_removal_forgets_the_sizes() -> None:
    harness = Harness()
    snapshot_id = harness.create("snap-1").snapshot_id
    size = (SnapshotSize(snapshot_id, 80, 3),)
    harness.feed(update(3, sizes=size))
    harness.delete("snap-1")
    assert harness.tables.table(SNAPSHOT_SIZE_TABLE).get(snapshot_id.encode()) is None
    harness.feed(update(4, sizes=size))  # was on its way
    settle(harness)
    assert harness.tables.table(SNAPSHOT_SIZE_TABLE).get(snapshot_id.encode()) is None


def test_what_a_set_of_snapshots_would_free() -> None:
    harness = Harness()
    for name in ("snap-1", "snap-2", "snap-3"):
        harness.create(name)
    harness.feed(update(9, cell(1, 1, 1), cell(1, 2, 10), cell(2, 2, 100), cell(1, 3, 1000), cell(0, 0, 10_000)))

    def freed(*names: str) -> tuple[int, bool]:
        space, is_exact = queries.freed_by_deleting(harness.tables, "vol", "bucket", names)
        return space.bytes, is_exact

    assert (freed("snap-1", "snap-2"), freed("snap-2"), freed()) == ((111, True), (100, True), (0, True))
    harness.feed(update(10, unexpanded=(2, 2)))
    assert (freed("snap-1"), freed("snap-2")) == ((1, False), (100, True))
    with pytest.raises(CommandError):
        freed("absent")


# Settle


def bring_back(harness: Harness, work: tuple[int, int] = (0, 0)) -> None:
    for message in harness.metadata.bring_back(work):
        harness.feed(message)


def settle(harness: Harness, barrier_id: str = "barrier") -> int:
    """Settle over a plane that has nothing to do."""
    number = harness.settle(barrier_id)
    while harness.metadata.barriers:
        bring_back(harness)
    return harness.answered(number).rounds


def test_settled_after_two_rounds_without_work() -> None:
    harness = Harness()
    number = harness.settle()
    assert (harness.metadata.barriers[0].round, harness.metadata.barriers[0].origin) == (1, "")
    bring_back(harness)
    assert harness.replies == []
    assert harness.metadata.barriers[0].round == 2
    bring_back(harness)
    assert harness.answered(number).rounds == 2
    assert harness.metadata.barriers == []


@pytest.mark.parametrize("work", [(1, 0), (0, 3)])
def test_a_round_with_work_begins_the_count_again(work: tuple[int, int]) -> None:
    harness = Harness()
    number = harness.settle()
    bring_back(harness)
    bring_back(harness, work)
    bring_back(harness)
    assert harness.replies == []
    bring_back(harness)
    assert harness.answered(number).rounds == 4


def test_flags_that_are_to_come_are_work() -> None:
    harness = Harness()
    snapshot_id = harness.create("snap-1").snapshot_id
    number = harness.settle()
    for _ in range(3):
        bring_back(harness)
    assert harness.metadata.barriers[0].work == 1
    harness.flag(snapshot_id, 1)
    bring_back(harness)  # the flag came during this round
    assert harness.metadata.barriers[0].work == 0
    bring_back(harness)
    assert len(harness.replies) == 1
    bring_back(harness)
    assert harness.answered(number).rounds == 6


def test_a_snapshot_half_made_or_half_dropped_is_work() -> None:
    harness = Harness()
    harness.command(CreateSnapshot("vol", "absent", "snap-1"))
    harness.settle()
    bring_back(harness)
    assert harness.metadata.barriers[0].work == 1
    harness.run()
    bring_back(harness)
    assert harness.metadata.barriers[0].work == 0
    bring_back(harness)
    bring_back(harness)
    assert [reply.rounds for reply in harness.replies][-1] == 4


def test_commands_during_a_round_are_work() -> None:
    harness = Harness(SnapshotsSettings(is_rename_allowed=True))
    snapshot_id = harness.create("snap-1").snapshot_id
    harness.flag(snapshot_id, 1)
    number = harness.settle()
    bring_back(harness)
    harness.rename("snap-1", "snap-2")
    bring_back(harness)
    bring_back(harness)
    assert number not in [reply.number for reply in harness.replies]
    bring_back(harness)
    assert harness.answered(number).rounds == 4


def test_a_refused_command_is_no_work() -> None:
    harness = Harness()
    number = harness.settle()
    harness.delete("absent")
    bring_back(harness)
    bring_back(harness)
    assert harness.answered(number).rounds == 2


def test_settled_only_when_the_figures_are_complete() -> None:
    harness = Harness()
    harness.metadata.txn = 50
    number = harness.settle()
    bring_back(harness)
    harness.metadata.txn = 60
    *branches, mark = harness.metadata.bring_back()
    for message in branches:
        harness.feed(message)
    harness.feed(update(60, cell(1, 1, 5)))  # figures of another bucket may follow at the same txn
    assert harness.replies == []
    harness.restart()
    harness.feed(mark)
    assert harness.answered(number).rounds == 2


def test_barriers_that_come_again_do_nothing() -> None:
    harness = Harness()
    number = harness.settle()
    key_branch, directory_branch, mark = harness.metadata.bring_back()
    harness.feed(mark)
    for message in (key_branch, key_branch, key_branch):
        harness.feed(message)
    assert harness.metadata.barriers == []
    harness.feed(directory_branch)
    assert harness.metadata.barriers[0].round == 2
    for message in (key_branch, directory_branch):
        harness.feed(message)
    assert len(harness.metadata.barriers) == 1
    bring_back(harness)
    assert harness.answered(number).rounds == 2
    for message in (key_branch, directory_branch):
        harness.feed(message)
    assert len(harness.replies) == 1


def test_a_repeated_settle_is_answered_once_more_when_it_has_ended() -> None:
    harness = Harness()
    number = harness.settle()
    harness.command(Settle("barrier"), number=number)
    bring_back(harness)
    bring_back(harness)
    assert len(harness.replies) == 1
    harness.command(Settle("barrier"), number=number)
    assert harness.replies[0] == harness.replies[1]
    assert harness.metadata.barriers == []


def test_two_requests_at_once_see_each_other_s_work() -> None:
    """A service counts what it did since the last barrier, whosesoever that was."""
    harness = Harness()
    first, second = harness.settle("one"), harness.settle("two")
    bring_back(harness, (2, 0))
    bring_back(harness, (0, 0))
    for _ in range(4):
        bring_back(harness)
    assert [(reply.number, reply.rounds) for reply in harness.replies] == [(first, 3), (second, 3)]


def test_a_barrier_id_is_used_once_at_a_time() -> None:
    harness = Harness()
    harness.settle("one")
    assert harness.answered(harness.settle("one")).error == "INVALID_REQUEST"
    assert harness.answered(harness.settle("")).error == "INVALID_REQUEST"


# A corrupted chain


def corrupt(harness: Harness) -> None:
    """What a bad repair does: two snapshots behind the same one."""
    rows = queries.snapshot_chain(harness.tables)
    broken = replace(rows[2], global_previous_snapshot_id=rows[0].snapshot_id)
    work = harness.make_work(0, harness.store, RowCache())
    work.table(SNAPSHOT_INFO_TABLE).put(f"/vol/bucket/{broken.name}".encode(), broken)
    work.write()


def mend(harness: Harness) -> None:
    rows = queries.snapshot_chain(harness.tables)
    mended = replace(rows[2], global_previous_snapshot_id=rows[1].snapshot_id)
    work = harness.make_work(0, harness.store, RowCache())
    work.table(SNAPSHOT_INFO_TABLE).put(f"/vol/bucket/{mended.name}".encode(), mended)
    work.write()


def test_c12_a_corrupted_chain_stops_claims_creates_and_deletes() -> None:
    harness = Harness()
    for name in ("snap-1", "snap-2", "snap-3"):
        harness.create(name)
    corrupt(harness)
    harness.restart()
    assert "fork" in harness.service.chain_corruption
    harness.feed()
    harness.feed()
    [stop] = harness.metadata.stops
    assert "fork" in stop
    reply = harness.create("snap-4")
    assert reply.error == "INTERNAL_ERROR"
    assert "Snapshot chain is corrupted" in reply.message
    assert harness.delete("snap-1").error == "INTERNAL_ERROR"
    assert harness.answered(harness.settle()).error == "INTERNAL_ERROR"
    assert harness.names() == ["snap-1", "snap-2", "snap-3"]
    assert harness.metric("deepclean_snapshots_chain_corrupted", shard="0") == 1
    assert verify(harness.tables).corruption != ""
    mend(harness)
    harness.restart()
    harness.feed()
    assert len(harness.metadata.stops) == 1
    assert harness.create("snap-4").error == ""
    assert_linked(harness)


def test_what_was_under_way_when_the_chain_was_corrupted_ends() -> None:
    harness = Harness()
    for name in ("snap-1", "snap-2", "snap-3"):
        harness.create(name)
    create = harness.command(CreateSnapshot("vol", "bucket", "snap-4"))
    harness.delete("snap-1", is_run=False)
    request = harness.settle()
    corrupt(harness)
    harness.restart()
    assert harness.answered(create).error == "INTERNAL_ERROR"
    assert harness.answered(request).error == "INTERNAL_ERROR"
    harness.metadata.barriers.clear()
    assert harness.names(with_deleted=True) == ["snap-1", "snap-2", "snap-3"]
    assert len(harness.metadata.dropped) == 2
    mend(harness)
    harness.restart()
    harness.feed()
    harness.run()
    assert harness.names(with_deleted=True) == ["snap-2", "snap-3"]
    assert_linked(harness)


# The chain that metadata tells


def differences(harness: Harness) -> dict[str, list[str]]:
    found = verify(harness.tables).differences
    return {kind: ids for kind, ids in found.items() if ids}


def test_rows_and_metadata_s_chain_are_compared_both_ways() -> None:
    harness = Harness()
    ids = [harness.create(name).snapshot_id for name in ("snap-1", "snap-2", "snap-3")]
    assert differences(harness) == {}
    work = harness.make_work(0, harness.store, RowCache())
    work.table(SNAPSHOT_INFO_TABLE).delete(b"/vol/bucket/snap-3")
    work.write()
    harness.metadata.buckets["vol", "bucket"] = 7
    for topic, record in harness.metadata._drop(DropSnapshot(ids[0])):
        if topic is SNAPSHOT_CHAIN:
            harness.feed((topic, record))
    assert differences(harness) == {"unknown_here": [ids[2]], "dropped_there": [ids[0]]}
    harness.restart()
    harness.feed()
    assert harness.metric("deepclean_snapshots_chain_differences", shard="0", difference="unknown_here") == 1
    assert [capture.snapshot_id for capture in harness.asked if isinstance(capture, CaptureSnapshot)] == ids


def test_the_alert_sees_a_difference_that_comes_and_goes_while_the_service_runs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    logger = Mock()
    monkeypatch.setattr(service, "logger", logger)
    harness = Harness()
    ids = [harness.create(name).snapshot_id for name in ("snap-1", "snap-2")]

    def dropped_there() -> float:
        return harness.metric("deepclean_snapshots_chain_differences", shard="0", difference="dropped_there")

    for topic, record in harness.metadata._drop(DropSnapshot(ids[0])):
        if topic is SNAPSHOT_CHAIN:
            harness.feed((topic, record))
    harness.now_ms += REPORTED_MS
    harness.feed()
    assert dropped_there() == 1
    assert logger.warning.call_args.kwargs == {"shard": 0, "dropped_there": [ids[0]]}
    harness.delete("snap-1")
    harness.feed()
    assert dropped_there() == 1, "all snapshots of the shard are compared once a minute, not after each message"
    harness.now_ms += REPORTED_MS
    harness.feed()
    assert dropped_there() == 0


def test_a_pause_is_seen_in_the_number_of_unclean_snapshots() -> None:
    harness = Harness()
    harness.create("snap-1")
    assert harness.metric("deepclean_snapshots_unclean", shard="0") == 1
    paused = BucketCollection(harness.info("snap-1").bucket_id, CollectionState.PAUSED)
    harness.feed((METADATA_PROGRESS, MetadataProgress(9, CollectionChanged((paused,), 9, 0))))
    harness.now_ms += REPORTED_MS
    harness.feed()
    assert harness.metric("deepclean_snapshots_unclean", shard="0") == 0


def test_a_snapshot_that_metadata_never_captured_is_a_difference() -> None:
    harness = Harness()
    harness.command(CreateSnapshot("vol", "bucket", "snap-1"))
    [_, answer] = harness.inbox
    harness.inbox.clear()
    harness.feed(answer)
    assert differences(harness) == {}  # the marker may still come
    harness.metadata.captured.clear()
    harness.metadata.ordinals.clear()
    harness.metadata.chain_version = 0
    harness.create("snap-2")
    assert differences(harness) == {"missing_there": [harness.info("snap-1").snapshot_id]}


def test_a_missing_marker_ends_the_comparison_and_nothing_else() -> None:
    harness = Harness()
    harness.create("snap-1")
    harness.command(CreateSnapshot("vol", "bucket", "snap-2"))
    [_, answer] = harness.inbox
    harness.inbox = [answer]
    harness.run()
    assert harness.create("snap-3").error == ""
    for _ in range(2):
        verification = verify(harness.tables)
        assert (verification.is_chain_known, verification.chain_version) == (False, 1)
        harness.restart()
    assert harness.delete("snap-1").error == ""


# Faults


class FailingWork(Work):
    """Fails at the first command for metadata, when all else is done."""

    failures = 0

    def send(self, topic: Topic, record: object, key: bytes = b"") -> None:
        if topic is METADATA_COMMANDS and FailingWork.failures == 0:
            FailingWork.failures = 1
            raise ValueError("injected")
        super().send(topic, record, key)


def test_a_message_that_fails_half_way_leaves_memory_as_the_tables_are() -> None:
    harness = Harness()
    harness.create("snap-1")
    harness.feed(update(3, cell(1, 1, 30)))
    FailingWork.failures = 0
    harness.make_work = FailingWork
    commands = [
        SnapshotCommand(0, "client", 10 + number, CreateSnapshot("vol", "bucket", name))
        for number, name in enumerate(("snap-2", "snap-2"))
    ]
    harness.feed(update(4, cell(1, 1, 40)), (SNAPSHOTS_COMMANDS, commands[0]), (SNAPSHOTS_COMMANDS, commands[1]))
    assert [str(error) for error in harness.dead_lettered] == ["injected"]
    assert harness.published[-1].exclusive_bytes == 40
    harness.run()
    assert harness.replies[-1].error == ""
    assert harness.names() == ["snap-1", "snap-2"]
    assert_linked(harness)
