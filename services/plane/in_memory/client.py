"""A client of the plane in memory: it appends commands to the plane's log and reads the services' tables directly."""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Sequence
from typing import Any, NoReturn

from schemas.answers import (
    BucketSpace,
    CollectionStatus,
    DeadLetterBytes,
    DeadLetterCount,
    DiffJob,
    ListedDeletion,
    ListedEntry,
    ListedOpenKey,
    ListedToken,
    ListedVersion,
    RetentionPreview,
    ScmTotals,
    SnapshotConsumer,
    SnapshotTag,
)
from schemas.codec import codec
from schemas.records import (
    AccessIdRow,
    Acl,
    AclObject,
    BlockRun,
    BucketRow,
    DeadLetterRow,
    DirectoryRow,
    KeyRow,
    MessageHeader,
    MetadataCommand,
    MetadataReply,
    PartRow,
    RetentionPolicy,
    RetentionRow,
    ShardState,
    SnapshotCommand,
    SnapshotInfo,
    SnapshotReply,
    TenantRow,
    UploadRow,
    VolumeRow,
)
from schemas.topics import METADATA_COMMANDS, METADATA_REPLIES, SNAPSHOTS_COMMANDS, SNAPSHOTS_REPLIES, Topic
from services.client.errors import PlaneError, PlaneTimeoutError
from services.client.plane import SENDERS, NamespaceCommand, SnapshotRequest
from services.client.wire.answers import Answers
from services.domain.snapshot_diff import DiffEntry
from services.domain.volume_placement import DONE_MS, ShardLoad
from services.log.signing import Signer, signed_command
from services.log.volume_topic import VolumeTopic
from services.metadata.diffs.api import DiffJobsOfShards
from services.metadata.diffs.jobs import DiffJobs
from services.metadata.reads import queries as metadata_queries
from services.metadata.reads import tenant_queries, writing_queries
from services.metadata.reads.acl_queries import acls_of
from services.metadata.reads.collection_queries import collection_status
from services.metadata.reads.deleted_queries import list_deleted
from services.metadata.settings import MetadataSettings
from services.mock_scm import queries as scm_queries
from services.plane.in_memory.plane import InMemoryPlane
from services.plane.in_memory.refusals import refusals
from services.plane.in_memory.space_reads import InMemorySpaceReads
from services.snapshots.reads import dead_letter_queries, retention_queries
from services.snapshots.reads import queries as snapshot_queries
from services.snapshots.reads.dead_letter_queries import Wanted
from services.storage.tables import TablesReader


