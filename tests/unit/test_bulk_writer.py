"""The bulk writer of the library: in order, bounded, each failure told, and no guess when the plane is silent."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NoReturn

import pytest

import deepclean
from deepclean.connection import Connection
from deepclean.writer import MAX_FAILURES, PUT_BYTES_PER_COMMAND, PUTS_PER_COMMAND
from schemas.records import DeleteKeys, MetadataReply, PutKey, PutKeys, SnapshotReply
from services.client.errors import BusyError, NotDeliveredError, PlaneTimeoutError, UnreachableError
from services.client.plane import NamespaceCommand, SnapshotRequest
from services.plane.in_memory.client import InMemoryClient
from services.plane.in_memory.plane import InMemoryPlane


class WatchedClient(InMemoryClient):
    """A client of a plane in memory that notes what is sent, and fails as a test has it fail."""

    def __init__(self, plane: InMemoryPlane) -> None:
        super().__init__(plane)
        self.sent: list[NamespaceCommand] = []
        self.unanswered = self.most_unanswered = 0
        """Keys."""
        self.keys: dict[int, int] = {}
        """By number those of each unanswered command."""
        self.silent_from = 2**63
        """Number of the first command whose answer does not come."""
        self.refuses_to_send = False
        self.answer_waits = 0

    def submit(self, shard: int, command: NamespaceCommand) -> int:
        if self.refuses_to_send:
            raise NotDeliveredError("the queue is full", may_be_applied=False)
        self.sent.append(command)
        self.unanswered += (keys := len(getattr(command, "keys", ("one",))))
        self.most_unanswered = max(self.most_unanswered, self.unanswered)
        number = super().submit(shard, command)
        self.keys[number] = keys
        return number

    def answer(self, shard: int, number: int) -> MetadataReply:
        self.answer_waits += 1
        if number >= self.silent_from:
            raise PlaneTimeoutError(f"no answer to number {number}")
        self.unanswered -= self.keys.pop(number)
        return super().answer(shard, number)


@pytest.fixture
def client() -> WatchedClient:
    return WatchedClient(InMemoryPlane())


@pytest.fixture
def bucket(client: WatchedClient) -> Iterator[deepclean.Bucket]:
    with Connection(client) as plane:
        made = plane.volume("photos").create().bucket("holidays").create(deepclean.BucketLayout.OBJECT_STORE)
        client.sent.clear()
        yield made


def keys_of(bucket: deepclean.Bucket) -> list[str]:
    return [entry.path for entry in bucket.list()]


def test_commands_are_applied_in_the_order_of_the_calls(bucket: deepclean.Bucket, client: WatchedClient) -> None:
    with bucket.writer() as writer:
        for key in ("a", "b", "c"):
            writer.put(key, size_bytes=1, tag=key)
        writer.delete("a")
        writer.delete("b")
        writer.put("a", size_bytes=2)
        writer.delete("c")
    assert [type(command) for command in client.sent] == [PutKeys, DeleteKeys, PutKey, DeleteKeys]
    assert keys_of(bucket) == ["a"]
    assert (writer.put_count, writer.deleted_count) == (4, 3)
    assert bucket.stat("a").update_id < writer.txn == bucket.space().txn


def test_deletes_share_commands_up_to_a_thousand(bucket: deepclean.Bucket, client: WatchedClient) -> None:
    with bucket.writer() as writer:
        for number in range(1_001):
            writer.put(f"{number}", size_bytes=1)
        for number in range(1_001):
            writer.delete(f"{number}")
    deletes = [len(command.keys) for command in client.sent if isinstance(command, DeleteKeys)]
    assert deletes == [1_000, 1]
    assert (writer.deleted_count, keys_of(bucket)) == (1_001, [])


def test_puts_share_commands(bucket: deepclean.Bucket, client: WatchedClient) -> None:
    with bucket.writer() as writer:
        for number in range(PUTS_PER_COMMAND + 3):
            writer.put(f"{number}", size_bytes=number, tag=f"tag-{number}")
        writer.put("large", size_bytes=10, block_size_bytes=4)
        writer.put("plain", size_bytes=1)
        writer.put("plain too", size_bytes=1)
    shapes = [(type(one), len(one.keys), len(one.tags)) for one in client.sent if isinstance(one, PutKeys)]
    assert shapes == [(PutKeys, PUTS_PER_COMMAND, PUTS_PER_COMMAND), (PutKeys, 3, 3), (PutKeys, 2, 0)]
    assert [one.block_size_bytes for one in client.sent if isinstance(one, PutKey)] == [4]
    assert writer.put_count == PUTS_PER_COMMAND + 6
    entries = {entry.path: (entry.size_bytes, entry.tag) for entry in bucket.list()}
    assert entries["7"] == (7, "tag-7")
    assert (entries["large"], entries["plain too"]) == ((10, ""), (1, ""))
    assert writer.txn == bucket.stat("plain too").update_id == bucket.stat("plain").update_id + 1


def test_a_command_has_bounded_bytes(bucket: deepclean.Bucket, client: WatchedClient) -> None:
    with bucket.writer() as writer:
        for number in range(300):
            writer.put(f"{number:04000}", size_bytes=1)
    counts = [len(one.keys) for one in client.sent if isinstance(one, PutKeys)]
    assert sum(counts) == 300
    assert max(counts) * 4_000 < PUT_BYTES_PER_COMMAND + 4_000


def test_a_shard_whose_upgrade_is_not_finished_gets_a_command_for_each_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("services.plane.in_memory.plane.first_commands", lambda *_: ())
    client = WatchedClient(InMemoryPlane())
    bucket = Connection(client).volume("photos").create().bucket("holidays").create()
    client.sent.clear()
    with bucket.writer() as writer:
        for key in ("a", "b", "c"):
            writer.put(key, size_bytes=1)
    assert [type(command) for command in client.sent] == [PutKey] * 3
    assert keys_of(bucket) == ["a", "b", "c"]


@pytest.mark.parametrize(
    ("put", "error"),
    [
        ({"key": "bad\udcff"}, UnicodeEncodeError),
        ({"key": "a", "tag": None}, TypeError),
        ({"key": "a", "size_bytes": 2**63}, ValueError),
        ({"key": "a", "size_bytes": 1.5}, TypeError),
    ],
)
def test_what_no_message_can_have_fails_by_itself(
    bucket: deepclean.Bucket, put: dict[str, Any], error: type[Exception]
) -> None:
    with bucket.writer() as writer:
        writer.put("before", size_bytes=1)
        with pytest.raises(error):
            writer.put(**{"size_bytes": 1} | put)
        with pytest.raises(UnicodeEncodeError):
            writer.delete("bad\udcff")
        writer.put("behind", size_bytes=1)
    assert keys_of(bucket) == ["before", "behind"]


def test_the_level_is_asked_for_again_while_metadata_is_away(
    bucket: deepclean.Bucket, client: WatchedClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    metadata = client.metadata
    with bucket.writer() as writer:
        with monkeypatch.context() as patch:
            patch.setattr(client, "metadata", _away)
            writer.put("a", size_bytes=1)
            writer.put("b", size_bytes=1)
        writer.put("c", size_bytes=1)
        writer.put("d", size_bytes=1)
    assert [type(command) for command in client.sent] == [PutKey, PutKey, PutKeys]
    assert metadata(0).state().feature_level == 2


def _away(_shard: int) -> NoReturn:
    raise UnreachableError("metadata does not answer")


@pytest.mark.parametrize("bound", [1, 3, 20, 4_000])
def test_no_more_keys_are_unanswered_than_may_be(bucket: deepclean.Bucket, client: WatchedClient, bound: int) -> None:
    client.unanswered = client.most_unanswered = 0
    with bucket.writer(max_in_flight=bound) as writer:
        for number in range(3 * bound):
            writer.put(f"{number}", size_bytes=1)
            assert client.unanswered <= bound
    assert client.most_unanswered in (bound, bound - 1)
    assert client.unanswered == 0


@pytest.mark.parametrize("bound", [0, 20_001])
def test_the_bound_has_bounds(bucket: deepclean.Bucket, bound: int) -> None:
    with pytest.raises(ValueError, match="from 1 to 20,000"):
        bucket.writer(max_in_flight=bound)


def test_a_refused_key_stops_no_other_and_is_told_at_the_end(bucket: deepclean.Bucket) -> None:
    with (  # noqa: PT012
        pytest.raises(deepclean.BulkWriteError, match=r"^\.snapshot was not put: .* \(and 1 more\); 3 were") as told,
        bucket.writer() as writer,
    ):
        writer.put("a", size_bytes=1)
        writer.put(".snapshot", size_bytes=1)
        writer.delete("missing")
        writer.delete("a")
        writer.put("b", size_bytes=1)
    assert told.value.written == 3
    assert keys_of(bucket) == ["b"]
    first, second = told.value.failures
    assert (first.key, first.is_delete, first.is_refused) == (".snapshot", False, True)
    assert isinstance(first.error, deepclean.InvalidRequestError)
    assert (second.key, second.is_delete) == ("missing", True)
    assert isinstance(second.error, deepclean.NotFoundError)


def test_failures_are_passed_on_instead(bucket: deepclean.Bucket) -> None:
    failures: list[deepclean.KeyFailure] = []
    with bucket.writer(on_failure=failures.append) as writer:
        for number in range(MAX_FAILURES + 5):
            writer.delete(f"{number}")
        writer.put("a", size_bytes=1)
    assert len(failures) == MAX_FAILURES + 5
    assert keys_of(bucket) == ["a"]


@pytest.mark.parametrize("bound", [1, 5, 600, 5_000])
@pytest.mark.parametrize("kind", ["puts", "deletes", "both"])
def test_many_failures_end_a_writer_and_each_key_is_written_or_told(
    client: WatchedClient, bucket: deepclean.Bucket, kind: str, bound: int
) -> None:
    """A program that sends again what it is told of has then written all that it has passed."""
    passed: list[str] = []
    with pytest.raises(deepclean.BulkWriteError) as told, bucket.writer(max_in_flight=bound) as writer:  # noqa: PT012
        for number in range(10_000):
            is_good = number < 50
            passed.append(f"{number}" if is_good else f".snapshot/{number}")
            if is_good or kind == "puts" or (kind == "both" and number % 7 < 2):
                writer.put(passed[-1], size_bytes=1)
            else:
                writer.delete(passed[-1])
    assert told.value.written == 50
    assert keys_of(bucket) == sorted(passed[:50])
    assert sorted(failure.key for failure in told.value.failures) == sorted(passed[50:])
    assert not any(failure.may_be_written for failure in told.value.failures), "all is refused, or was not sent"
    assert client.unanswered == 0, "what was sent is waited for"
    assert len(passed) <= 50 + MAX_FAILURES + bound + 1_000


def test_silence_ends_a_writer_and_what_is_not_known_is_not_called_refused(
    client: WatchedClient, bucket: deepclean.Bucket
) -> None:
    client.silent_from = 2 + 5 + 1  # behind volume, bucket and five puts
    client.answer_waits = 0
    passed: list[str] = []
    with pytest.raises(deepclean.BulkWriteError) as told, bucket.writer(max_in_flight=7) as writer:  # noqa: PT012
        for number in range(20):
            passed.append(f"{number:02}")
            writer.put(passed[-1], size_bytes=1)
    assert told.value.written == 5
    assert [one.key for one in told.value.failures] == passed[5:]
    assert not any(one.is_refused for one in told.value.failures)
    assert client.answer_waits == 5 + 2, "each answer that is missing would take a minute"
    assert len(client.sent) == 5 + 7, "nothing is sent again"


def test_what_waits_behind_silence_is_told_and_was_not_sent(client: WatchedClient, bucket: deepclean.Bucket) -> None:
    client.silent_from = 2 + 1  # behind volume and bucket
    failures: list[deepclean.KeyFailure] = []
    writer = bucket.writer(max_in_flight=8, on_failure=failures.append)
    for key in ("a", "b", "c"):
        writer.put(key, size_bytes=1)
    for key in "defgh":
        writer.delete(key)
    with pytest.raises(PlaneTimeoutError):
        writer.delete("i")
    assert [one.key for one in failures] == list("abcdefghi")
    assert [one.is_delete for one in failures] == [False] * 3 + [True] * 6
    assert [one.may_be_written for one in failures] == [True] * 7 + [False] * 2
    assert len(client.sent) == 4


def test_silence_is_raised_also_when_failures_are_passed_on(client: WatchedClient, bucket: deepclean.Bucket) -> None:
    failures: list[deepclean.KeyFailure] = []
    client.silent_from = 3
    with pytest.raises(PlaneTimeoutError), bucket.writer(on_failure=failures.append) as writer:
        writer.put("a", size_bytes=1)
    assert [one.key for one in failures] == ["a"]


def test_what_cannot_be_sent_ends_a_writer_with_what_was_sent(client: WatchedClient, bucket: deepclean.Bucket) -> None:
    with (  # noqa: PT012
        pytest.raises(deepclean.BulkWriteError, match=r"^b was not put: the queue is full; 1 were"),
        bucket.writer(max_in_flight=1) as writer,
    ):
        writer.put("a", size_bytes=1)
        client.refuses_to_send = True
        writer.put("b", size_bytes=1)
    client.refuses_to_send = False
    assert keys_of(bucket) == ["a"]


def test_an_error_of_the_block_is_raised_and_waits_for_nothing(client: WatchedClient, bucket: deepclean.Bucket) -> None:
    client.silent_from = 0
    with pytest.raises(ZeroDivisionError), bucket.writer() as writer:
        writer.put("a", size_bytes=1 // 0)


class BusyClient(InMemoryClient):
    """A client whose first commands about buckets find the bucket busy."""

    refusals = 2

    def answer(self, shard: int, number: int) -> MetadataReply:
        reply = super().answer(shard, number)
        if self.refusals and reply.error == "BUCKET_NOT_FOUND":
            self.refusals -= 1
            return MetadataReply(reply.client_id, number, 0, "BUCKET_BUSY", "a rollback runs")
        return reply


@pytest.mark.parametrize(("busy_seconds", "expected"), [(0.0, BusyError), (30.0, deepclean.NotFoundError)])
def test_what_a_busy_bucket_refuses_is_asked_again(busy_seconds: float, expected: type[Exception]) -> None:
    client = BusyClient(InMemoryPlane())
    bucket = Connection(client, busy_seconds=busy_seconds).volume("photos").create().bucket("holidays")
    with pytest.raises(expected):
        bucket.put("key", size_bytes=1)
    assert client.refusals == (1 if busy_seconds == 0 else 0)


class RefusingClient(InMemoryClient):
    """A client whose requests to the snapshots service find the bucket busy."""

    requests = 0

    def request(self, shard: int, request: SnapshotRequest) -> SnapshotReply:
        self.requests += 1
        return SnapshotReply("client", self.requests, "BUCKET_BUSY", "the snapshot is not the newest one")


def test_a_rollback_is_not_asked_for_again() -> None:
    """It may have deleted the newer snapshots; a second one would delete what was made since."""
    client = RefusingClient(InMemoryPlane())
    bucket = Connection(client).volume("photos").create().bucket("holidays").create()
    with pytest.raises(BusyError):
        bucket.roll_back("first")
    assert client.requests == 1
