"""All sums of a shard fit into 64 bits, also those of bytes on disks: what would exceed them is refused.

A command whose sums do not fit into their rows would become a dead letter: a client would get no answer, and what an
expiry was to free would stay.
"""

from __future__ import annotations

import pytest

from schemas.records import CommitKey, OpenKey, PutKey, Replication, SetBucketReplication
from services.domain.replication import redundancy_of_block
from tests.unit.test_verify_replay import free, verified
from tests.unit.writing_shard import WritingShard


def shard_with(replication: Replication) -> WritingShard:
    shard = WritingShard()
    for bucket in ("flat", "tree"):
        shard.done(SetBucketReplication("vol", bucket, replication))
    return shard


@pytest.mark.parametrize("replication", [one for one in Replication if one is not Replication.RATIS_ONE])
def test_of_puts(replication: Replication) -> None:
    shard, size_bytes = shard_with(replication), 2**60
    assert shard.refusal(PutKey("vol", "flat", "k", 2**63 - 1, "", 2**63 - 1)) == "INVALID_REQUEST"
    while not shard.refusal(PutKey("vol", "flat", "k", size_bytes, "", size_bytes)):  # what is overwritten is stored
        pass
    row = shard.bucket("flat")
    stored = row.used_bytes + row.snapshot_used_bytes
    taken = stored + row.used_redundancy_bytes + row.snapshot_used_redundancy_bytes
    left = 2**63 - 1 - taken
    assert left < size_bytes + redundancy_of_block(replication, size_bytes)
    assert shard.refusal(PutKey("vol", "flat", "l", left, "", left)) == "INVALID_REQUEST"
    assert not shard.refusal(PutKey("vol", "flat", "l", 10, "", 10))
    shard.check()


def test_of_blocks_that_nobody_sees_yet() -> None:
    shard, size = shard_with(Replication.RATIS_THREE), 2**61
    session = shard.done(OpenKey("vol", "flat", "k", size, "", size)).session
    assert shard.refusal(OpenKey("vol", "tree", "l", size, "", size)) == "INVALID_REQUEST"
    shard.sync("flat", "k", session, size // 2)
    shard.open("tree", "l", 1)
    shard.done(OpenKey("vol", "tree", "m", size // 2, "", size // 2))
    assert shard.refusal(CommitKey("vol", "flat", "k", session, size)) == "INVALID_REQUEST"
    shard.commit("flat", "k", session, size // 2)
    shard.check()


def test_of_parts_and_of_what_is_freed() -> None:
    shard, size = shard_with(Replication.RATIS_THREE), 2**61
    upload = shard.initiate("flat", "k")
    shard.done(OpenKey("vol", "flat", "k", size, "", size, upload_id=upload, part_number=1))
    session = shard.txn
    assert shard.refusal(PutKey("vol", "tree", "l", size, "", size)) == "INVALID_REQUEST"
    shard.commit("flat", "k", session, size)
    assert shard.refusal(PutKey("vol", "tree", "l", size, "", size)) == "INVALID_REQUEST"
    shard.abort("flat", "k", upload)
    (row,) = shard.rows()
    assert shard.refusal(PutKey("vol", "tree", "l", size, "", size)) == "INVALID_REQUEST"
    free(shard, row)
    assert not shard.refusal(PutKey("vol", "tree", "l", size, "", size))
    shard.check()
    report = verified(shard)
    assert report.is_clean
    assert report.txn == shard.txn
