"""Retention in the snapshots service: what is refused, what expires when, what is answered and what is kept."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from schemas.records import (
    CreateSnapshot,
    CreateTag,
    DeleteConsumer,
    DeleteTag,
    DropSnapshot,
    ExecutionMode,
    ExpireSnapshots,
    RenameSnapshot,
    RetentionPolicy,
    SetConsumer,
    SetRetention,
    SnapshotReply,
    SpaceUpdate,
    UnsetRetention,
)
from schemas.topics import METADATA_COMMANDS, SPACE
from services.domain.refusals import CommandError, SnapshotExpiredError
from services.domain.retention import LATEST_TIME_MS
from services.runtime.loop.service import Work
from services.snapshots.reads import queries, retention_queries
from services.snapshots.retention.runs import DOUBT_MS
from services.snapshots.settings import SnapshotsSettings
from services.snapshots.state.tables import DROPPED_SNAPSHOT_TABLE, SNAPSHOT_INFO_TABLE
from services.storage.tables import RowCache
from tests.unit.snapshots_harness import START_MS, Harness, verify

MINUTE_MS = 60_000
ALL_BUT_ONE = RetentionPolicy(num_retained_min=1, time_retained_ms=0)
KEEP_TWO = RetentionPolicy(num_retained_min=2, time_retained_ms=0)


def ask(harness: Harness, body: Any, *, is_run: bool = True) -> SnapshotReply:
    """One command and its answer."""
    return harness.answered(harness.command(body), is_run=is_run)


def create(harness: Harness, *names: str, at_ms: int = 0) -> None:
    """Snapshots that are as old as can be."""
    for name in names:
        assert not ask(harness, CreateSnapshot("vol", "bucket", name, at_ms)).error


def tag(harness: Harness, snapshot: str, name: str = "keep", **fields: Any) -> SnapshotReply:
    return ask(harness, CreateTag("vol", "bucket", snapshot, name, **fields))


def expire(harness: Harness, policy: RetentionPolicy | None = ALL_BUT_ONE, now_ms: int = START_MS) -> SnapshotReply:
    return ask(harness, ExpireSnapshots("vol", "bucket", policy, now_ms))


def expired(reply: SnapshotReply) -> Sequence[str]:
    assert reply.expired is not None, reply
    return reply.expired.snapshots


def set_policy(harness: Harness, policy: RetentionPolicy) -> None:
    assert not ask(harness, SetRetention("vol", "bucket", policy)).error


def wait(harness: Harness, milliseconds: int) -> None:
    """Let time pass; the service looks at the clock once."""
    harness.now_ms += milliseconds
    harness.feed()
    harness.run()


def state(harness: Harness) -> Any:
    return retention_queries.retention_of(harness.tables, "vol", "bucket")


# Creation times


def test_a_creation_time_may_be_named() -> None:
    harness = Harness()
    create(harness, "snap-1", at_ms=12_345)
    harness.create("snap-2")
    assert harness.info("snap-1").creation_time_ms == 12_345
    assert (
        harness.info("snap-2").creation_time_ms
        == harness.metadata.captured[harness.info("snap-2").snapshot_id].creation_time_ms
    )


# Tags


def test_a_tagged_snapshot_is_not_deleted_and_the_refusal_names_its_tags() -> None:
    harness = Harness()
    create(harness, "snap-1")
    made = tag(harness, "snap-1", "audit", owner="ann", reason="year end")
    assert made.snapshot_id == harness.info("snap-1").snapshot_id
    tag(harness, "snap-1", "build-7")
    refused = harness.delete("snap-1")
    assert refused.error == "TAGGED_SNAPSHOT"
    assert "kept by tags: audit (of ann, year end), build-7; delete them" in refused.message
    assert harness.names() == ["snap-1"]
    assert not [asked for asked in harness.asked if isinstance(asked, DropSnapshot)]
    assert ask(harness, DeleteTag("vol", "bucket", "snap-1", "audit")).snapshot_id == made.snapshot_id
    assert harness.delete("snap-1").error == "TAGGED_SNAPSHOT"
    assert not ask(harness, DeleteTag("vol", "bucket", "", "build-7")).error
    assert not harness.delete("snap-1").error
    assert harness.names(with_deleted=True) == []


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (CreateTag("vol", "bucket", "never", "keep"), "FILE_NOT_FOUND"),
        (CreateTag("vol", "none", "snap-1", "keep"), "FILE_NOT_FOUND"),
        (CreateTag("vol", "bucket", "snap-2", "there"), "FILE_ALREADY_EXISTS"),
        (CreateTag("vol", "bucket", "snap-1", ""), "INVALID_REQUEST"),
        (CreateTag("vol", "bucket", "snap-1", "a/b"), "INVALID_REQUEST"),
        (CreateTag("vol", "bucket", "snap-1", "a\nb"), "INVALID_REQUEST"),
        (CreateTag("vol", "bucket", "snap-1", "a" * 129), "INVALID_REQUEST"),
        (CreateTag("vol", "bucket", "snap-1", "keep", owner="a" * 1_001), "INVALID_REQUEST"),
        (CreateTag("vol", "bucket", "snap-1", "keep", reason="a" * 1_001), "INVALID_REQUEST"),
        (CreateTag("vol", "bucket", "snap-1", "keep", time_to_live_ms=-1), "INVALID_REQUEST"),
        (CreateTag("vol", "bucket", "snap-1", "keep", time_to_live_ms=2**63 - 1), "INVALID_REQUEST"),
        (CreateSnapshot("vol", "bucket", "snap-9", 2**63 - 1), "INVALID_REQUEST"),
        (SetRetention("vol", "bucket", RetentionPolicy(tag_time_retained_ms=2**63 - 1)), "INVALID_REQUEST"),
        (DeleteTag("vol", "bucket", "snap-1", "never"), "FILE_NOT_FOUND"),
        (DeleteTag("vol", "bucket", "snap-2", "there"), "FILE_NOT_FOUND"),
        (DeleteTag("vol", "bucket", "never", "there"), "FILE_NOT_FOUND"),
        (SetConsumer("vol", "bucket", "reader", "never"), "FILE_NOT_FOUND"),
        (SetConsumer("vol", "bucket", "a/b", "snap-1"), "INVALID_REQUEST"),
        (DeleteConsumer("vol", "bucket", "never"), "FILE_NOT_FOUND"),
        (UnsetRetention("vol", "bucket"), "RETENTION_NOT_FOUND"),
        (ExpireSnapshots("vol", "bucket"), "RETENTION_NOT_FOUND"),
        (ExpireSnapshots("vol", "bucket", RetentionPolicy(num_retained_min=0)), "INVALID_REQUEST"),
        (SetRetention("vol", "bucket", RetentionPolicy(expire_limit=0)), "INVALID_REQUEST"),
        (SetRetention("vol", "no bucket", RetentionPolicy()), "INVALID_BUCKET_NAME"),
    ],
    ids=str,
)
def test_what_is_refused_changes_nothing(body: Any, code: str) -> None:
    harness = Harness()
    create(harness, "snap-1", "snap-2")
    tag(harness, "snap-1", "there")
    refused = ask(harness, body)
    assert refused.error == code
    assert refused.message
    assert [one.tag for one in retention_queries.list_tags(harness.tables, "vol", "bucket")] == ["there"]
    assert retention_queries.list_consumers(harness.tables, "vol", "bucket") == []
    assert harness.names() == ["snap-1", "snap-2"]


def test_a_tag_follows_its_snapshot_through_a_rename() -> None:
    harness = Harness(SnapshotsSettings(is_rename_allowed=True))
    create(harness, "snap-1")
    tag(harness, "snap-1")
    harness.rename("snap-1", "snap-9")
    assert harness.delete("snap-9").error == "TAGGED_SNAPSHOT"
    [listed] = retention_queries.list_tags(harness.tables, "vol", "bucket")
    assert (listed.tag, listed.snapshot) == ("keep", "snap-9")


@pytest.mark.parametrize("is_restarted", [False, True])
def test_a_tag_goes_by_itself_when_its_time_is_over(*, is_restarted: bool) -> None:
    harness = Harness()
    create(harness, "snap-1")
    tag(harness, "snap-1", time_to_live_ms=5_000)
    if is_restarted:
        harness.restart()
    wait(harness, 4_999)
    assert harness.delete("snap-1").error == "TAGGED_SNAPSHOT"
    assert harness.metric("deepclean_snapshots_tags", shard="0") == 1
    wait(harness, 1)
    assert retention_queries.list_tags(harness.tables, "vol", "bucket") == []
    assert harness.metric("deepclean_snapshots_tags", shard="0") == 0
    assert not harness.delete("snap-1").error


def test_tags_consumers_and_policies_are_bounded() -> None:
    harness = Harness(SnapshotsSettings(max_tags=1, max_consumers=1, max_policies=1))
    create(harness, "snap-1")
    tagged, read = CreateTag("vol", "bucket", "snap-1", "one"), SetConsumer("vol", "bucket", "one", "snap-1")
    kept = SetRetention("vol", "bucket", ALL_BUT_ONE)
    for first, other in (
        (tagged, replace(tagged, tag="two")),
        (read, replace(read, consumer="two")),
        (kept, replace(kept, bucket="bucket1")),
    ):
        assert not ask(harness, first).error
        refused = ask(harness, other)
        assert (refused.error, "as many as are allowed" in refused.message) == ("LIMIT_EXCEEDED", True)
    assert not ask(harness, read).error
    assert not ask(harness, kept).error
    assert not ask(harness, DeleteTag("vol", "bucket", "", "one")).error
    assert not tag(harness, "snap-1", "two").error


@pytest.mark.parametrize("snapshot_every_ms", [0, 24 * 60 * MINUTE_MS])
def test_without_room_for_an_automatic_tag_the_run_fails_and_expires_all_the_same(snapshot_every_ms: int) -> None:
    harness = Harness(SnapshotsSettings(max_tags=1))
    create(harness, "snap-1", "snap-2")
    tag(harness, "snap-2")
    set_policy(harness, replace(KEEP_TWO, tag_every_ms=MINUTE_MS, snapshot_every_ms=snapshot_every_ms))
    create(harness, "snap-3", at_ms=harness.now_ms)
    assert harness.names() == ["snap-2", "snap-3"]
    assert "LIMIT_EXCEEDED" in state(harness).failure
    ask(harness, DeleteTag("vol", "bucket", "", "keep"))
    wait(harness, MINUTE_MS)
    assert state(harness).failure == ""
    assert [one.snapshot for one in retention_queries.list_tags(harness.tables, "vol", "bucket")] == ["snap-3"]


def test_where_there_is_no_room_for_tags_those_of_a_policy_still_rotate() -> None:
    harness = Harness(SnapshotsSettings(max_tags=1))
    set_policy(harness, replace(KEEP_TWO, tag_every_ms=MINUTE_MS, tag_num_retained_max=1))
    for number in range(3):
        wait(harness, MINUTE_MS)
        create(harness, f"snap-{number}", at_ms=harness.now_ms)
        assert not state(harness).failure
    assert [one.snapshot for one in retention_queries.list_tags(harness.tables, "vol", "bucket")] == ["snap-2"]


def test_a_name_of_a_tag_is_free_again() -> None:
    harness = Harness()
    create(harness, "snap-1", "snap-2")
    tag(harness, "snap-1")
    assert not ask(harness, DeleteTag("vol", "bucket", "snap-1", "keep")).error
    assert not tag(harness, "snap-2").error
    assert not harness.delete("snap-1").error
    assert harness.delete("snap-2").error == "TAGGED_SNAPSHOT"


# Requests to expire


def test_expiry_names_what_expired_and_is_answered_when_it_is_removed() -> None:
    harness = Harness()
    create(harness, "snap-1", "snap-2", "snap-3")
    ids = tuple(harness.info(name).snapshot_id for name in ("snap-1", "snap-2"))
    number = harness.command(ExpireSnapshots("vol", "bucket", ALL_BUT_ONE, START_MS))
    assert harness.names() == ["snap-3"]
    assert harness.names(with_deleted=True) == ["snap-1", "snap-2", "snap-3"]
    assert not [reply for reply in harness.replies if reply.number == number]
    harness.feed(harness.inbox.pop(0), harness.inbox.pop(0))  # one of the two is dropped
    assert not [reply for reply in harness.replies if reply.number == number]
    reply = harness.answered(number)
    assert reply.expired is not None
    assert (reply.expired.snapshots, reply.expired.snapshot_ids) == (("snap-1", "snap-2"), ids)
    assert harness.names(with_deleted=True) == ["snap-3"]
    assert harness.metric("deepclean_snapshots_expired_total", trigger="request") == 2
    assert verify(harness.tables).corruption == ""


def test_an_asynchronous_request_is_answered_when_what_goes_is_marked() -> None:
    harness = Harness()
    create(harness, "snap-1", "snap-2")
    policy = replace(ALL_BUT_ONE, execution_mode=ExecutionMode.ASYNC)
    reply = ask(harness, ExpireSnapshots("vol", "bucket", policy, START_MS), is_run=False)
    assert expired(reply) == ("snap-1",)
    assert harness.names(with_deleted=True) == ["snap-1", "snap-2"]
    assert harness.names() == ["snap-2"]


def test_when_nothing_goes_the_answer_comes_at_once() -> None:
    harness = Harness()
    create(harness, "snap-1")
    assert expired(ask(harness, ExpireSnapshots("vol", "bucket", ALL_BUT_ONE, START_MS), is_run=False)) == ()
    assert expired(ask(harness, ExpireSnapshots("vol", "none", ALL_BUT_ONE), is_run=False)) == ()


def test_figures_as_large_as_can_be_are_carried_out() -> None:
    harness = Harness()
    most = 2**63 - 1
    set_policy(
        harness, RetentionPolicy(1, most, most, most, ExecutionMode.SYNC, most, most, most, most, LATEST_TIME_MS)
    )
    create(harness, "snap-1", "snap-2", at_ms=LATEST_TIME_MS)
    wait(harness, 10 * MINUTE_MS)
    assert state(harness).last_run_ms == harness.now_ms
    assert state(harness).failure == ""
    assert expired(expire(harness, None, most)) == ()
    assert harness.names() == ["snap-1", "snap-2"]


def test_two_requests_wait_each_for_its_own() -> None:
    harness = Harness()
    create(harness, "snap-1", "snap-2", "snap-3")
    first = harness.command(ExpireSnapshots("vol", "bucket", KEEP_TWO, START_MS))
    second = harness.command(ExpireSnapshots("vol", "bucket", ALL_BUT_ONE, START_MS))
    harness.restart()
    harness.run()
    answers = {reply.number: expired(reply) for reply in harness.replies if reply.number in (first, second)}
    assert answers == {first: ("snap-1",), second: ("snap-2",)}


def test_requests_without_a_number_take_each_other_nothing() -> None:
    harness = Harness()
    create(harness, "snap-1", "snap-2", "snap-3")
    for policy in (KEEP_TWO, ALL_BUT_ONE):
        harness.command(ExpireSnapshots("vol", "bucket", policy, START_MS), number=0)
    harness.run()
    assert harness.names() == ["snap-3"]
    assert not harness.dead_lettered


def test_a_repeat_waits_too_and_then_gets_the_first_answer() -> None:
    harness = Harness()
    create(harness, "snap-1", "snap-2", "snap-3")
    body = ExpireSnapshots("vol", "bucket", KEEP_TWO, START_MS)
    number = harness.command(body)
    harness.restart()
    harness.command(body, number=number)
    first = harness.answered(number)
    harness.command(replace(body, policy=ALL_BUT_ONE), number=number)
    assert [reply for reply in harness.replies if reply.number == number] == [first, first]
    assert harness.names() == ["snap-2", "snap-3"]


def test_ages_are_counted_from_the_log_unless_a_time_is_given() -> None:
    harness = Harness()
    create(harness, "snap-1", "snap-2", at_ms=START_MS)
    policy = RetentionPolicy(num_retained_min=1, time_retained_ms=10)
    assert expired(expire(harness, policy, now_ms=-1)) == ()
    assert expired(expire(harness, policy, now_ms=START_MS + 10)) == ()
    harness.now_ms += 11
    assert expired(expire(harness, policy, now_ms=-1)) == ("snap-1",)


def test_tagged_snapshots_and_those_still_to_be_read_stay() -> None:
    harness = Harness()
    create(harness, "snap-1", "snap-2", "snap-3", "snap-4", "snap-5")
    tag(harness, "snap-1")
    assert not ask(harness, SetConsumer("vol", "bucket", "reader", "snap-3")).error
    assert expired(expire(harness)) == ("snap-2",)
    assert not ask(harness, SetConsumer("vol", "bucket", "reader", "snap-3", is_behind=True)).error
    [reader] = retention_queries.list_consumers(harness.tables, "vol", "bucket")
    assert reader.next_snapshot == "snap-4"
    assert expired(expire(harness)) == ("snap-3",)
    assert not ask(harness, SetConsumer("vol", "bucket", "reader", "snap-5", is_behind=True)).error
    [reader] = retention_queries.list_consumers(harness.tables, "vol", "bucket")
    assert reader.next_snapshot == ""
    assert expired(expire(harness)) == ("snap-4",)
    assert harness.names() == ["snap-1", "snap-5"]
    assert not ask(harness, DeleteConsumer("vol", "bucket", "reader")).error


def test_a_consumer_protects_its_place_though_its_snapshot_was_deleted_by_hand() -> None:
    harness = Harness()
    create(harness, "snap-1", "snap-2", "snap-3", "snap-4")
    ask(harness, SetConsumer("vol", "bucket", "reader", "snap-2"))
    assert not harness.delete("snap-2").error
    assert expired(expire(harness)) == ("snap-1",)
    assert harness.names() == ["snap-3", "snap-4"]


def test_a_consumer_that_is_not_heard_of_is_dropped_and_holds_nothing() -> None:
    harness = Harness()
    create(harness, "snap-1", "snap-2")
    ask(harness, SetConsumer("vol", "bucket", "reader", "snap-1"))
    patient = replace(ALL_BUT_ONE, consumer_expiration_ms=1_000)
    assert expired(expire(harness, patient, START_MS + 1_000)) == ()
    assert expired(expire(harness, patient, START_MS + 1_001)) == ("snap-1",)
    assert retention_queries.list_consumers(harness.tables, "vol", "bucket") == []
    assert harness.metric("deepclean_snapshots_consumers", shard="0") == 0


def test_a_consumer_of_an_earlier_bucket_of_the_same_name_holds_nothing() -> None:
    harness = Harness()
    create(harness, "snap-1")
    ask(harness, SetConsumer("vol", "bucket", "reader", "snap-1"))
    harness.delete("snap-1")
    harness.metadata.buckets["vol", "bucket"] = 9
    create(harness, "snap-2", "snap-3")
    assert expired(expire(harness)) == ("snap-2",)
    assert retention_queries.list_consumers(harness.tables, "vol", "bucket") == []


def test_a_snapshot_that_is_being_made_or_deleted_is_not_counted() -> None:
    harness = Harness()
    create(harness, "snap-1", "snap-2", "snap-3")
    harness.delete("snap-1", is_run=False)
    harness.command(CreateSnapshot("vol", "bucket", "snap-4", 0))
    later, harness.inbox = harness.inbox, []
    number = harness.command(ExpireSnapshots("vol", "bucket", KEEP_TWO, START_MS))
    assert expired(harness.answered(number)) == ()
    harness.inbox += later
    harness.run()
    assert harness.names() == ["snap-2", "snap-3", "snap-4"]


def test_a_preview_is_what_then_happens() -> None:
    harness = Harness()
    create(harness, "snap-1", "snap-2", "snap-3", "snap-4")
    tag(harness, "snap-2", "audit")
    before = queries.list_snapshots(harness.tables, "vol", "bucket")
    shown = retention_queries.preview(harness.tables, "vol", "bucket", START_MS, KEEP_TWO)
    assert queries.list_snapshots(harness.tables, "vol", "bucket") == before
    assert [one.snapshot for one in shown.expired] == ["snap-1"]
    held = {one.snapshot: [(reason.reason, reason.names) for reason in one.reasons] for one in shown.kept}
    assert held == {
        "snap-2": [("TAG", ("audit",))],
        "snap-3": [("MINIMUM", ())],
        "snap-4": [("MINIMUM", ()), ("AGE", ())],
    }
    assert tuple(one.snapshot for one in shown.expired) == expired(expire(harness, KEEP_TWO))
    with pytest.raises(CommandError, match="no retention policy"):
        retention_queries.preview(harness.tables, "vol", "bucket", START_MS)


def break_chain(harness: Harness) -> None:
    """As somebody's hand in the tables would."""
    row = harness.info(harness.names()[-1])
    work = Work(0, harness.store, RowCache())
    key = f"/vol/bucket/{row.name}".encode()
    work.table(SNAPSHOT_INFO_TABLE).put(key, replace(row, global_previous_snapshot_id="nobody"))
    work.write()
    harness.restart()