class InMemoryClient:
    """One client of a plane in memory; implements the port ``services.client.plane.Plane``."""

    def __init__(self, plane: InMemoryPlane, client_id: str = "client", signer: Signer | None = None) -> None:
        self._signer = signer
        self.plane = plane
        self.shards = plane.shards
        self._client_id = client_id
        self._answers: defaultdict[tuple[str, int], Answers[Any]] = defaultdict(Answers)
        """Answers by topic of the replies and shard."""
        self._read_to: dict[tuple[str, int], int] = {}
        self._diffs = DiffJobsOfShards(MetadataSettings(diff_threads=0), clock=plane.clock)
        self._volumes = VolumeTopic(plane.log)

    def learn_shards(self) -> int:
        """Use all shards that the plane has now; return their number."""
        self.shards = self.plane.shards
        return self.shards

    def load(self, shard: int) -> ShardLoad:
        """Return what a shard does. What it keeps is not counted."""
        log, commands = self.plane.log, METADATA_COMMANDS.name
        since = log.offset_since(commands, self._served(shard), self.plane.clock.now_ms() - DONE_MS)
        return ShardLoad(0, log.end_offset(commands, shard) - since)

    def place_volume(self, volume: str, chosen: int) -> int:
        """Have the name of a new volume belong to a shard for ever. Return ``chosen``, or an earlier choice."""
        return self._volumes.place(volume, chosen)

    def submit(self, shard: int, command: NamespaceCommand) -> int:
        """Append a command to the log. Return its number."""
        number = self._answers[METADATA_REPLIES.name, shard].sent()
        sender = SENDERS.get(type(command), "")
        self._append(METADATA_COMMANDS, shard, MetadataCommand(shard, self._client_id, number, command, sender))
        return number

    def answer(self, shard: int, number: int) -> MetadataReply:
        """Run the plane until the command is answered, and return the answer."""
        reply: MetadataReply = self._wait(METADATA_REPLIES, shard, number)
        return reply

    def request(self, shard: int, request: SnapshotRequest) -> SnapshotReply:
        """Append a request to the log, run the plane until it is answered, and return the answer."""
        number = self._answers[SNAPSHOTS_REPLIES.name, shard].sent()
        self._append(SNAPSHOTS_COMMANDS, shard, SnapshotCommand(shard, self._client_id, number, request))
        reply: SnapshotReply = self._wait(SNAPSHOTS_REPLIES, shard, number)
        return reply

    def _append(self, topic: Topic, shard: int, record: Any) -> None:
        value = signed_command(topic, record, self._signer, self.plane.clock.now_ms())
        self.plane.log.append(topic.name, self._served(shard), value)

    def _wait(self, topic: Topic, shard: int, number: int) -> Any:
        answers = self._answers[topic.name, shard]

        def is_answered() -> bool:
            self._read(topic, shard)
            return number not in answers.unanswered

        if not is_answered() and not self.plane.run_until(is_answered):
            raise PlaneTimeoutError(f"no answer to number {number} on {topic.name}: the plane stands still")
        return answers.pop_answer(number)

    def _read(self, topic: Topic, shard: int) -> None:
        """Store the new replies to this client as answers."""
        records, answers = self.plane.log.records(topic.name, shard), self._answers[topic.name, shard]
        for record in records[self._read_to.get((topic.name, shard), 0) :]:
            reply = codec(topic.record).decode_message(record.value)
            if reply.client_id == self._client_id:
                answers.answered(reply.number, reply)
        self._read_to[topic.name, shard] = len(records)

    def send_again(
        self, topic: str, partition: int, value: bytes, key: bytes, headers: Sequence[MessageHeader]
    ) -> None:
        """Append a message to a partition of any topic."""
        named = [(header.name, header.value) for header in headers]
        self.plane.log.append(topic, self._served(partition), value, key, named)

    def _served(self, shard: int) -> int:
        """Return the shard. Raise PlaneError if the plane does not have it, as a real service does."""
        if shard not in range(self.shards):
            raise PlaneError("WRONG_SHARD", f"shard {shard} is not one of the {self.shards} of this plane")
        return shard

    def metadata(self, shard: int) -> InMemoryMetadataReads:
        """Return the reads of one shard's metadata."""
        return InMemoryMetadataReads(self.plane, self._served(shard), self._diffs)

    def space(self, shard: int) -> InMemorySpaceReads:
        """Return the reads of one shard's space."""
        return InMemorySpaceReads(self.plane, self._served(shard))

    def snapshots(self, shard: int) -> InMemorySnapshotReads:
        """Return the reads of one shard's snapshots."""
        return InMemorySnapshotReads(self.plane, self._served(shard))

    def scm(self, shard: int) -> InMemoryScmReads:
        """Return the reads of one shard's storage container manager."""
        return InMemoryScmReads(self.plane, self._served(shard))

    def block_store(self, shard: int) -> NoReturn:
        """Raise PlaneError: a plane in memory has no datanodes."""
        raise PlaneError("NOT_SUPPORTED_OPERATION", f"shard {shard} of a plane in memory has no datanodes")

    def close(self) -> None:
        """Do nothing: the client has no connections."""


def _rows(limit: int | None) -> int:
    """Return the page size for a limit; None means all rows."""
    return sys.maxsize if limit is None else limit


