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
from services.snapshots.state.tables import GONE_TABLE, SNAPSHOT_INFO_TABLE
from services.storage.tables import RowCache
from tests.unit.snapshots_desk import START_MS, Desk

MINUTE_MS = 60_000
ALL_BUT_ONE = RetentionPolicy(num_retained_min=1, time_retained_ms=0)
KEEP_TWO = RetentionPolicy(num_retained_min=2, time_retained_ms=0)


def ask(desk: Desk, body: Any, *, is_run: bool = True) -> SnapshotReply:
    """One command and its answer."""
    return desk.answered(desk.command(body), is_run=is_run)


def take(desk: Desk, *names: str, at_ms: int = 0) -> None:
    """Snapshots that are as old as can be."""
    for name in names:
        assert not ask(desk, CreateSnapshot("vol", "bucket", name, at_ms)).error


def tag(desk: Desk, snapshot: str, name: str = "keep", **fields: Any) -> SnapshotReply:
    return ask(desk, CreateTag("vol", "bucket", snapshot, name, **fields))


def expire(desk: Desk, policy: RetentionPolicy | None = ALL_BUT_ONE, now_ms: int = START_MS) -> SnapshotReply:
    return ask(desk, ExpireSnapshots("vol", "bucket", policy, now_ms))


def expired(reply: SnapshotReply) -> Sequence[str]:
    assert reply.expired is not None, reply
    return reply.expired.snapshots


def set_policy(desk: Desk, policy: RetentionPolicy) -> None:
    assert not ask(desk, SetRetention("vol", "bucket", policy)).error


def wait(desk: Desk, milliseconds: int) -> None:
    """Let time pass; the service looks at the clock once."""
    desk.now_ms += milliseconds
    desk.feed()
    desk.run()


def state(desk: Desk) -> Any:
    return retention_queries.retention_of(desk.tables, "vol", "bucket")


# Creation times


def test_a_creation_time_may_be_named() -> None:
    desk = Desk()
    take(desk, "snap-1", at_ms=12_345)
    desk.create("snap-2")
    assert desk.info("snap-1").creation_time_ms == 12_345
    assert desk.info("snap-2").creation_time_ms == desk.metadata.taken[desk.info("snap-2").snapshot_id].creation_time_ms


# Tags


def test_a_tagged_snapshot_is_not_deleted_and_the_refusal_names_its_tags() -> None:
    desk = Desk()
    take(desk, "snap-1")
    made = tag(desk, "snap-1", "audit", owner="ann", reason="year end")
    assert made.snapshot_id == desk.info("snap-1").snapshot_id
    tag(desk, "snap-1", "build-7")
    refused = desk.delete("snap-1")
    assert refused.error == "TAGGED_SNAPSHOT"
    assert "tags audit (of ann, year end), build-7: delete them" in refused.message
    assert desk.names() == ["snap-1"]
    assert not [asked for asked in desk.asked if isinstance(asked, DropSnapshot)]
    assert ask(desk, DeleteTag("vol", "bucket", "snap-1", "audit")).snapshot_id == made.snapshot_id
    assert desk.delete("snap-1").error == "TAGGED_SNAPSHOT"
    assert not ask(desk, DeleteTag("vol", "bucket", "", "build-7")).error
    assert not desk.delete("snap-1").error
    assert desk.names(with_deleted=True) == []


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
    desk = Desk()
    take(desk, "snap-1", "snap-2")
    tag(desk, "snap-1", "there")
    refused = ask(desk, body)
    assert refused.error == code
    assert refused.message
    assert [one.tag for one in retention_queries.list_tags(desk.tables, "vol", "bucket")] == ["there"]
    assert retention_queries.list_consumers(desk.tables, "vol", "bucket") == []
    assert desk.names() == ["snap-1", "snap-2"]