def test_with_a_corrupted_chain_nothing_expires_and_waiting_requests_are_answered() -> None:
    harness = Harness()
    create(harness, "snap-1", "snap-2", "snap-3")
    number = harness.command(ExpireSnapshots("vol", "bucket", KEEP_TWO, START_MS))
    break_chain(harness)
    harness.feed()
    [reply] = [reply for reply in harness.replies if reply.number == number]
    assert reply.error == "INTERNAL_ERROR"
    assert expire(harness).error == "INTERNAL_ERROR"
    assert harness.names() == ["snap-2", "snap-3"]


# Policies


def test_without_a_policy_nothing_expires() -> None:
    harness = Harness()
    create(harness, "snap-1", "snap-2")
    wait(harness, 365 * 24 * 60 * MINUTE_MS)
    assert harness.names() == ["snap-1", "snap-2"]


def test_a_synchronous_policy_runs_with_the_take() -> None:
    harness = Harness()
    set_policy(harness, KEEP_TWO)
    create(harness, "snap-1", "snap-2")
    number = harness.command(CreateSnapshot("vol", "bucket", "snap-3", 0))
    harness.feed(*harness.inbox)
    assert [reply.error for reply in harness.replies if reply.number == number] == [""]
    assert harness.names() == ["snap-2", "snap-3"]
    assert harness.metric("deepclean_snapshots_expired_total", trigger="create") == 1
    assert state(harness).last_expired == 1
    assert harness.metric("deepclean_snapshots_retention_policies", shard="0") == 1