class InMemoryMetadataReads:
    """Reads of one shard's metadata."""

    def __init__(self, plane: InMemoryPlane, shard: int, diffs: DiffJobsOfShards) -> None:
        self._store = plane.processes["metadata", shard].store
        self._shard = shard
        self._jobs = diffs
        self._undo_window_ms = plane.undo_window_ms

    def _tables(self, snapshot_id: str = "") -> TablesReader:
        if not snapshot_id:
            return TablesReader(self._store)
        try:
            return TablesReader(self._store.open_checkpoint(snapshot_id))
        except KeyError:
            raise metadata_queries.missing_snapshot(TablesReader(self._store), snapshot_id) from None

    def state(self) -> ShardState:
        """Return the shard's counters."""
        return metadata_queries.shard_state(self._tables())

    def volumes(self, *, user: str = "", start_after: str = "", limit: int | None = None) -> list[VolumeRow]:
        """Return the volumes by name, or those of a user."""
        if user:
            with refusals():
                return metadata_queries.list_volumes_of(self._tables(), user, start_after, _rows(limit))
        return metadata_queries.list_volumes(self._tables(), start_after, _rows(limit))

    def acl(self, kind: AclObject, volume: str, bucket: str = "", path: str = "") -> list[Acl]:
        """Return the access list of an object."""
        with refusals():
            return list(acls_of(self._tables(), kind, volume, bucket, path))

    def tenants(self, *, start_after: str = "", limit: int | None = None) -> list[TenantRow]:
        """Return the tenants by name."""
        return tenant_queries.list_tenants(self._tables(), start_after, _rows(limit))

    def access_ids(
        self, tenant: str = "", user: str = "", *, start_after: str = "", limit: int | None = None
    ) -> list[AccessIdRow]:
        """Return all access ids, those of a tenant or those of a user."""
        return tenant_queries.list_access_ids(self._tables(), tenant, user, start_after, _rows(limit))

    def delegation_tokens(
        self, owner: str = "", *, start_after: str = "", limit: int | None = None
    ) -> list[ListedToken]:
        """Return all delegation tokens, or those of an owner, without their secrets."""
        return tenant_queries.list_tokens(self._tables(), owner, start_after, _rows(limit))

    def buckets(self, volume: str, *, start_after: str = "", limit: int | None = None) -> list[BucketRow]:
        """Return the buckets of a volume by name."""
        return metadata_queries.list_buckets(self._tables(), volume, start_after, _rows(limit))

    def bucket(self, volume: str, bucket: str) -> BucketRow:
        """Return one bucket."""
        with refusals():
            return metadata_queries.get_bucket(self._tables(), volume, bucket)

    def entries(
        self,
        volume: str,
        bucket: str,
        *,
        snapshot_id: str = "",
        prefix: str = "",
        start_after: str = "",
        limit: int | None = None,
    ) -> list[ListedEntry]:
        """Return the keys and directories behind a path, in walk order."""
        with refusals():
            tables = self._tables(snapshot_id)
            row = metadata_queries.get_bucket(tables, volume, bucket)
            return metadata_queries.list_entries(tables, row, prefix, start_after, _rows(limit))

    def deleted(
        self, volume: str, bucket: str, *, start_after: str = "", limit: int | None = None
    ) -> list[ListedDeletion]:
        """Return the deletions that are not claimed yet, oldest death first."""
        tables = self._tables()
        with refusals():
            row = metadata_queries.get_bucket(tables, volume, bucket)
            return list_deleted(tables, row, start_after, _rows(limit), self._undo_window_ms)

    def stat(
        self, volume: str, bucket: str, path: str, *, snapshot_id: str = "", version: int = 0
    ) -> KeyRow | DirectoryRow:
        """Return one key or directory, or one version of a key by its id."""
        with refusals():
            tables = self._tables(snapshot_id)
            if version:
                row = metadata_queries.get_bucket(tables, volume, bucket)
                return metadata_queries.stat_version(tables, row, path, version)
            return metadata_queries.stat(tables, metadata_queries.get_bucket(tables, volume, bucket), path)

    def versions(self, volume: str, bucket: str, key: str, *, snapshot_id: str = "") -> list[ListedVersion]:
        """Return the versions of a key, oldest first."""
        with refusals():
            tables = self._tables(snapshot_id)
            row = metadata_queries.get_bucket(tables, volume, bucket)
            return metadata_queries.list_versions(tables, row, key, limit=sys.maxsize)

    def key_blocks(self, volume: str, bucket: str, path: str, *, snapshot_id: str = "") -> list[BlockRun]:
        """Return all runs of blocks of a key, in the order of its contents."""
        with refusals():
            tables = self._tables(snapshot_id)
            return metadata_queries.key_blocks(tables, metadata_queries.get_bucket(tables, volume, bucket), path)

    def open_keys(
        self, volume: str, bucket: str, *, start_after: str = "", limit: int | None = None
    ) -> list[ListedOpenKey]:
        """Return the keys that clients are writing."""
        return writing_queries.list_open_keys(self._tables(), self.bucket(volume, bucket), start_after, _rows(limit))

    def uploads(self, volume: str, bucket: str, *, start_after: str = "", limit: int | None = None) -> list[UploadRow]:
        """Return the uploads of a bucket by key."""
        return writing_queries.list_uploads(self._tables(), self.bucket(volume, bucket), start_after, _rows(limit))

    def parts(self, volume: str, bucket: str, key: str, upload_id: str) -> list[PartRow]:
        """Return the parts of an upload by number."""
        with refusals():
            row = self.bucket(volume, bucket)
            return writing_queries.list_parts(self._tables(), row, key, upload_id, limit=sys.maxsize)

    def space(self, volume: str, bucket: str, *, start_after: str = "", limit: int = 1_000) -> BucketSpace:
        """Return the space of a bucket with a page of its cells."""
        return metadata_queries.bucket_space(self._tables(), self.bucket(volume, bucket), start_after, limit)

    def collection(self, volume: str = "", bucket: str = "") -> list[CollectionStatus]:
        """Return the collection state of the shard, then that of one bucket or of all suspended buckets."""
        with refusals():
            return collection_status(self._tables(), volume, bucket, limit=sys.maxsize, shard=self._shard)

    def ask_for_diff(
        self, volume: str, bucket: str, *, from_snapshot_id: str = "", to_snapshot_id: str = ""
    ) -> DiffJob:
        """Compute a diff of two states of a bucket; the returned job has ended."""
        with refusals():
            return self._diffs().ask(volume, bucket, from_snapshot_id, to_snapshot_id)

    def diff_job(self, job_id: str, *, wait_seconds: int = 0) -> DiffJob:
        """Return the result of a diff."""
        with refusals():
            return self._diffs().job(job_id, wait_seconds)

    def diff_jobs(self, volume: str, bucket: str) -> list[DiffJob]:
        """Return the stored diffs of a bucket, oldest first."""
        return self._diffs().jobs(volume, bucket)

    def cancel_diff(self, job_id: str) -> DiffJob:
        """Raise PlaneError: every diff has ended before a client can cancel it."""
        with refusals():
            return self._diffs().cancel(job_id)

    def diff_entries(self, job_id: str, *, start_after: int = 0, limit: int) -> list[DiffEntry]:
        """Return a page of a diff."""
        with refusals():
            return self._diffs().entries(job_id, start_after, limit)

    def _diffs(self) -> DiffJobs:
        return self._jobs.of(self._shard, self._store)