def test_a_tag_follows_its_snapshot_through_a_rename() -> None:
    desk = Desk(SnapshotsSettings(is_rename_allowed=True))
    take(desk, "snap-1")
    tag(desk, "snap-1")
    desk.rename("snap-1", "snap-9")
    assert desk.delete("snap-9").error == "TAGGED_SNAPSHOT"
    [listed] = retention_queries.list_tags(desk.tables, "vol", "bucket")
    assert (listed.tag, listed.snapshot) == ("keep", "snap-9")


@pytest.mark.parametrize("is_restarted", [False, True])
def test_a_tag_goes_by_itself_when_its_time_is_over(*, is_restarted: bool) -> None:
    desk = Desk()
    take(desk, "snap-1")
    tag(desk, "snap-1", time_to_live_ms=5_000)
    if is_restarted:
        desk.restart()
    wait(desk, 4_999)
    assert desk.delete("snap-1").error == "TAGGED_SNAPSHOT"
    assert desk.metric("deepclean_snapshots_tags", shard="0") == 1
    wait(desk, 1)
    assert retention_queries.list_tags(desk.tables, "vol", "bucket") == []
    assert desk.metric("deepclean_snapshots_tags", shard="0") == 0
    assert not desk.delete("snap-1").error


def test_tags_consumers_and_policies_are_bounded() -> None:
    desk = Desk(SnapshotsSettings(max_tags=1, max_consumers=1, max_policies=1))
    take(desk, "snap-1")
    tagged, read = CreateTag("vol", "bucket", "snap-1", "one"), SetConsumer("vol", "bucket", "one", "snap-1")
    kept = SetRetention("vol", "bucket", ALL_BUT_ONE)
    for first, other in (
        (tagged, replace(tagged, tag="two")),
        (read, replace(read, consumer="two")),
        (kept, replace(kept, bucket="bucket1")),
    ):
        assert not ask(desk, first).error
        refused = ask(desk, other)
        assert (refused.error, "as many as are allowed" in refused.message) == ("LIMIT_EXCEEDED", True)
    assert not ask(desk, read).error
    assert not ask(desk, kept).error
    assert not ask(desk, DeleteTag("vol", "bucket", "", "one")).error
    assert not tag(desk, "snap-1", "two").error


@pytest.mark.parametrize("snapshot_every_ms", [0, 24 * 60 * MINUTE_MS])
def test_without_room_for_an_automatic_tag_the_run_fails_and_expires_all_the_same(snapshot_every_ms: int) -> None:
    desk = Desk(SnapshotsSettings(max_tags=1))
    take(desk, "snap-1", "snap-2")
    tag(desk, "snap-2")
    set_policy(desk, replace(KEEP_TWO, tag_every_ms=MINUTE_MS, snapshot_every_ms=snapshot_every_ms))
    take(desk, "snap-3", at_ms=desk.now_ms)
    assert desk.names() == ["snap-2", "snap-3"]
    assert "LIMIT_EXCEEDED" in state(desk).failure
    ask(desk, DeleteTag("vol", "bucket", "", "keep"))
    wait(desk, MINUTE_MS)
    assert state(desk).failure == ""
    assert [one.snapshot for one in retention_queries.list_tags(desk.tables, "vol", "bucket")] == ["snap-3"]


def test_a_name_of_a_tag_is_free_again() -> None:
    desk = Desk()
    take(desk, "snap-1", "snap-2")
    tag(desk, "snap-1")
    assert not ask(desk, DeleteTag("vol", "bucket", "snap-1", "keep")).error
    assert not tag(desk, "snap-2").error
    assert not desk.delete("snap-1").error
    assert desk.delete("snap-2").error == "TAGGED_SNAPSHOT"


# Requests to expire