def test_an_asynchronous_policy_runs_by_the_clock_after_the_take() -> None:
    harness = Harness()
    set_policy(harness, replace(KEEP_TWO, execution_mode=ExecutionMode.ASYNC))
    create(harness, "snap-1", "snap-2", "snap-3")
    assert harness.names() == ["snap-2", "snap-3"]
    assert harness.metric("deepclean_snapshots_expired_total", trigger="create") == 0
    assert harness.metric("deepclean_snapshots_expired_total", trigger="clock") == 1


@pytest.mark.parametrize("is_restarted", [False, True])
def test_snapshots_age_while_none_is_created(*, is_restarted: bool) -> None:
    harness = Harness()
    set_policy(harness, RetentionPolicy(num_retained_min=1, time_retained_ms=10 * MINUTE_MS))
    create(harness, "snap-1", "snap-2", at_ms=START_MS)
    if is_restarted:
        harness.restart()
    wait(harness, 10 * MINUTE_MS)
    assert harness.names() == ["snap-1", "snap-2"]
    wait(harness, MINUTE_MS - 1)
    assert harness.names() == ["snap-1", "snap-2"]  # the clock is looked at, but a run is due once a minute only
    wait(harness, 1)
    assert harness.names() == ["snap-2"]


def test_setting_a_policy_leaves_a_minute_to_look_at_what_it_would_do() -> None:
    harness = Harness()
    create(harness, "snap-1", "snap-2")
    set_policy(harness, ALL_BUT_ONE)
    wait(harness, MINUTE_MS - 1)
    assert harness.names() == ["snap-1", "snap-2"]
    wait(harness, 1)
    assert harness.names() == ["snap-2"]


