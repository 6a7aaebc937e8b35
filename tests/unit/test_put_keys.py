"""PutKeys: many keys, each for itself and at a txn of its own; in metadata and in the ledger's replay."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from schemas.error_codes import ErrorCode
from schemas.records import (
    BucketVersioning,
    CaptureSnapshot,
    Committed,
    DeleteKeys,
    KeysPut,
    MakeDirectory,
    MetadataCommand,
    MetadataReply,
    PutKey,
    PutKeys,
    SetBucketVersioning,
    SetQuota,
)
from schemas.topics import DEAD_LETTERS, METADATA_COMMANDS, METADATA_REPLIES
from services.domain.refusals import CommandError
from services.log.first_commands import first_commands
from services.metadata import bulk_puts, service
from services.metadata.namespace import keys
from tests.unit.test_metadata import Shard, _deleted
from tests.unit.test_verify_replay import txn_of, verified
from tests.verification_in_process import InProcess, by_parts_and_whole

BLOCK_BYTES = 100


def many(bucket: str, *names: str, size_bytes: int = 10, tags: tuple[str, ...] = ()) -> PutKeys:
    return PutKeys("vol", bucket, names, (size_bytes,) * len(names), tags or names, BLOCK_BYTES)


def done(reply: MetadataReply) -> KeysPut:
    assert reply.committed is not None, reply
    assert reply.committed.keys_put is not None
    return reply.committed.keys_put


def refused(reply: MetadataReply) -> dict[int, str]:
    return dict(zip(done(reply).refused, done(reply).errors, strict=True))


def new_shard() -> Shard:
    shard = Shard()
    for command in first_commands(0, None, shard.clock.now_ms()):
        shard.log.append(METADATA_COMMANDS.name, 0, command)
    shard.runner.step()
    return shard


@pytest.fixture
def shard() -> Iterator[Shard]:
    shard = new_shard()
    yield shard
    report = verified(shard)
    assert report.is_clean, report.examples
    assert report.txn == txn_of(shard.store), "the ledger's replay numbers what follows as metadata does"
    engine = InProcess()
    by_parts, whole = by_parts_and_whole(shard.log, engine)
    assert (by_parts.txn, by_parts.is_clean, engine.why_whole) == (whole.txn, True, [])


@pytest.mark.parametrize("bucket", ["flat", "tree"])
class TestInBothLayouts:
    def test_each_is_born_at_a_txn_of_its_own(self, shard: Shard, bucket: str) -> None:
        before = txn_of(shard.store)
        reply = shard.do(many(bucket, "a", "b/c", "d", size_bytes=250))
        assert (reply.txn, done(reply).put, refused(reply)) == (before + 3, 3, {})
        assert shard.names(bucket) == {"a": "a", "b/c": "b/c", "d": "d"}
        shard.do(DeleteKeys("vol", bucket, ("a", "b/c", "d")))
        assert {entry.birth for entry in shard.entries()} == {before + 1, before + 2, before + 3}

    def test_the_answer_says_where_the_blocks_are(self, shard: Shard, bucket: str) -> None:
        reply = shard.do(many(bucket, "a", ".snapshot", "b", size_bytes=250))
        shard.do(DeleteKeys("vol", bucket, ("a", "b")))
        found = {row.key.birth: row.key.blocks for _, row in _deleted(shard)}
        answer = done(reply)
        for place in (0, 2):
            run = found[reply.txn - 2 + place]
            assert run is not None
            expected = (answer.container_id, answer.first_local_id + (place << 16), 3)
            assert (run.container_id, run.first_local_id, run.block_count) == expected

    def test_what_a_refused_key_would_have_done_is_undone(self, shard: Shard, bucket: str) -> None:
        shard.do(SetQuota("vol", bucket, -1, 3))
        reply = shard.do(many(bucket, "a", "x/y/z/b", "c", ".snapshot", "d"))
        if bucket == "tree":  # three directories and a key are too many
            assert refused(reply) == {1: "QUOTA_EXCEEDED", 3: "INVALID_KEY_NAME"}
            assert set(shard.names(bucket)) == {"a", "c", "d"}
        else:
            assert refused(reply) == {3: "INVALID_KEY_NAME", 4: "QUOTA_EXCEEDED"}
            assert set(shard.names(bucket)) == {"a", "x/y/z/b", "c"}
        assert shard.bucket(bucket).used_namespace == 3
        assert shard.refusal(PutKey("vol", bucket, "e", 1)) == "QUOTA_EXCEEDED"

    def test_a_key_that_comes_twice_is_overwritten(self, shard: Shard, bucket: str) -> None:
        reply = shard.do(many(bucket, "a", "b", "a", tags=("first", "other", "second")))
        assert shard.names(bucket) == {"a": "second", "b": "other"}
        assert [(entry.birth, entry.death) for entry in shard.entries()] == [(reply.txn - 2, reply.txn)]

    def test_a_snapshot_holds_what_a_later_command_overwrites(self, shard: Shard, bucket: str) -> None:
        shard.do(many(bucket, "a", "b"))
        shard.internal(CaptureSnapshot("vol", bucket, "s1"))
        shard.do(many(bucket, "a", "b", "c", tags=("new",) * 3))
        assert shard.names(bucket, "s1") == {"a": "a", "b": "b"}
        assert len({entry.death for entry in shard.entries()}) == 2

    def test_noncurrent_versions_of_one_command_are_rows_of_their_own(self, shard: Shard, bucket: str) -> None:
        """Such a row is named by its birth and death: with one birth for all, only one of them would be left."""
        shard.do(SetBucketVersioning("vol", bucket, BucketVersioning.ENABLED))
        shard.do(many(bucket, "a", "b"))
        shard.do(many(bucket, "a", "b", tags=("new",) * 2))
        shard.do(DeleteKeys("vol", bucket, ("a", "b")))
        assert len({(entry.object_id, entry.birth, entry.death) for entry in shard.entries()}) == 4
        assert shard.space(bucket).pending_bytes == 40

    def test_what_a_directory_or_a_file_stands_for_cannot_be_put(self, shard: Shard, bucket: str) -> None:
        shard.do(MakeDirectory("vol", "tree", "directory"))
        reply = shard.do(many(bucket, "file", "file/below", "directory"))
        assert refused(reply) == ({} if bucket == "flat" else {1: "NOT_A_FILE", 2: "NOT_A_FILE"})

    @pytest.mark.parametrize(
        "body",
        [
            PutKeys("vol", "", (), (), ()),
            PutKeys("vol", "", ("a",) * 1_001, (1,) * 1_001, ()),
            PutKeys("vol", "", ("a", "b"), (1,), ()),
            PutKeys("vol", "", ("a", "b"), (1, 1), ("tag",)),
        ],
    )
    def test_lists_that_do_not_fit_are_refused_as_a_whole(self, shard: Shard, bucket: str, body: PutKeys) -> None:
        before = txn_of(shard.store)
        command = PutKeys("vol", bucket, body.keys, body.sizes_bytes, body.tags)
        assert shard.refusal(command) == "INVALID_REQUEST"
        assert (txn_of(shard.store), shard.names(bucket)) == (before, {})

    def test_a_repeat_gets_the_first_answer(self, shard: Shard, bucket: str) -> None:
        first = shard.do(many(bucket, "a", "b"))
        assert shard.do(many(bucket, "a", "b"), number=first.number) == first
        assert txn_of(shard.store) == first.txn


def test_where_nothing_can_be_put_the_txns_are_used_all_the_same(shard: Shard) -> None:
    before = txn_of(shard.store)
    reply = shard.do(many("flat", ".snapshot", ".snapshot/a"))
    assert (reply.txn, reply.error, done(reply).put) == (before + 2, "", 0)
    assert shard.do(PutKey("vol", "flat", "a", 1)).txn == before + 3


def test_a_missing_bucket_refuses_the_whole(shard: Shard) -> None:
    assert shard.refusal(many("none", "a")) == "BUCKET_NOT_FOUND"


def test_it_is_for_shards_whose_upgrade_is_finished() -> None:
    shard = Shard()
    announced, *_ = first_commands(0, None, shard.clock.now_ms())
    shard.log.append(METADATA_COMMANDS.name, 0, announced)
    assert shard.refusal(many("flat", "a")) == "FEATURE_NOT_ENABLED"


def test_a_failure_amid_the_keys_leaves_nothing_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its message is dead-lettered as a whole, and the commands beside it in the unit of work are applied."""
    shard = new_shard()
    before, put_key = txn_of(shard.store), keys.put_key

    def fails(transaction: Any, put: PutKey) -> Committed:
        if put.key == "bad":
            raise ValueError("a defect")
        return put_key(transaction, put)

    with monkeypatch.context() as patch:
        patch.setattr(bulk_puts, "put_key", fails)
        shard.send(MetadataCommand(0, "one", 1, PutKey("vol", "flat", "first", 10)))
        shard.send(MetadataCommand(0, "two", 1, many("flat", "a", "b", "bad", "c")))
        shard.send(MetadataCommand(0, "one", 2, PutKey("vol", "flat", "last", 10)))
        shard.runner.step()
    (letter,) = shard.sent(DEAD_LETTERS)
    assert (letter.topic, "a defect" in letter.message) == (METADATA_COMMANDS.name, True)
    assert set(shard.names("flat")) == {"first", "last"}
    assert [reply.txn for reply in shard.sent(METADATA_REPLIES)[-2:]] == [before + 1, before + 2]
    assert shard.space("flat").live_bytes == 20