def test_expiry_names_what_went_and_is_answered_when_it_is_gone() -> None:
    desk = Desk()
    take(desk, "snap-1", "snap-2", "snap-3")
    ids = tuple(desk.info(name).snapshot_id for name in ("snap-1", "snap-2"))
    number = desk.command(ExpireSnapshots("vol", "bucket", ALL_BUT_ONE, START_MS))
    assert desk.names() == ["snap-3"]
    assert desk.names(with_deleted=True) == ["snap-1", "snap-2", "snap-3"]
    assert not [reply for reply in desk.replies if reply.number == number]
    desk.feed(desk.inbox.pop(0), desk.inbox.pop(0))  # one of the two is dropped
    assert not [reply for reply in desk.replies if reply.number == number]
    reply = desk.answered(number)
    assert reply.expired is not None
    assert (reply.expired.snapshots, reply.expired.snapshot_ids) == (("snap-1", "snap-2"), ids)
    assert desk.names(with_deleted=True) == ["snap-3"]
    assert desk.metric("deepclean_snapshots_expired_total", trigger="request") == 2
    assert queries.verify(desk.tables).corruption == ""


def test_an_asynchronous_request_is_answered_when_what_goes_is_marked() -> None:
    desk = Desk()
    take(desk, "snap-1", "snap-2")
    policy = replace(ALL_BUT_ONE, execution_mode=ExecutionMode.ASYNC)
    reply = ask(desk, ExpireSnapshots("vol", "bucket", policy, START_MS), is_run=False)
    assert expired(reply) == ("snap-1",)
    assert desk.names(with_deleted=True) == ["snap-1", "snap-2"]
    assert desk.names() == ["snap-2"]


def test_when_nothing_goes_the_answer_comes_at_once() -> None:
    desk = Desk()
    take(desk, "snap-1")
    assert expired(ask(desk, ExpireSnapshots("vol", "bucket", ALL_BUT_ONE, START_MS), is_run=False)) == ()
    assert expired(ask(desk, ExpireSnapshots("vol", "none", ALL_BUT_ONE), is_run=False)) == ()


def test_figures_as_large_as_can_be_are_carried_out() -> None:
    desk = Desk()
    most = 2**63 - 1
    set_policy(desk, RetentionPolicy(1, most, most, most, ExecutionMode.SYNC, most, most, most, most, LATEST_TIME_MS))
    take(desk, "snap-1", "snap-2", at_ms=LATEST_TIME_MS)
    wait(desk, 10 * MINUTE_MS)
    assert state(desk).last_run_ms == desk.now_ms
    assert state(desk).failure == ""
    assert expired(expire(desk, None, most)) == ()
    assert desk.names() == ["snap-1", "snap-2"]


def test_two_requests_wait_each_for_its_own() -> None:
    desk = Desk()
    take(desk, "snap-1", "snap-2", "snap-3")
    first = desk.command(ExpireSnapshots("vol", "bucket", KEEP_TWO, START_MS))
    second = desk.command(ExpireSnapshots("vol", "bucket", ALL_BUT_ONE, START_MS))
    desk.restart()
    desk.run()
    answers = {reply.number: expired(reply) for reply in desk.replies if reply.number in (first, second)}
    assert answers == {first: ("snap-1",), second: ("snap-2",)}


def test_a_repeat_waits_too_and_then_gets_the_first_answer() -> None:
    desk = Desk()
    take(desk, "snap-1", "snap-2", "snap-3")
    body = ExpireSnapshots("vol", "bucket", KEEP_TWO, START_MS)
    number = desk.command(body)
    desk.restart()
    desk.command(body, number=number)
    first = desk.answered(number)
    desk.command(replace(body, policy=ALL_BUT_ONE), number=number)
    assert [reply for reply in desk.replies if reply.number == number] == [first, first]
    assert desk.names() == ["snap-2", "snap-3"]


def test_ages_are_counted_from_the_log_unless_a_time_is_given() -> None:
    desk = Desk()
    take(desk, "snap-1", "snap-2", at_ms=START_MS)
    policy = RetentionPolicy(num_retained_min=1, time_retained_ms=10)
    assert expired(expire(desk, policy, now_ms=-1)) == ()
    assert expired(expire(desk, policy, now_ms=START_MS + 10)) == ()
    desk.now_ms += 11
    assert expired(expire(desk, policy, now_ms=-1)) == ("snap-1",)


