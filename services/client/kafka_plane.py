"""A client of a running plane: commands over Kafka, reads over HTTP."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial

from schemas.access import group_prefix
from schemas.credentials import KafkaCredentials
from schemas.records import MessageHeader, MetadataReply, SnapshotReply
from schemas.topics import CLIENTS, METADATA_COMMANDS
from services.client.errors import UnreachableError
from services.client.plane import NamespaceCommand, SnapshotRequest
from services.client.wire.block_store import HttpBlockStore
from services.client.wire.http_reads import HttpMetadataReads, HttpScmReads, HttpShard, HttpSnapshotReads, http_client
from services.client.wire.http_space_reads import HttpSpaceReads
from services.client.wire.kafka_commands import KafkaCommands
from services.client.wire.owners import FollowedOwner
from services.domain.errors import DeepcleanError, TopicMissingError
from services.domain.volume_placement import DONE_MS, ShardLoad
from services.log.clock import SystemClock
from services.log.kafka import KafkaLog
from services.log.owner_topic import OwnerTopic
from services.log.plane_topic import PlaneTopic
from services.log.signing import Signer
from services.log.volume_topic import VolumeTopic

ANSWER_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class PlaneAddress:
    """The addresses of a plane."""

    bootstrap_servers: str
    shards: int
    metadata_url: str
    """Empty, as the other URLs, if the owners of shards may move: then their topic says where they are."""
    snapshots_url: str
    scm_url: str
    credentials: KafkaCredentials | None = None
    signer: Signer | None = None
    http_token: str = field(default="", repr=False)


class KafkaPlane:
    """One client of a running plane; implements the port ``services.client.plane.Plane``.

    It connects to the broker at its first command: reads need no broker. Safe to use from several threads.
    """

    def __init__(
        self,
        address: PlaneAddress,
        *,
        answer_seconds: float = ANSWER_SECONDS,
        settle_seconds: float = 900.0,
        max_unanswered: int = 20_000,
        check: Callable[[], None] = lambda: None,
    ) -> None:
        """``check`` is called during waits; an exception that it raises ends the wait."""
        self.address = address
        self.shards = address.shards
        """Their number, as far as this client knows; it grows when shards are added."""
        self._http = http_client(address.http_token)
        self._connecting = threading.Lock()
        self._connected: KafkaCommands | None = None
        self._connect = partial(
            KafkaCommands,
            address.bootstrap_servers,
            answer_seconds=answer_seconds,
            settle_seconds=settle_seconds,
            max_unanswered=max_unanswered,
            check=check,
            credentials=address.credentials,
            signer=address.signer,
        )

    def connect(self) -> None:
        """Connect to the broker now, in place of at the first command.

        Raises:
            UnreachableError: the broker does not answer.
        """
        self._commands()

    def _commands(self) -> KafkaCommands:
        if (connected := self._connected) is not None:
            return connected
        with self._connecting:
            if self._connected is None:
                self._connected = self._connect(self.shards)
            return self._connected

    def learn_shards(self) -> int:
        """Ask the log how many shards the plane has now, and use all of them; return their number.

        Raises:
            UnreachableError: the broker does not answer.
        """
        try:
            shards = self._plane_topic.shards()
        except TopicMissingError:  # a plane of an older program, to which no shards are added while it runs
            return self.shards
        except DeepcleanError as error:
            raise UnreachableError(
                f"the number of shards cannot be read ({error}): see that the broker runs"
            ) from error
        with self._connecting:
            if shards > self.shards:
                if self._connected is not None:
                    self._connected.cover(shards)
                self.shards = shards
            return self.shards

    def load(self, shard: int) -> ShardLoad:
        """Return what a shard keeps, as metadata says, and does, as its log says.

        Raises:
            UnreachableError: one of both does not answer.
        """
        kept = HttpMetadataReads(self._metadata_shard(shard)).kept().database_bytes
        commands, log = METADATA_COMMANDS.name, self._log
        try:
            since = log.offset_since(commands, shard, SystemClock().now_ms() - DONE_MS)
            return ShardLoad(kept, log.end_offset(commands, shard) - since)
        except DeepcleanError as error:
            raise UnreachableError(
                f"what shard {shard} does is not known ({error}): see that the broker runs"
            ) from error

    def place_volume(self, volume: str, chosen: int) -> int:
        """Have the name of a new volume belong to a shard for ever. Return ``chosen``, or an earlier choice.

        Raises:
            UnreachableError: the broker does not answer; a repeat goes on from there.
        """
        try:
            return self._volume_topic.place(volume, chosen)
        except TopicMissingError:  # a plane of an older program
            return chosen
        except DeepcleanError as error:
            raise UnreachableError(
                f"the shard of {volume} cannot be read ({error}): see that the broker runs"
            ) from error

    def owner_url(self, service: str, shard: int) -> str:
        """Return where the owner of a shard that may move answers; empty if nobody has said it yet.

        Raises:
            UnreachableError: the broker does not answer.
        """
        return FollowedOwner(lambda: self._owner_topic, service, shard).newest_url()

    def owner_urls(self, services: Iterable[str], shards: int) -> dict[tuple[str, int], str]:
        """Return where the owners of all shards of some services answer, as far as anybody has said it.

        Raises:
            UnreachableError: the broker does not answer.
        """
        places = [(service, shard) for service in services for shard in range(shards)]
        if places:
            self.owner_url(*places[0])  # reads the topic to its end
        return {place: url for place in places if (url := self._owner_topic.url(*place))}

    def submit(self, shard: int, command: NamespaceCommand) -> int:
        """Send a command; wait only if too many are unanswered. Return its number."""
        if shard >= self.shards:
            self.learn_shards()
        return self._commands().submit(shard, command)

    def answer(self, shard: int, number: int) -> MetadataReply:
        """Wait for the answer to a submitted command and return it."""
        return self._commands().answer(shard, number)

    def request(self, shard: int, request: SnapshotRequest) -> SnapshotReply:
        """Send a request to the snapshots service, after all earlier commands; wait for its answer and return it."""
        if shard >= self.shards:
            self.learn_shards()
        return self._commands().request(shard, request)

    def send_again(
        self, topic: str, partition: int, value: bytes, key: bytes, headers: Sequence[MessageHeader]
    ) -> None:
        """Append a message to a partition of any topic; return when the broker has it."""
        self._commands().send_again(topic, partition, value, key, headers)

    def _answered_txn(self, shard: int) -> int:
        return 0 if self._connected is None else self._connected.answered_txn(shard)

    def _metadata_shard(self, shard: int) -> HttpShard:
        return self._shard("metadata", self.address.metadata_url, shard, lambda: self._answered_txn(shard))

    def _shard(self, service: str, url: str, shard: int, answered_txn: Callable[[], int] = lambda: 0) -> HttpShard:
        owner = None if url else FollowedOwner(lambda: self._owner_topic, service, shard)
        return HttpShard(self._http, service, url, shard, answered_txn, owner)

    @cached_property
    def _log(self) -> KafkaLog:
        """The log: many clients only read over HTTP, and need no connection to it."""
        name = group_prefix(CLIENTS) + "owners"
        return KafkaLog(self.address.bootstrap_servers, name, credentials=self.address.credentials)

    @cached_property
    def _owner_topic(self) -> OwnerTopic:
        return OwnerTopic(self._log)

    @cached_property
    def _plane_topic(self) -> PlaneTopic:
        return PlaneTopic(self._log)

    @cached_property
    def _volume_topic(self) -> VolumeTopic:
        return VolumeTopic(self._log)

    def metadata(self, shard: int) -> HttpMetadataReads:
        """Return reads that include the effects of all commands answered so far."""
        return HttpMetadataReads(self._metadata_shard(shard))

    def space(self, shard: int) -> HttpSpaceReads:
        """Return reads about space that include the effects of all commands answered so far."""
        return HttpSpaceReads(self._metadata_shard(shard))

    def snapshots(self, shard: int) -> HttpSnapshotReads:
        """Return the reads of the snapshots service."""
        return HttpSnapshotReads(self._shard("snapshots", self.address.snapshots_url, shard))

    def scm(self, shard: int) -> HttpScmReads:
        """Return the reads of the storage container manager."""
        return HttpScmReads(self._shard("mock_scm", self.address.scm_url, shard))

    def block_store(self, shard: int) -> HttpBlockStore:
        """Return the block store of a shard."""
        return HttpBlockStore(self._shard("mock_scm", self.address.scm_url, shard))

    def close(self) -> None:
        """Deliver the submitted commands, and close the connections."""
        if self._connected is not None:
            self._connected.close()
        self._http.close()

    def __enter__(self) -> KafkaPlane:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