class InMemorySnapshotReads:
    """Reads of one shard's snapshots."""

    def __init__(self, plane: InMemoryPlane, shard: int) -> None:
        self._tables = TablesReader(plane.processes["snapshots", shard].store)
        self._clock = plane.clock

    def snapshots(self, volume: str, bucket: str, *, with_deleted: bool = False) -> list[SnapshotInfo]:
        """Return the snapshots of a bucket in chain order."""
        return snapshot_queries.list_snapshots(self._tables, volume, bucket, with_deleted=with_deleted)

    def snapshot(self, volume: str, bucket: str, name: str) -> SnapshotInfo:
        """Return one snapshot."""
        with refusals():
            return snapshot_queries.snapshot_info(self._tables, volume, bucket, name)

    def retention(self, volume: str, bucket: str) -> RetentionRow:
        """Return the retention policy of a bucket and the state of its runs."""
        with refusals():
            return retention_queries.retention_of(self._tables, volume, bucket)

    def retention_preview(
        self, volume: str, bucket: str, *, policy: RetentionPolicy | None = None, now_ms: int | None = None
    ) -> RetentionPreview:
        """Return the effect of a retention run by the bucket's policy or another one, now or at another time."""
        moment_ms = self._clock.now_ms() if now_ms is None else now_ms
        with refusals():
            return retention_queries.preview(self._tables, volume, bucket, moment_ms, policy)

    def tags(self, volume: str, bucket: str) -> list[SnapshotTag]:
        """Return the tags of a bucket, by name."""
        return retention_queries.list_tags(self._tables, volume, bucket)

    def consumers(self, volume: str, bucket: str) -> list[SnapshotConsumer]:
        """Return the consumers of a bucket, by name."""
        return retention_queries.list_consumers(self._tables, volume, bucket)

    def dead_letters(
        self,
        *,
        service: str = "",
        topic: str = "",
        error: str = "",
        since_ms: int = 0,
        with_resolved: bool = False,
        start_after: int | None = None,
        limit: int | None = None,
    ) -> list[DeadLetterRow]:
        """Return a page of the shard's dead letters, newest first."""
        wanted = Wanted(service, topic, error, since_ms, with_resolved)
        return dead_letter_queries.list_letters(self._tables, wanted, start_after, _rows(limit))

    def dead_letter_counts(
        self, *, service: str = "", topic: str = "", error: str = "", since_ms: int = 0, with_resolved: bool = False
    ) -> list[DeadLetterCount]:
        """Return the number of dead letters of each kind."""
        return dead_letter_queries.count_letters(self._tables, Wanted(service, topic, error, since_ms, with_resolved))

    def dead_letter(self, number: int) -> DeadLetterBytes:
        """Return one dead letter with its message."""
        with refusals():
            return dead_letter_queries.letter_bytes(self._tables, number)


class InMemoryScmReads:
    """Reads of one shard's storage container manager."""

    def __init__(self, plane: InMemoryPlane, shard: int) -> None:
        self._tables = TablesReader(plane.processes["mock_scm", shard].store)

    def exist(self, runs: Sequence[BlockRun]) -> list[bool]:
        """Return for each run of blocks whether it is in the store."""
        return scm_queries.exist(self._tables, runs)

    def totals(self) -> ScmTotals:
        """Return the totals of the inventory."""
        return scm_queries.totals(self._tables)