def test_tagged_snapshots_and_those_still_to_be_read_stay() -> None:
    desk = Desk()
    take(desk, "snap-1", "snap-2", "snap-3", "snap-4", "snap-5")
    tag(desk, "snap-1")
    assert not ask(desk, SetConsumer("vol", "bucket", "reader", "snap-3")).error
    assert expired(expire(desk)) == ("snap-2",)
    assert not ask(desk, SetConsumer("vol", "bucket", "reader", "snap-3", is_behind=True)).error
    [reader] = retention_queries.list_consumers(desk.tables, "vol", "bucket")
    assert reader.next_snapshot == "snap-4"
    assert expired(expire(desk)) == ("snap-3",)
    assert not ask(desk, SetConsumer("vol", "bucket", "reader", "snap-5", is_behind=True)).error
    [reader] = retention_queries.list_consumers(desk.tables, "vol", "bucket")
    assert reader.next_snapshot == ""
    assert expired(expire(desk)) == ("snap-4",)
    assert desk.names() == ["snap-1", "snap-5"]
    assert not ask(desk, DeleteConsumer("vol", "bucket", "reader")).error


def test_a_consumer_protects_its_place_though_its_snapshot_was_deleted_by_hand() -> None:
    desk = Desk()
    take(desk, "snap-1", "snap-2", "snap-3", "snap-4")
    ask(desk, SetConsumer("vol", "bucket", "reader", "snap-2"))
    assert not desk.delete("snap-2").error
    assert expired(expire(desk)) == ("snap-1",)
    assert desk.names() == ["snap-3", "snap-4"]


def test_a_consumer_that_is_not_heard_of_is_dropped_and_holds_nothing() -> None:
    desk = Desk()
    take(desk, "snap-1", "snap-2")
    ask(desk, SetConsumer("vol", "bucket", "reader", "snap-1"))
    patient = replace(ALL_BUT_ONE, consumer_expiration_ms=1_000)
    assert expired(expire(desk, patient, START_MS + 1_000)) == ()
    assert expired(expire(desk, patient, START_MS + 1_001)) == ("snap-1",)
    assert retention_queries.list_consumers(desk.tables, "vol", "bucket") == []
    assert desk.metric("deepclean_snapshots_consumers", shard="0") == 0


def test_a_consumer_of_an_earlier_bucket_of_the_same_name_holds_nothing() -> None:
    desk = Desk()
    take(desk, "snap-1")
    ask(desk, SetConsumer("vol", "bucket", "reader", "snap-1"))
    desk.delete("snap-1")
    desk.metadata.buckets["vol", "bucket"] = 9
    take(desk, "snap-2", "snap-3")
    assert expired(expire(desk)) == ("snap-2",)
    assert retention_queries.list_consumers(desk.tables, "vol", "bucket") == []


def test_a_snapshot_that_is_being_made_or_deleted_is_not_counted() -> None:
    desk = Desk()
    take(desk, "snap-1", "snap-2", "snap-3")
    desk.delete("snap-1", is_run=False)
    desk.command(CreateSnapshot("vol", "bucket", "snap-4", 0))
    held_back, desk.inbox = desk.inbox, []
    number = desk.command(ExpireSnapshots("vol", "bucket", KEEP_TWO, START_MS))
    assert expired(desk.answered(number)) == ()
    desk.inbox += held_back
    desk.run()
    assert desk.names() == ["snap-2", "snap-3", "snap-4"]


def test_a_preview_is_what_then_happens() -> None:
    desk = Desk()
    take(desk, "snap-1", "snap-2", "snap-3", "snap-4")
    tag(desk, "snap-2", "audit")
    before = queries.list_snapshots(desk.tables, "vol", "bucket")
    shown = retention_queries.preview(desk.tables, "vol", "bucket", START_MS, KEEP_TWO)
    assert queries.list_snapshots(desk.tables, "vol", "bucket") == before
    assert [one.snapshot for one in shown.expired] == ["snap-1"]
    held = {one.snapshot: [(hold.reason, hold.names) for hold in one.holds] for one in shown.kept}
    assert held == {
        "snap-2": [("TAG", ("audit",))],
        "snap-3": [("MINIMUM", ())],
        "snap-4": [("MINIMUM", ()), ("AGE", ())],
    }
    assert tuple(one.snapshot for one in shown.expired) == expired(expire(desk, KEEP_TWO))
    with pytest.raises(CommandError, match="no retention policy"):
        retention_queries.preview(desk.tables, "vol", "bucket", START_MS)


