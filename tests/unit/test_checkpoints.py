"""A take that is applied again makes its checkpoint anew, whoever looks into the one of its first time."""

from __future__ import annotations

from pathlib import Path

import pytest

from schemas.records import BucketLayout, PutKey
from services.domain.errors import RetryableError
from services.metadata.recovery.digest import digest_shard
from tests.diffed_shard import DiffedShard


def test_a_capture_that_is_applied_again_keeps_its_checkpoint_when_the_first_one_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The broker was away between the apply and the write, and the thread that trims had the checkpoint open."""

    def not_acknowledged() -> None:
        raise RetryableError("the broker is away")

    shard = DiffedShard(tmp_path, BucketLayout.OBJECT_STORE)
    shard.do(PutKey("vol", "bucket", "before", 1))
    with monkeypatch.context() as broken:
        broken.setattr(shard.runner, "_settle", not_acknowledged)
        with pytest.raises(RetryableError):
            shard.snapshot("s1")
    first = shard.store.open_checkpoint("s1")
    shard.step()
    first.close()
    assert list(digest_shard(shard.store).checkpoints) == ["s1"]
    shard.store.close()