def test_a_policy_is_replaced_and_unset() -> None:
    harness = Harness()
    set_policy(harness, KEEP_TWO)
    set_policy(harness, RetentionPolicy(num_retained_min=3))
    assert state(harness).policy.num_retained_min == 3
    assert not ask(harness, UnsetRetention("vol", "bucket")).error
    with pytest.raises(CommandError, match="deepclean retention set"):
        state(harness)
    create(harness, "snap-1", "snap-2", "snap-3", "snap-4")
    wait(harness, 60 * MINUTE_MS)
    assert len(harness.names()) == 4


def test_a_request_without_a_policy_uses_that_of_the_bucket() -> None:
    harness = Harness()
    create(harness, "snap-1", "snap-2", "snap-3")
    set_policy(harness, RetentionPolicy(num_retained_min=2, time_retained_ms=10**13))
    assert expired(expire(harness, None, START_MS)) == ()
    harness.now_ms += 5
    assert expired(expire(harness, None, START_MS + 10**13)) == ("snap-1",)
    assert (state(harness).last_run_ms, state(harness).last_expired) == (harness.now_ms, 1)
    harness.now_ms += 5
    assert expired(expire(harness, KEEP_TWO)) == ()
    assert (state(harness).last_run_ms, state(harness).last_expired) == (harness.now_ms - 5, 1)