def test_a_refusal_behind_its_changes_leaves_nothing_of_its_key(monkeypatch: pytest.MonkeyPatch) -> None:
    shard = new_shard()
    put_key = keys.put_key

    def refuses(transaction: Any, put: PutKey) -> Committed:
        answer = put_key(transaction, put)
        if put.key == "late":
            raise CommandError(ErrorCode.QUOTA_EXCEEDED, "after its changes")
        return answer

    with monkeypatch.context() as patch:
        patch.setattr(bulk_puts, "put_key", refuses)
        reply = shard.do(many("flat", "a", "late", "c"))
    assert refused(reply) == {1: "QUOTA_EXCEEDED"}
    assert set(shard.names("flat")) == {"a", "c"}
    assert shard.space("flat").live_bytes == 20


def test_a_command_without_a_reply_is_answered_all_the_same(shard: Shard) -> None:
    """Whoever replays the log reads from the answer what a quota has refused."""
    shard.do(SetQuota("vol", "flat", -1, 1))
    answers = len(shard.sent(METADATA_REPLIES))
    shard.send(MetadataCommand(0, "silent", 1, many("flat", ".snapshot", ".snapshot/a"), wants_reply=False))
    shard.runner.step()
    assert len(shard.sent(METADATA_REPLIES)) == answers + 1
    shard.do(PutKey("vol", "tree", "a", 1))


