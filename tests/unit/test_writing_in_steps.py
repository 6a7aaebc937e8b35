"""Keys that clients write in steps, on one shard of metadata: what is refused, and what becomes of the blocks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from schemas.records import (
    AbortUpload,
    AllocateBlocks,
    CaptureSnapshot,
    CommitKey,
    CompleteUpload,
    CreateBucketLink,
    InitiateUpload,
    MakeDirectory,
    MetadataCommand,
    OpenKey,
    PutKey,
    RecoverLease,
    RollbackPage,
    SetQuota,
    SyncKey,
)
from schemas.topics import DEAD_LETTERS, METADATA_COMMANDS
from services.log.first_commands import first_commands
from services.metadata.namespace import uploads as metadata_uploads
from services.metadata.state.bucket_links import MAX_LINKS
from services.verifier import uploads as verifier_uploads
from tests.unit.test_metadata import Shard
from tests.unit.test_verify_replay import txn_of, verified

BLOCK = 4_096
MAX_BYTES = 2**63 - 1


@pytest.fixture
def shard() -> Iterator[Shard]:
    made = Shard()
    for message in first_commands(0, None, 0):
        made.log.append(METADATA_COMMANDS.name, 0, message)
    made.runner.step()
    yield made
    assert not made.sent(DEAD_LETTERS)
    report = verified(made)
    assert report.is_clean, report.examples
    assert report.txn == txn_of(made.store)


def opened(shard: Shard, key: str, size_bytes: int, bucket: str = "flat", block: int = BLOCK, **more: Any) -> int:
    reply = shard.do(OpenKey("vol", bucket, key, size_bytes, "", block, **more))
    assert reply.committed, reply.message
    return reply.committed.session


def test_a_key_is_not_committed_where_a_directory_has_come_up(shard: Shard) -> None:
    session = opened(shard, "a/b", BLOCK, "tree")
    shard.do(MakeDirectory("vol", "tree", "a/b"))
    for command in (SyncKey("vol", "tree", "a/b", session, 1), CommitKey("vol", "tree", "a/b", session, 1)):
        assert shard.refusal(command) == "NOT_A_FILE"
    assert shard.names("tree") == {}


def test_a_writer_whose_lease_was_recovered_gets_no_more_blocks(shard: Shard) -> None:
    session = opened(shard, "k", BLOCK)
    shard.do(SyncKey("vol", "flat", "k", session, 10))
    shard.do(RecoverLease("vol", "flat", "k"))
    assert shard.refusal(AllocateBlocks("vol", "flat", "k", session, BLOCK)) == "KEY_UNDER_LEASE_RECOVERY"
    assert shard.refusal(CommitKey("vol", "flat", "k", session, 20)) == "KEY_UNDER_LEASE_RECOVERY"
    assert not shard.refusal(CommitKey("vol", "flat", "k", session, 20, is_recovery=True))


def test_blocks_are_stored_once_when_they_become_part_of_a_version(shard: Shard) -> None:
    half = MAX_BYTES // 2 + 1
    session = opened(shard, "k", half, block=half)
    assert shard.refusal(OpenKey("vol", "flat", "l", half, "", half)) == "INVALID_REQUEST"
    assert not shard.refusal(CommitKey("vol", "flat", "k", session, half))
    assert shard.refusal(OpenKey("vol", "flat", "l", half, "", half)) == "INVALID_REQUEST"


def test_an_upload_through_a_link_is_one_of_the_bucket(shard: Shard) -> None:
    shard.do(CreateBucketLink("vol", "link", "vol", "flat"))
    for number, end in enumerate(("complete", "abort")):
        begun = shard.do(InitiateUpload("vol", "link", "big")).committed
        assert begun
        part = opened(shard, "big", BLOCK, "link", upload_id=begun.upload_id, part_number=1)
        assert not shard.refusal(CommitKey("vol", "flat", "big", part, BLOCK))
        if end == "complete":
            ended: Any = CompleteUpload("vol", "link", "big", begun.upload_id, (1,))
        else:
            ended = AbortUpload("vol", "link", "big", begun.upload_id)
        assert not shard.refusal(ended), number
        assert shard.refusal(AbortUpload("vol", "flat", "big", begun.upload_id)) == "NO_SUCH_MULTIPART_UPLOAD_ERROR"
    assert set(shard.names("flat")) == {"big"}


@pytest.mark.parametrize("wants_reply", [True, False])
def test_what_a_quota_refuses_is_known_from_the_log_and_the_answers(shard: Shard, wants_reply: bool) -> None:
    shard.send(MetadataCommand(0, "me", 1_000, SetQuota("vol", "flat", 2 * BLOCK, -1), wants_reply=wants_reply))
    for number, size in enumerate((BLOCK, 2 * BLOCK, 1, 1)):
        put = PutKey("vol", "flat", f"k{number}", size, "", BLOCK)
        shard.send(MetadataCommand(0, "me", 1_001 + number, put, wants_reply=wants_reply))
    while shard.runner.step():
        pass
    assert set(shard.names("flat")) == {"k0", "k2"}


def test_a_name_leads_over_as_many_links_as_are_allowed(shard: Shard) -> None:
    for number in range(MAX_LINKS + 1):
        source = f"link{number - 1}" if number else "flat"
        shard.do(CreateBucketLink("vol", f"link{number}", "vol", source))
    last, beyond = f"link{MAX_LINKS - 1}", f"link{MAX_LINKS}"
    assert not shard.refusal(InitiateUpload("vol", last, "k"))
    assert shard.refusal(InitiateUpload("vol", beyond, "k")) == "DETECTED_LOOP_IN_BUCKET_LINKS"


def test_a_writer_does_not_continue_a_version_that_another_one_made_as_long_again(shard: Shard) -> None:
    first = opened(shard, "k", BLOCK)
    shard.do(SyncKey("vol", "flat", "k", first, 10))
    shard.internal(CaptureSnapshot("vol", "flat", "snap"))
    shard.do(SyncKey("vol", "flat", "k", first, 40))
    page = RollbackPage("back", shard.bucket("flat").object_id, "snap", 1, 1_000)
    shard.send(MetadataCommand(0, "", 0, page, "snapshots"))
    shard.runner.step()
    second = opened(shard, "k", BLOCK, is_append=True)
    assert not shard.refusal(SyncKey("vol", "flat", "k", second, 40))
    assert shard.refusal(SyncKey("vol", "flat", "k", first, 70)) == "KEY_NOT_FOUND"


def test_all_parts_of_an_upload_have_a_limited_number_of_runs(monkeypatch: pytest.MonkeyPatch, shard: Shard) -> None:
    """The command that ends the upload changes all of them."""
    monkeypatch.setattr(metadata_uploads, "MAX_RUNS_PER_VERSION", 3)
    monkeypatch.setattr(verifier_uploads, "MAX_RUNS", 3)
    reply = shard.do(InitiateUpload("vol", "flat", "k"))
    assert reply.committed
    upload = reply.committed.upload_id

    def part(number: int, runs: int) -> str:
        session = opened(shard, "k", BLOCK, upload_id=upload, part_number=number)
        for _ in range(runs - 1):
            shard.do(AllocateBlocks("vol", "flat", "k", session, BLOCK))
        return shard.refusal(CommitKey("vol", "flat", "k", session, runs * BLOCK))

    assert [part(1, 2), part(2, 1), part(3, 1)] == ["", "", "INVALID_REQUEST"]
    assert [part(1, 3), part(1, 1), part(3, 1)] == ["INVALID_REQUEST", "", ""], "those of a replaced part do not count"
    assert not shard.refusal(CompleteUpload("vol", "flat", "k", upload, (1, 3)))