def test_a_policy_affects_only_its_own_bucket() -> None:
    harness = Harness()
    harness.metadata.buckets["vol", "bucket1"] = 8
    set_policy(harness, ALL_BUT_ONE)
    for name in ("snap-1", "snap-2"):
        ask(harness, CreateSnapshot("vol", "bucket1", name, 0))
    create(harness, "snap-1", "snap-2")
    assert harness.names() == ["snap-2"]
    assert harness.names("bucket1") == ["snap-1", "snap-2"]


# Buckets that are deleted


def deleted(harness: Harness, bucket_id: int, at_ms: int) -> None:
    """What metadata sends when ``vol/bucket`` is deleted."""
    harness.feed((SPACE, SpaceUpdate(harness.metadata.txn, bucket_id, (), (), 0, 0, "vol/bucket", at_ms)))


def has_policy(harness: Harness) -> bool:
    return harness.metric("deepclean_snapshots_retention_policies", shard="0") == 1


@pytest.mark.parametrize("is_restarted", [False, True])
def test_what_is_kept_of_a_bucket_by_its_name_goes_with_the_bucket(*, is_restarted: bool) -> None:
    harness = Harness()
    harness.metadata.buckets["vol", "other"] = 8
    set_policy(harness, ALL_BUT_ONE)
    assert not ask(harness, SetRetention("vol", "other", ALL_BUT_ONE)).error
    create(harness, "snap-1")
    ask(harness, CreateSnapshot("vol", "other", "snap-1"))
    for bucket in ("bucket", "other"):
        ask(harness, SetConsumer("vol", bucket, "reader", "snap-1"))
    harness.delete("snap-1")
    deleted(harness, 7, harness.now_ms + DOUBT_MS + 1)
    if is_restarted:
        harness.restart()
        harness.feed()
    with pytest.raises(CommandError, match="has no retention policy"):
        state(harness)
    assert retention_queries.list_consumers(harness.tables, "vol", "bucket") == []
    assert retention_queries.retention_of(harness.tables, "vol", "other").policy == ALL_BUT_ONE
    assert len(retention_queries.list_consumers(harness.tables, "vol", "other")) == 1