def test_a_command_that_is_too_long_hides_no_later_answers(shard: Shard) -> None:
    shard.do(SetQuota("vol", "flat", -1, 2_000))
    assert shard.refusal(many("flat", *map(str, range(1_500)))) == "INVALID_REQUEST"
    for number in range(1_200):
        shard.do(PutKey("vol", "flat", f"{number}", 1))
    shard.do(DeleteKeys("vol", "flat", ("7",)))


def test_a_command_creates_a_bounded_number_of_objects(shard: Shard, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("services.metadata.bulk_puts", "services.verifier.namespace"):
        monkeypatch.setattr(f"{module}.MAX_OBJECTS_PER_BULK", 5)
    reply = shard.do(many("tree", "a/b/c", "a/b/d", "a/e", "f", "a/b/c"))
    assert refused(reply) == {3: "LIMIT_EXCEEDED", 4: "LIMIT_EXCEEDED"}
    assert set(shard.names("tree")) == {"a/b/c", "a/b/d", "a/e"}


@pytest.mark.parametrize("between", [True, False])
def test_a_failure_behind_a_key_leaves_nothing_of_the_command(
    monkeypatch: pytest.MonkeyPatch, *, between: bool
) -> None:
    shard = new_shard()
    before = txn_of(shard.store)
    module = bulk_puts if between else service
    finish, calls = module.applied, 0

    def fails(transaction: Any) -> None:
        nonlocal calls
        calls += 1
        if calls == 2 or not between:
            raise ValueError("a defect")
        finish(transaction)

    with monkeypatch.context() as patch:
        patch.setattr(module, "applied", fails)
        shard.send(MetadataCommand(0, "two", 1, many("flat", "a", "b", "c")))
        shard.runner.step()
    assert [letter.error for letter in shard.sent(DEAD_LETTERS)] == ["HalfAppliedError"]
    assert (txn_of(shard.store), shard.names("flat")) == (before, {})
