"""A key that is put with its bytes: what is written again, and what never is."""

from __future__ import annotations

from io import BytesIO
from pathlib import Path
from typing import Any

import pytest

import deepclean
from deepclean.connection import Connection
from schemas.records import CommitKey, KeyRow, MetadataReply
from services.client.errors import NotDeliveredError, UnreachableError
from services.client.plane import NamespaceCommand
from services.client.tasks import key_bytes
from tests.planes_with_bytes import ClientWithBytes


class ClientThatLosesAnswers(ClientWithBytes):
    """The plane applies each commit, and the client does not learn it."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.commits: list[int] = []

    def submit(self, shard: int, command: NamespaceCommand) -> int:
        number = super().submit(shard, command)
        if isinstance(command, CommitKey):
            self.commits.append(number)
        return number

    def answer(self, shard: int, number: int) -> MetadataReply:
        reply = super().answer(shard, number)
        if number in self.commits:
            raise NotDeliveredError("the broker did not confirm it", may_be_applied=True)
        return reply


def bucket_of(client: ClientWithBytes) -> deepclean.Bucket:
    """A new bucket of a plane."""
    return Connection(client).volume("vol1").create().bucket("data").create(deepclean.BucketLayout.OBJECT_STORE)


def test_a_commit_whose_outcome_is_unknown_is_not_sent_again(tmp_path: Path) -> None:
    """A second version could overwrite what somebody put in between."""
    client = ClientThatLosesAnswers(tmp_path)
    bucket = bucket_of(client)
    with pytest.raises(NotDeliveredError):
        bucket.put("k", data=b"bytes")
    assert len(client.commits) == 1
    assert bucket.read("k") == b"bytes"


def test_a_write_that_fails_begins_again_where_the_file_stood(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    client = ClientWithBytes(tmp_path)
    bucket = bucket_of(client)
    store = type(client.block_store(0))
    write, failures = store.write_chunk, [UnreachableError("a datanode does not answer")]

    def fails_once(*arguments: Any) -> None:
        if failures:
            raise failures.pop()
        write(*arguments)

    monkeypatch.setattr(store, "write_chunk", fails_once)
    monkeypatch.setattr(key_bytes, "PLACE_POLL_SECONDS", 0.0)
    source = BytesIO(b"head and body")
    source.seek(9)
    bucket.put("k", data=source)
    assert bucket.read("k") == b"body"
    row = bucket.stat("k")
    assert isinstance(row, KeyRow)
    assert row.size_bytes == 4


def test_the_generation_that_no_row_has_is_no_condition(tmp_path: Path) -> None:
    bucket = bucket_of(ClientWithBytes(tmp_path))
    with pytest.raises(ValueError, match="-1 for a key that must not exist"):
        bucket.put_if("k", size_bytes=1, expected_generation=0)
