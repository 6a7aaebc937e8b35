"""The snapshot chain as the Spark job follows it on a real broker, shard by shard."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from schemas.codec import codec
from schemas.records import ChainCapture, ChainedBucket, ChainedSnapshot, FullChain, SnapshotChainRecord
from schemas.topics import DELETED_ENTRIES, SNAPSHOT_CHAIN
from services.plane.broker.embedded import EmbeddedBroker
from services.plane.broker.topics import create_topics
from streaming.reclaiming.chain import ChainReader

pytestmark = [pytest.mark.broker, pytest.mark.timeout(120)]

BUCKET = 256
MARKERS = codec(SnapshotChainRecord)
CAPTURES = [SnapshotChainRecord(n, n - 1, ChainCapture(BUCKET, f"s{n}", n, 100 * n)) for n in range(1, 4)]
WHOLE = SnapshotChainRecord(
    3,
    3,
    FullChain((ChainedBucket(BUCKET, tuple(ChainedSnapshot(f"s{n}", n, 100 * n, is_live=True) for n in (1, 2, 3))),)),
)


class Chains:
    """A broker with the topics that a reader asks for, and a reader of two shards."""

    def __init__(self, bootstrap_servers: str) -> None:
        self._bootstrap_servers = bootstrap_servers
        self.grow([SNAPSHOT_CHAIN.name, DELETED_ENTRIES.name], 2)
        self.reader = ChainReader(bootstrap_servers, 2)

    def grow(self, topics: list[str], partitions: int) -> None:
        create_topics(self._bootstrap_servers, {name: {} for name in topics}, partitions)

    def send(self, shard: int, *sent: SnapshotChainRecord | bytes) -> None:
        producer = Producer({"bootstrap.servers": self._bootstrap_servers})
        for one in sent:
            message = one if isinstance(one, bytes) else MARKERS.encode_message(one)
            producer.produce(SNAPSHOT_CHAIN.name, message, partition=shard)
        assert producer.flush(30) == 0

    def trim(self, shard: int, until: int) -> None:
        with AdminClient({"bootstrap.servers": self._bootstrap_servers}) as admin:
            answers = admin.delete_records([TopicPartition(SNAPSHOT_CHAIN.name, shard, until)])
            for answer in answers.values():
                answer.result()

    @property
    def versions(self) -> list[int | None]:
        return [None if chain.trouble else chain.view.version for chain in self.reader.chains]


@pytest.fixture
def chains(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chains]:
    """On a broker of its own: the topic has a fixed name."""
    with EmbeddedBroker(tmp_path_factory.mktemp("broker")) as started:
        made = Chains(started.bootstrap_servers)
        yield made
        made.reader.close()


def test_each_shard_is_followed_for_itself_and_new_ones_join_in(chains: Chains) -> None:
    reader = chains.reader
    chains.send(0, *CAPTURES[:2])
    chains.send(1, CAPTURES[0], CAPTURES[2])
    assert reader.advance() == {(0, BUCKET), (1, BUCKET)}
    assert chains.versions == [2, None]

    chains.grow([SNAPSHOT_CHAIN.name], 3)
    assert not reader.cover(3, [DELETED_ENTRIES]), "another topic has not got its partition"
    chains.grow([DELETED_ENTRIES.name], 3)
    assert reader.cover(3, [DELETED_ENTRIES])
    chains.send(2, CAPTURES[0])
    chains.send(1, WHOLE)
    chains.send(0, CAPTURES[2])
    assert reader.advance() == {(0, BUCKET), (1, BUCKET), (2, BUCKET)}
    assert chains.versions == [3, 3, 1]

    reader.chains[1].next_offset += 1  # as if the topic had been longer
    assert reader.advance() == {(1, BUCKET)}
    assert chains.versions == [3, 3, 1], "read anew, it comes to where it was"

    chains.send(0, WHOLE)
    chains.trim(0, 3)
    reader.chains[0].next_offset = 1  # as if it had been slower than those who trim
    reader._assign()
    assert reader.advance() == {(0, BUCKET)}
    assert chains.versions == [3, 3, 1]
    assert [reader.views[0].bounds(BUCKET, n)[1] for n in range(4)] == [0, 100, 200, 300]
