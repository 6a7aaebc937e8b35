"""One client of a plane: its volumes, and below them the commands and reads of a shard."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from uuid import uuid4

from deepclean.calls import BUSY_SECONDS, Calls
from deepclean.volume import Volume
from schemas.records import MessageHeader, MetadataReply, Settle, SnapshotReply, VolumeRow
from services.client.plane import (
    BlockStore,
    MetadataReads,
    NamespaceCommand,
    Plane,
    ScmReads,
    SnapshotReads,
    SnapshotRequest,
    SpaceReads,
    accepted,
)
from services.client.wire.paging import all_rows
from services.domain.volume_placement import ShardLoad


class Connection:
    """A client of a plane, which ``connect`` makes. Threads may share it; closing it delivers what was submitted.

    Start with ``volume`` to get the objects. The other methods, from ``submit`` on, are the layer below: commands and
    reads of one shard, for what the objects have no method for. Refusals of commands are then replies with ``error``.
    """

    def __init__(self, plane: Plane, *, busy_seconds: float = BUSY_SECONDS) -> None:
        """``busy_seconds``: for how long commands are repeated if their bucket is busy."""
        self._plane = plane
        self._calls = Calls(plane, busy_seconds)

    def volume(self, name: str) -> Volume:
        """Return a volume by its name, whether it exists or not."""
        return Volume(self._calls, name)

    def volumes(self, *, user: str = "") -> Iterator[VolumeRow]:
        """Yield the rows of all volumes, or of those that a user owns, shard by shard, each shard's by name."""
        for shard in range(self._plane.learn_shards()):
            reads = self._plane.metadata(shard)

            def page(after: str, limit: int, reads: MetadataReads = reads) -> list[VolumeRow]:
                return reads.volumes(user=user, start_after=after, limit=limit)

            yield from all_rows(page, lambda row: row.volume)

    def settle(self) -> None:
        """Wait until no shard has anything left to do: all that may be freed is freed.

        This ends the undo windows of all earlier deletions, those of other users, too, and ignores purge hours and
        rates. On a secured plane only an administrator may do it.

        Raises:
            NotAllowedError: the client is no administrator.
            PlaneTimeoutError: the plane has not come to rest in time.
        """
        for shard in range(self._plane.learn_shards()):
            accepted(self._plane.request(shard, Settle(str(uuid4()))))

    @property
    def shards(self) -> int:
        """Number of shards, as far as this client knows; it grows when shards are added."""
        return self._plane.shards

    @shards.setter
    def shards(self, number: int) -> None:
        self._plane.shards = number

    def learn_shards(self) -> int:
        """Ask how many shards the plane has now, and use all of them; return their number."""
        return self._plane.learn_shards()

    def load(self, shard: int) -> ShardLoad:
        """Return the load of a shard: the bytes of metadata's database, and its number of commands in the last hour."""
        return self._plane.load(shard)

    def place_volume(self, volume: str, chosen: int) -> int:
        """Have the name of a new volume belong to a shard for ever. Return ``chosen``, or an earlier choice."""
        return self._plane.place_volume(volume, chosen)

    def submit(self, shard: int, command: NamespaceCommand) -> int:
        """Send a command; wait only if too many are unanswered. Return its number."""
        return self._plane.submit(shard, command)

    def answer(self, shard: int, number: int) -> MetadataReply:
        """Wait for the answer to a submitted command and return it, once."""
        return self._plane.answer(shard, number)

    def request(self, shard: int, request: SnapshotRequest) -> SnapshotReply:
        """Send a request to the snapshots service, after all earlier commands; wait for its answer and return it."""
        return self._plane.request(shard, request)

    def send_again(
        self, topic: str, partition: int, value: bytes, key: bytes, headers: Sequence[MessageHeader]
    ) -> None:
        """Append a message unchanged to a partition of any topic; return when the log has it."""
        self._plane.send_again(topic, partition, value, key, headers)

    def metadata(self, shard: int) -> MetadataReads:
        """Return reads of metadata that include the effects of all commands answered so far."""
        return self._plane.metadata(shard)

    def space(self, shard: int) -> SpaceReads:
        """Return reads about space that include the effects of all commands answered so far."""
        return self._plane.space(shard)

    def snapshots(self, shard: int) -> SnapshotReads:
        """Return the reads of the snapshots service."""
        return self._plane.snapshots(shard)

    def scm(self, shard: int) -> ScmReads:
        """Return the reads of the storage container manager."""
        return self._plane.scm(shard)

    def block_store(self, shard: int) -> BlockStore:
        """Return the block store of a shard."""
        return self._plane.block_store(shard)

    def close(self) -> None:
        """Deliver the submitted commands, and close the connections."""
        self._plane.close()

    def __enter__(self) -> Connection:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