def test_a_bucket_made_again_keeps_the_policy_that_was_set_for_it_whenever_the_news_comes() -> None:
    harness = Harness()
    set_policy(harness, ALL_BUT_ONE)
    deleted_ms = harness.now_ms + 10 * DOUBT_MS
    harness.now_ms = deleted_ms + 1
    set_policy(harness, ALL_BUT_ONE)
    create(harness, "snap-1")
    ask(harness, SetConsumer("vol", "bucket", "reader", "snap-1"))
    for _ in range(2):  # late, and again
        deleted(harness, 6, deleted_ms)
        assert has_policy(harness)
        assert len(retention_queries.list_consumers(harness.tables, "vol", "bucket")) == 1


@pytest.mark.parametrize(("apart_ms", "is_kept"), [(-1, True), (DOUBT_MS, True), (DOUBT_MS + 1, False)])
def test_a_policy_set_at_about_the_time_of_the_deletion_stays(apart_ms: int, *, is_kept: bool) -> None:
    harness = Harness()
    set_policy(harness, ALL_BUT_ONE)
    deleted(harness, 7, state(harness).set_ms + apart_ms)
    assert has_policy(harness) is is_kept


# What is made by the clock


def test_a_snapshot_is_created_once_in_each_period() -> None:
    harness = Harness()
    set_policy(harness, RetentionPolicy(snapshot_every_ms=60 * MINUTE_MS))
    next_ms = (harness.now_ms // (60 * MINUTE_MS) + 1) * 60 * MINUTE_MS
    wait(harness, next_ms - harness.now_ms - 1)
    assert harness.names() == []
    wait(harness, 1)
    assert harness.names() == ["auto-20231114t230000z"]
    harness.restart()
    wait(harness, 59 * MINUTE_MS)
    assert len(harness.names()) == 1
    wait(harness, 150 * MINUTE_MS)  # two periods without anybody to look at the clock: one snapshot
    assert harness.names() == ["auto-20231114t230000z", "auto-20231115t020000z"]


@pytest.mark.parametrize("is_renamed", [False, True])
def test_a_period_that_begins_twice_has_two_snapshots(*, is_renamed: bool) -> None:
    """With one id metadata would answer with the first one, which may be dropped, or be there under another name."""
    harness = Harness(SnapshotsSettings(is_rename_allowed=True))
    hourly, hour_ms = RetentionPolicy(snapshot_every_ms=60 * MINUTE_MS), 60 * MINUTE_MS
    set_policy(harness, hourly)
    wait(harness, hour_ms)
    (name,) = harness.names()
    if is_renamed:
        assert not ask(harness, RenameSnapshot("vol", "bucket", name, "kept")).error
    else:
        assert not harness.delete(name).error
    harness.now_ms -= hour_ms - 1  # the clock was ahead
    set_policy(harness, hourly)
    wait(harness, hour_ms - 1)
    assert harness.names() == (["kept", name] if is_renamed else [name])
    listed = {row.snapshot_id for row in harness.published if row.name == name}
    assert len(listed) == 2
    assert len(harness.metadata.captured) == 2


def test_a_refused_automatic_snapshot_is_kept_reported_once_and_breaks_nothing() -> None:
    harness = Harness()
    set_policy(harness, RetentionPolicy(snapshot_every_ms=60 * MINUTE_MS))
    del harness.metadata.buckets["vol", "bucket"]
    wait(harness, 60 * MINUTE_MS)
    assert "BUCKET_NOT_FOUND" in state(harness).failure
    assert harness.metric("deepclean_snapshots_retention_failing", shard="0") == 1
    assert harness.metric("deepclean_snapshots_retention_runs_total", outcome="failed") == 1
    harness.restart()
    reported = expire(harness, None)
    assert reported.error == ""
    assert reported.expired is not None
    assert "BUCKET_NOT_FOUND" in reported.expired.previous_failure
    again = expire(harness, None)
    assert again.expired is not None
    assert again.expired.previous_failure == ""
    assert harness.metric("deepclean_snapshots_retention_failing", shard="0") == 0


def test_a_failure_of_an_automatic_snapshot_is_shown_until_the_next_one_is_due() -> None:
    harness = Harness()
    set_policy(harness, RetentionPolicy(snapshot_every_ms=60 * MINUTE_MS))
    create(harness, "auto-20231114t230000z")
    wait(harness, 60 * MINUTE_MS)
    assert "FILE_ALREADY_EXISTS" in state(harness).failure
    wait(harness, 40 * MINUTE_MS)
    assert "FILE_ALREADY_EXISTS" in state(harness).failure
    wait(harness, 10 * MINUTE_MS)
    assert state(harness).failure == ""
    assert harness.names() == ["auto-20231114t230000z", "auto-20231115t000000z"]


def test_the_first_snapshot_of_each_period_is_tagged_and_old_tags_go() -> None:
    harness = Harness()
    hour_ms = 60 * MINUTE_MS
    policy = RetentionPolicy(
        num_retained_min=1, time_retained_ms=0, tag_every_ms=hour_ms, tag_num_retained_max=2, tag_time_retained_ms=0
    )
    set_policy(harness, policy)
    for hour in range(1, 4):
        for minute in (5, 10):
            harness.now_ms = START_MS + hour * hour_ms + minute * MINUTE_MS
            create(harness, f"snap-{hour}-{minute}", at_ms=harness.now_ms)
    tags = retention_queries.list_tags(harness.tables, "vol", "bucket")
    assert [(one.snapshot, one.is_automatic) for one in tags] == [("snap-2-5", True), ("snap-3-5", True)]
    wait(harness, MINUTE_MS)
    assert harness.names() == ["snap-2-5", "snap-3-5", "snap-3-10"]


def test_an_automatic_tag_has_the_time_to_live_of_its_policy() -> None:
    harness = Harness()
    set_policy(harness, RetentionPolicy(tag_every_ms=60 * MINUTE_MS, tag_time_retained_ms=5_000))
    create(harness, "snap-1", at_ms=harness.now_ms)
    [made] = retention_queries.list_tags(harness.tables, "vol", "bucket")
    assert made.expiry_time_ms == harness.now_ms + 5_000
    wait(harness, 5_000)
    assert retention_queries.list_tags(harness.tables, "vol", "bucket") == []
    wait(harness, MINUTE_MS)
    assert retention_queries.list_tags(harness.tables, "vol", "bucket") == []  # its period has had its tag


# Settling


def test_what_the_clock_does_is_work_that_settling_waits_for() -> None:
    harness = Harness()
    set_policy(harness, RetentionPolicy(num_retained_min=1, time_retained_ms=MINUTE_MS))
    create(harness, "snap-1", "snap-2", at_ms=START_MS)
    for name in harness.names():
        harness.flag(harness.info(name).snapshot_id, 2)
    number = harness.settle()
    harness.inbox += harness.metadata.bring_back()
    harness.now_ms += 5 * MINUTE_MS  # the round under way sees the expiry
    harness.run()
    for _ in range(10):
        harness.flag(harness.info("snap-2").snapshot_id, harness.metadata.chain_version)
        if harness.metadata.barriers:
            harness.inbox += harness.metadata.bring_back()
        harness.run()
    [reply] = [reply for reply in harness.replies if reply.number == number]
    assert reply.rounds > 2
    assert harness.names(with_deleted=True) == ["snap-2"]


# Readers of what has gone


def test_a_dropped_snapshot_is_told_apart_from_one_that_never_existed() -> None:
    harness = Harness()
    create(harness, "snap-1", "snap-2", "snap-3")
    expire(harness, KEEP_TWO)
    with pytest.raises(SnapshotExpiredError) as caught:
        harness.info("snap-1")
    assert (caught.value.code, caught.value.next_snapshot) == ("SNAPSHOT_EXPIRED", "snap-2")
    harness.delete("snap-3")
    with pytest.raises(SnapshotExpiredError, match="no later snapshot exists"):
        harness.info("snap-3")
    with pytest.raises(CommandError, match="there is no snapshot") as never:
        harness.info("snap-9")
    assert never.value.code == "FILE_NOT_FOUND"
    assert ask(harness, CreateTag("vol", "bucket", "snap-1", "keep")).error == "FILE_NOT_FOUND"
    create(harness, "snap-1")
    assert harness.info("snap-1").ordinal == 4


@pytest.mark.parametrize("is_restarted", [False, True])
def test_only_so_many_dropped_snapshots_are_remembered(*, is_restarted: bool) -> None:
    harness = Harness(SnapshotsSettings(max_dropped_snapshots=2))
    for number in range(1, 5):
        harness.now_ms += 1
        create(harness, f"snap-{number}")
        if is_restarted:
            harness.restart()
        harness.delete(f"snap-{number}")
    codes = []
    for number in range(1, 5):
        with pytest.raises(CommandError) as caught:
            harness.info(f"snap-{number}")
        codes.append(str(caught.value.code))
    assert codes == ["FILE_NOT_FOUND"] * 2 + ["SNAPSHOT_EXPIRED"] * 2
    assert len(list(harness.tables.table(DROPPED_SNAPSHOT_TABLE).scan(b"", b"\xff"))) == 2


def test_a_drop_goes_out_only_after_the_snapshot_is_unreadable() -> None:
    """Both are one write; so whoever sees the drop in the log finds the snapshot marked."""
    harness = Harness()
    create(harness, "snap-1", "snap-2")
    harness.command(ExpireSnapshots("vol", "bucket", ALL_BUT_ONE, START_MS))
    sent = [record.body for topic, record in harness.sent if topic == METADATA_COMMANDS.name]
    assert isinstance(sent[-1], DropSnapshot)
    assert queries.snapshot_info(harness.tables, "vol", "bucket", "snap-1").status == "SNAPSHOT_DELETED"