def break_chain(desk: Desk) -> None:
    """As somebody's hand in the tables would."""
    row = desk.info(desk.names()[-1])
    work = Work(0, desk.store, RowCache())
    key = f"/vol/bucket/{row.name}".encode()
    work.table(SNAPSHOT_INFO_TABLE).put(key, replace(row, global_previous_snapshot_id="nobody"))
    work.write()
    desk.restart()


def test_with_a_corrupted_chain_nothing_expires_and_who_waits_is_told() -> None:
    desk = Desk()
    take(desk, "snap-1", "snap-2", "snap-3")
    number = desk.command(ExpireSnapshots("vol", "bucket", KEEP_TWO, START_MS))
    break_chain(desk)
    desk.feed()
    [reply] = [reply for reply in desk.replies if reply.number == number]
    assert reply.error == "INTERNAL_ERROR"
    assert expire(desk).error == "INTERNAL_ERROR"
    assert desk.names() == ["snap-2", "snap-3"]


# Policies


def test_without_a_policy_nothing_expires() -> None:
    desk = Desk()
    take(desk, "snap-1", "snap-2")
    wait(desk, 365 * 24 * 60 * MINUTE_MS)
    assert desk.names() == ["snap-1", "snap-2"]


def test_a_synchronous_policy_runs_with_the_take() -> None:
    desk = Desk()
    set_policy(desk, KEEP_TWO)
    take(desk, "snap-1", "snap-2")
    number = desk.command(CreateSnapshot("vol", "bucket", "snap-3", 0))
    desk.feed(*desk.inbox)
    assert [reply.error for reply in desk.replies if reply.number == number] == [""]
    assert desk.names() == ["snap-2", "snap-3"]
    assert desk.metric("deepclean_snapshots_expired_total", trigger="take") == 1
    assert state(desk).last_expired == 1
    assert desk.metric("deepclean_snapshots_retention_policies", shard="0") == 1


def test_an_asynchronous_policy_runs_by_the_clock_after_the_take() -> None:
    desk = Desk()
    set_policy(desk, replace(KEEP_TWO, execution_mode=ExecutionMode.ASYNC))
    take(desk, "snap-1", "snap-2", "snap-3")
    assert desk.names() == ["snap-2", "snap-3"]
    assert desk.metric("deepclean_snapshots_expired_total", trigger="take") == 0
    assert desk.metric("deepclean_snapshots_expired_total", trigger="clock") == 1


@pytest.mark.parametrize("is_restarted", [False, True])
def test_snapshots_age_while_none_is_taken(*, is_restarted: bool) -> None:
    desk = Desk()
    set_policy(desk, RetentionPolicy(num_retained_min=1, time_retained_ms=10 * MINUTE_MS))
    take(desk, "snap-1", "snap-2", at_ms=START_MS)
    if is_restarted:
        desk.restart()
    wait(desk, 10 * MINUTE_MS)
    assert desk.names() == ["snap-1", "snap-2"]
    wait(desk, MINUTE_MS - 1)
    assert desk.names() == ["snap-1", "snap-2"]  # the clock is looked at, but a run is due once a minute only
    wait(desk, 1)
    assert desk.names() == ["snap-2"]


def test_setting_a_policy_leaves_a_minute_to_look_at_what_it_would_do() -> None:
    desk = Desk()
    take(desk, "snap-1", "snap-2")
    set_policy(desk, ALL_BUT_ONE)
    wait(desk, MINUTE_MS - 1)
    assert desk.names() == ["snap-1", "snap-2"]
    wait(desk, 1)
    assert desk.names() == ["snap-2"]


