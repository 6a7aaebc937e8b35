"""Tags and consumers. A tag protects one snapshot; a consumer protects all snapshots that it has still to read."""

from __future__ import annotations

from schemas.error_codes import ErrorCode
from schemas.records import (
    ConsumerRow,
    CreateTag,
    DeleteConsumer,
    DeleteTag,
    SetConsumer,
    SnapshotInfo,
    SpaceUpdate,
    TagRow,
)
from services.domain.names import check_label
from services.domain.refusals import CommandError
from services.domain.retention import LATEST_TIME_MS, NEVER_MS, is_over
from services.runtime.loop.service import Work
from services.runtime.parts.due import DueQueue
from services.snapshots.settings import SnapshotsSettings
from services.snapshots.state.rows import SnapshotRows
from services.snapshots.state.tables import CONSUMER_TABLE, TAG_TABLE, name_key
from services.storage.tables import Tables

MAX_NOTE_LENGTH = 1_000
Bucket = tuple[str, str]
"""Names of a volume and of a bucket in it."""


class Protections:
    """All tags and consumers of the shard."""

    def __init__(self, rows: SnapshotRows, settings: SnapshotsSettings) -> None:
        self._rows = rows
        self._settings = settings
        self._tags: dict[Bucket, dict[str, TagRow]] = {}
        self._consumers: dict[Bucket, dict[str, ConsumerRow]] = {}
        self._tags_by_end: DueQueue[bytes] = DueQueue()
        self._tags_by_key: dict[bytes, TagRow] = {}

    def restore(self, tables: Tables) -> None:
        """Read the tags and consumers from the tables."""
        self._tags, self._consumers, self._tags_by_key = {}, {}, {}
        self._tags_by_end.clear()
        for _, tag in tables.table(TAG_TABLE).scan():
            self._remember(tag)
        for _, consumer in tables.table(CONSUMER_TABLE).scan():
            self._consumers.setdefault((consumer.volume, consumer.bucket), {})[consumer.consumer] = consumer

    def _remember(self, tag: TagRow) -> None:
        key = name_key(tag.volume, tag.bucket, tag.tag)
        self._tags.setdefault((tag.volume, tag.bucket), {})[tag.tag] = tag
        self._tags_by_key[key] = tag
        if tag.expiry_time_ms != NEVER_MS:
            self._tags_by_end.set(key, tag.expiry_time_ms)
        else:
            self._tags_by_end.discard(key)

    @property
    def tag_count(self) -> int:
        """Return the number of tags."""
        return len(self._tags_by_key)

    @property
    def consumer_count(self) -> int:
        """Return the number of consumers."""
        return sum(map(len, self._consumers.values()))

    def tags_of(self, volume: str, bucket: str) -> list[TagRow]:
        """Return the tags of a bucket, by name."""
        tags = self._tags.get((volume, bucket), {})
        return [tags[name] for name in sorted(tags)]

    def tags_on(self, row: SnapshotInfo, now_ms: int) -> list[TagRow]:
        """Return the tags that protect a snapshot, by name."""
        return [
            tag
            for tag in self.tags_of(row.volume, row.bucket)
            if tag.snapshot_id == row.snapshot_id and not is_over(tag, now_ms)
        ]

    def consumers_of(self, volume: str, bucket: str) -> list[ConsumerRow]:
        """Return the consumers of a bucket, by name."""
        consumers = self._consumers.get((volume, bucket), {})
        return [consumers[name] for name in sorted(consumers)]

    def create_tag(self, request: CreateTag, log_time_ms: int, work: Work) -> SnapshotInfo:
        """Protect a snapshot with a tag. Return the snapshot.

        Raises:
            CommandError: FILE_NOT_FOUND (no such snapshot), FILE_ALREADY_EXISTS (a tag of that name), INVALID_REQUEST,
                LIMIT_EXCEEDED.
        """
        check_label("tag", request.tag)
        if max(len(request.owner), len(request.reason)) > MAX_NOTE_LENGTH:
            raise CommandError(
                ErrorCode.INVALID_REQUEST, f"owner and reason of a tag have at most {MAX_NOTE_LENGTH} characters each"
            )
        if not 0 <= request.time_to_live_ms <= LATEST_TIME_MS:
            raise CommandError(
                ErrorCode.INVALID_REQUEST, f"a time to live of {request.time_to_live_ms} ms; 0: for ever"
            )
        row = self._rows.readable(request.volume, request.bucket, request.snapshot)
        before = self._tags.get((request.volume, request.bucket), {}).get(request.tag)
        if before is not None and not is_over(before, log_time_ms):
            held = self._rows.of(before.snapshot_id)
            raise CommandError(
                ErrorCode.FILE_ALREADY_EXISTS,
                f"tag {request.tag} of {request.volume}/{request.bucket} exists already"
                f"{f', on snapshot {held.name}' if held else ''}: delete it first, or choose another name",
            )
        self.put_tag(
            TagRow(
                request.volume,
                request.bucket,
                request.tag,
                row.snapshot_id,
                request.owner,
                request.reason,
                log_time_ms,
                log_time_ms + request.time_to_live_ms if request.time_to_live_ms else NEVER_MS,
                is_automatic=False,
            ),
            work,
        )
        return row

    def put_tag(self, tag: TagRow, work: Work) -> None:
        """Store a tag; it replaces a tag of the same name.

        Raises:
            CommandError: LIMIT_EXCEEDED.
        """
        key = name_key(tag.volume, tag.bucket, tag.tag)
        if key not in self._tags_by_key and self.tag_count >= self._settings.max_tags:
            raise CommandError(
                ErrorCode.LIMIT_EXCEEDED,
                f"the shard has {self.tag_count} tags, as many as are allowed: delete some, or let them live shorter",
            )
        work.table(TAG_TABLE).put(key, tag)
        self._remember(tag)

    def delete_tag(self, request: DeleteTag, log_time_ms: int, work: Work) -> str:
        """Delete a tag. Return the id of the snapshot that it protected.

        Raises:
            CommandError: FILE_NOT_FOUND: there is no such tag, or it is on another snapshot.
        """
        tag = self._tags.get((request.volume, request.bucket), {}).get(request.tag)
        named = self._rows.named(request.volume, request.bucket, request.snapshot)
        is_elsewhere = request.snapshot and (named is None or tag is None or named.snapshot_id != tag.snapshot_id)
        if tag is None or is_elsewhere or is_over(tag, log_time_ms):
            place = f" on snapshot {request.snapshot}" if request.snapshot else ""
            raise CommandError(
                ErrorCode.FILE_NOT_FOUND, f"there is no tag {request.tag}{place} of {request.volume}/{request.bucket}"
            )
        self.remove_tag(request.volume, request.bucket, request.tag, work)
        return tag.snapshot_id

    def remove_tag(self, volume: str, bucket: str, name: str, work: Work) -> None:
        """Remove an existing tag."""
        key = name_key(volume, bucket, name)
        work.table(TAG_TABLE).delete(key)
        del self._tags[volume, bucket][name]
        del self._tags_by_key[key]
        self._tags_by_end.discard(key)

    def remove_tags_that_are_over(self, now_ms: int, work: Work) -> int:
        """Remove the tags whose time to live has ended. Return their number."""
        count = 0
        while (key := self._tags_by_end.pop_due(now_ms)) is not None:
            tag = self._tags_by_key[key]
            self.remove_tag(tag.volume, tag.bucket, tag.tag, work)
            count += 1
        return count

    def forget_bucket(self, place: tuple[str, str], update: SpaceUpdate, work: Work) -> None:
        """Remove the consumers of a deleted bucket, and the tags under its path whose snapshots have no row."""
        volume, bucket = place
        for tag in self.tags_of(volume, bucket):
            if self._rows.of(tag.snapshot_id) is None:
                self.remove_tag(volume, bucket, tag.tag, work)
        for consumer in self.consumers_of(volume, bucket):
            if consumer.bucket_id == update.bucket_id:
                self.remove_consumer(volume, bucket, consumer.consumer, work)

    def set_consumer(self, request: SetConsumer, log_time_ms: int, work: Work) -> SnapshotInfo:
        """Store the position of a consumer. Return the snapshot at which it is.

        Raises:
            CommandError: FILE_NOT_FOUND (no such snapshot), INVALID_REQUEST, LIMIT_EXCEEDED.
        """
        check_label("consumer", request.consumer)
        row = self._rows.readable(request.volume, request.bucket, request.snapshot)
        is_known = request.consumer in self._consumers.get((request.volume, request.bucket), {})
        if not is_known and self.consumer_count >= self._settings.max_consumers:
            raise CommandError(
                ErrorCode.LIMIT_EXCEEDED,
                f"the shard has {self.consumer_count} consumers, as many as are allowed: delete those that are gone",
            )
        consumer = ConsumerRow(
            request.volume,
            request.bucket,
            request.consumer,
            row.bucket_id,
            row.create_txn + request.is_behind,
            log_time_ms,
        )
        work.table(CONSUMER_TABLE).put(name_key(request.volume, request.bucket, request.consumer), consumer)
        self._consumers.setdefault((request.volume, request.bucket), {})[request.consumer] = consumer
        return row

    def delete_consumer(self, request: DeleteConsumer, work: Work) -> None:
        """Delete a consumer.

        Raises:
            CommandError: FILE_NOT_FOUND.
        """
        if request.consumer not in self._consumers.get((request.volume, request.bucket), {}):
            raise CommandError(
                ErrorCode.FILE_NOT_FOUND,
                f"there is no consumer {request.consumer} of {request.volume}/{request.bucket}",
            )
        self.remove_consumer(request.volume, request.bucket, request.consumer, work)

    def remove_consumer(self, volume: str, bucket: str, name: str, work: Work) -> None:
        """Remove an existing consumer."""
        work.table(CONSUMER_TABLE).delete(name_key(volume, bucket, name))
        del self._consumers[volume, bucket][name]