def test_a_policy_is_replaced_and_unset() -> None:
    desk = Desk()
    set_policy(desk, KEEP_TWO)
    set_policy(desk, RetentionPolicy(num_retained_min=3))
    assert state(desk).policy.num_retained_min == 3
    assert not ask(desk, UnsetRetention("vol", "bucket")).error
    with pytest.raises(CommandError, match="deepclean retention set"):
        state(desk)
    take(desk, "snap-1", "snap-2", "snap-3", "snap-4")
    wait(desk, 60 * MINUTE_MS)
    assert len(desk.names()) == 4


def test_a_request_without_a_policy_uses_that_of_the_bucket() -> None:
    desk = Desk()
    take(desk, "snap-1", "snap-2", "snap-3")
    set_policy(desk, RetentionPolicy(num_retained_min=2, time_retained_ms=10**13))
    assert expired(expire(desk, None, START_MS)) == ()
    desk.now_ms += 5
    assert expired(expire(desk, None, START_MS + 10**13)) == ("snap-1",)
    assert (state(desk).last_run_ms, state(desk).last_expired) == (desk.now_ms, 1)
    desk.now_ms += 5
    assert expired(expire(desk, KEEP_TWO)) == ()
    assert (state(desk).last_run_ms, state(desk).last_expired) == (desk.now_ms - 5, 1)


def test_a_policy_tells_only_its_own_bucket() -> None:
    desk = Desk()
    desk.metadata.buckets["vol", "bucket1"] = 8
    set_policy(desk, ALL_BUT_ONE)
    for name in ("snap-1", "snap-2"):
        ask(desk, CreateSnapshot("vol", "bucket1", name, 0))
    take(desk, "snap-1", "snap-2")
    assert desk.names() == ["snap-2"]
    assert desk.names("bucket1") == ["snap-1", "snap-2"]


# Buckets that are deleted


def deleted(desk: Desk, bucket_id: int, at_ms: int) -> None:
    """What metadata sends when ``vol/bucket`` is deleted."""
    desk.feed((SPACE, SpaceUpdate(desk.metadata.txn, bucket_id, (), (), 0, 0, "vol/bucket", at_ms)))


def has_policy(desk: Desk) -> bool:
    return desk.metric("deepclean_snapshots_retention_policies", shard="0") == 1


@pytest.mark.parametrize("is_restarted", [False, True])
def test_what_is_kept_of_a_bucket_by_its_name_goes_with_the_bucket(*, is_restarted: bool) -> None:
    desk = Desk()
    desk.metadata.buckets["vol", "other"] = 8
    set_policy(desk, ALL_BUT_ONE)
    assert not ask(desk, SetRetention("vol", "other", ALL_BUT_ONE)).error
    take(desk, "snap-1")
    ask(desk, CreateSnapshot("vol", "other", "snap-1"))
    for bucket in ("bucket", "other"):
        ask(desk, SetConsumer("vol", bucket, "reader", "snap-1"))
    desk.delete("snap-1")
    deleted(desk, 7, desk.now_ms + DOUBT_MS + 1)
    if is_restarted:
        desk.restart()
        desk.feed()
    with pytest.raises(CommandError, match="has no retention policy"):
        state(desk)
    assert retention_queries.list_consumers(desk.tables, "vol", "bucket") == []
    assert retention_queries.retention_of(desk.tables, "vol", "other").policy == ALL_BUT_ONE
    assert len(retention_queries.list_consumers(desk.tables, "vol", "other")) == 1


def test_a_bucket_made_again_keeps_the_policy_that_was_set_for_it_whenever_the_news_comes() -> None:
    desk = Desk()
    set_policy(desk, ALL_BUT_ONE)
    deleted_ms = desk.now_ms + 10 * DOUBT_MS
    desk.now_ms = deleted_ms + 1
    set_policy(desk, ALL_BUT_ONE)
    take(desk, "snap-1")
    ask(desk, SetConsumer("vol", "bucket", "reader", "snap-1"))
    for _ in range(2):  # late, and again
        deleted(desk, 6, deleted_ms)
        assert has_policy(desk)
        assert len(retention_queries.list_consumers(desk.tables, "vol", "bucket")) == 1


@pytest.mark.parametrize(("apart_ms", "is_kept"), [(-1, True), (DOUBT_MS, True), (DOUBT_MS + 1, False)])
def test_a_policy_set_at_about_the_time_of_the_deletion_stays(apart_ms: int, *, is_kept: bool) -> None:
    desk = Desk()
    set_policy(desk, ALL_BUT_ONE)
    deleted(desk, 7, state(desk).set_ms + apart_ms)
    assert has_policy(desk) is is_kept


# What is made by the clock


def test_a_snapshot_is_taken_once_in_each_period() -> None:
    desk = Desk()
    set_policy(desk, RetentionPolicy(snapshot_every_ms=60 * MINUTE_MS))
    next_ms = (desk.now_ms // (60 * MINUTE_MS) + 1) * 60 * MINUTE_MS
    wait(desk, next_ms - desk.now_ms - 1)
    assert desk.names() == []
    wait(desk, 1)
    assert desk.names() == ["auto-20231114t230000z"]
    desk.restart()
    wait(desk, 59 * MINUTE_MS)
    assert len(desk.names()) == 1
    wait(desk, 150 * MINUTE_MS)  # two periods without anybody to look at the clock: one snapshot
    assert desk.names() == ["auto-20231114t230000z", "auto-20231115t020000z"]


def test_a_refused_automatic_snapshot_is_kept_reported_once_and_breaks_nothing() -> None:
    desk = Desk()
    set_policy(desk, RetentionPolicy(snapshot_every_ms=60 * MINUTE_MS))
    del desk.metadata.buckets["vol", "bucket"]
    wait(desk, 60 * MINUTE_MS)
    assert "BUCKET_NOT_FOUND" in state(desk).failure
    assert desk.metric("deepclean_snapshots_retention_failing", shard="0") == 1
    assert desk.metric("deepclean_snapshots_retention_runs_total", outcome="failed") == 1
    desk.restart()
    reported = expire(desk, None)
    assert reported.error == ""
    assert reported.expired is not None
    assert "BUCKET_NOT_FOUND" in reported.expired.previous_failure
    again = expire(desk, None)
    assert again.expired is not None
    assert again.expired.previous_failure == ""
    assert desk.metric("deepclean_snapshots_retention_failing", shard="0") == 0


def test_a_failure_of_an_automatic_snapshot_is_shown_until_the_next_one_is_due() -> None:
    desk = Desk()
    set_policy(desk, RetentionPolicy(snapshot_every_ms=60 * MINUTE_MS))
    take(desk, "auto-20231114t230000z")
    wait(desk, 60 * MINUTE_MS)
    assert "FILE_ALREADY_EXISTS" in state(desk).failure
    wait(desk, 40 * MINUTE_MS)
    assert "FILE_ALREADY_EXISTS" in state(desk).failure
    wait(desk, 10 * MINUTE_MS)
    assert state(desk).failure == ""
    assert desk.names() == ["auto-20231114t230000z", "auto-20231115t000000z"]


def test_the_first_snapshot_of_each_period_is_tagged_and_old_tags_go() -> None:
    desk = Desk()
    hour_ms = 60 * MINUTE_MS
    policy = RetentionPolicy(
        num_retained_min=1, time_retained_ms=0, tag_every_ms=hour_ms, tag_num_retained_max=2, tag_time_retained_ms=0
    )
    set_policy(desk, policy)
    for hour in range(1, 4):
        for minute in (5, 10):
            desk.now_ms = START_MS + hour * hour_ms + minute * MINUTE_MS
            take(desk, f"snap-{hour}-{minute}", at_ms=desk.now_ms)
    tags = retention_queries.list_tags(desk.tables, "vol", "bucket")
    assert [(one.snapshot, one.is_automatic) for one in tags] == [("snap-2-5", True), ("snap-3-5", True)]
    wait(desk, MINUTE_MS)
    assert desk.names() == ["snap-2-5", "snap-3-5", "snap-3-10"]


def test_an_automatic_tag_has_the_time_to_live_of_its_policy() -> None:
    desk = Desk()
    set_policy(desk, RetentionPolicy(tag_every_ms=60 * MINUTE_MS, tag_time_retained_ms=5_000))
    take(desk, "snap-1", at_ms=desk.now_ms)
    [made] = retention_queries.list_tags(desk.tables, "vol", "bucket")
    assert made.expiry_time_ms == desk.now_ms + 5_000
    wait(desk, 5_000)
    assert retention_queries.list_tags(desk.tables, "vol", "bucket") == []
    wait(desk, MINUTE_MS)
    assert retention_queries.list_tags(desk.tables, "vol", "bucket") == []  # its period has had its tag


# Settling


def test_what_the_clock_does_is_work_that_settling_waits_for() -> None:
    desk = Desk()
    set_policy(desk, RetentionPolicy(num_retained_min=1, time_retained_ms=MINUTE_MS))
    take(desk, "snap-1", "snap-2", at_ms=START_MS)
    for name in desk.names():
        desk.flag(desk.info(name).snapshot_id, 2)
    number = desk.settle()
    desk.inbox += desk.metadata.bring_back()
    desk.now_ms += 5 * MINUTE_MS  # the round under way sees the expiry
    desk.run()
    for _ in range(10):
        desk.flag(desk.info("snap-2").snapshot_id, desk.metadata.chain_version)
        if desk.metadata.barriers:
            desk.inbox += desk.metadata.bring_back()
        desk.run()
    [reply] = [reply for reply in desk.replies if reply.number == number]
    assert reply.rounds > 2
    assert desk.names(with_deleted=True) == ["snap-2"]


# Readers of what has gone


def test_a_snapshot_that_has_gone_is_told_apart_from_one_that_never_was() -> None:
    desk = Desk()
    take(desk, "snap-1", "snap-2", "snap-3")
    expire(desk, KEEP_TWO)
    with pytest.raises(SnapshotExpiredError) as caught:
        desk.info("snap-1")
    assert (caught.value.code, caught.value.next_snapshot) == ("SNAPSHOT_EXPIRED", "snap-2")
    desk.delete("snap-3")
    with pytest.raises(SnapshotExpiredError, match="no later one"):
        desk.info("snap-3")
    with pytest.raises(CommandError, match="there is no snapshot") as never:
        desk.info("snap-9")
    assert never.value.code == "FILE_NOT_FOUND"
    assert ask(desk, CreateTag("vol", "bucket", "snap-1", "keep")).error == "FILE_NOT_FOUND"
    take(desk, "snap-1")
    assert desk.info("snap-1").ordinal == 4


@pytest.mark.parametrize("is_restarted", [False, True])
def test_only_so_many_that_have_gone_are_remembered(*, is_restarted: bool) -> None:
    desk = Desk(SnapshotsSettings(max_gone_snapshots=2))
    for number in range(1, 5):
        desk.now_ms += 1
        take(desk, f"snap-{number}")
        if is_restarted:
            desk.restart()
        desk.delete(f"snap-{number}")
    codes = []
    for number in range(1, 5):
        with pytest.raises(CommandError) as caught:
            desk.info(f"snap-{number}")
        codes.append(str(caught.value.code))
    assert codes == ["FILE_NOT_FOUND"] * 2 + ["SNAPSHOT_EXPIRED"] * 2
    assert len(list(desk.tables.table(GONE_TABLE).scan(b"", b"\xff"))) == 2


def test_a_drop_goes_out_only_after_the_snapshot_is_unreadable() -> None:
    """Both are one write; so whoever sees the drop in the log finds the snapshot marked."""
    desk = Desk()
    take(desk, "snap-1", "snap-2")
    desk.command(ExpireSnapshots("vol", "bucket", ALL_BUT_ONE, START_MS))
    sent = [record.body for topic, record in desk.sent if topic == METADATA_COMMANDS.name]
    assert isinstance(sent[-1], DropSnapshot)
    assert queries.snapshot_info(desk.tables, "vol", "bucket", "snap-1").status == "SNAPSHOT_DELETED"
