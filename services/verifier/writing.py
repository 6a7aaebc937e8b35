"""Replays how clients write keys: which blocks become part of a version at which command, and which never do.

An open key has blocks without content. A sync or a commit gives content to as many as it needs, in their order, after
what still fits into the last block of the version. These become part of the version at this command: a snapshot has
seen them if it was captured later. A commit frees the rest, and so do an abandon and an expiry: blocks that never
belonged to a version die when they are freed, and were born then.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any, NamedTuple

from schemas import records
from schemas.records import BlockRun
from services.domain.names import MAX_KEY_TAG_LENGTH, check_key_path, check_length
from services.domain.table_keys import flat_key, open_key, tree_key
from services.verifier.history import Entry
from services.verifier.namespace import Namespace
from services.verifier.open_writes import Known, OpenKey, OpenWrites, Run, Synced, Upload
from services.verifier.present import MAX_OBJECTS, Bucket, Present, require_generation
from services.verifier.refusals import require, required
from services.verifier.taken_bytes import Blocks, blocks_of, taken_bytes
from services.verifier.uploads import MAX_RUNS, Uploads, filled_bytes, free, whole_bytes, with_content

FLAT_TABLE, TREE_TABLE, UPLOAD_TABLE = range(3)
"""What ``ExpireWrites.table`` names."""
MAX_PART_NUMBER = 10_000
MAX_PAGE_ROWS = 10_000


class Page(NamedTuple):
    """What a page of an expiry has taken."""

    rows: int
    last_key: bytes
    last_rows: int
    """As many of them as the last key took."""
    is_cut: bool
    """Whether it was full before its last key."""
    has_rest: bool
    """Whether there are keys behind it."""


class Writing:
    """Replays the commands on open keys over the shard as it is."""

    def __init__(self, present: Present, writes: OpenWrites, namespace: Namespace, uploads: Uploads) -> None:
        self._present = present
        self._history = present.history
        self._writes = writes
        self._namespace = namespace
        self._uploads = uploads
        self.commands: Mapping[type[Any], Callable[[Any], None]] = {
            records.OpenKey: self._open,
            records.AllocateBlocks: self._allocate,
            records.SyncKey: self._sync,
            records.CommitKey: self._commit,
            records.RecoverLease: self._recover,
            records.AbandonKey: self._abandon,
        }

    # Opening

    def _open(self, body: records.OpenKey) -> None:
        present, missing, there = self._present, list[str](), None
        bucket = present.bucket(body)
        check_key_path(body.key, is_tree=bucket.is_tree)
        check_length("a tag", body.tag, MAX_KEY_TAG_LENGTH)
        if body.upload_id:
            parent_id, name = self._place_of_part(bucket, body)
        else:
            parent_id, missing, name, there = present.place_for_file(bucket, body.key)
        require_generation(there, body.expected_generation)
        require(len(missing) + (body.size_bytes > 0) <= MAX_OBJECTS)
        synced = self._appended_to(parent_id, name, there) if body.is_append else None
        blocks = self._whole_blocks(bucket, body.size_bytes, body.block_size_bytes)
        parent_id = present.add_directories(bucket, parent_id, missing)
        runs = self._as_runs(blocks)
        table, key = self._key(bucket, parent_id, name)
        opened = OpenKey(
            table=table,
            key=key,
            session=present.now.txn,
            bucket_id=bucket.bucket_id,
            parent_id=parent_id,
            name=name,
            path=body.key,
            block_size_bytes=body.block_size_bytes,
            expected_generation=body.expected_generation,
            upload_id=body.upload_id,
            part_number=body.part_number,
            synced=synced,
            is_recovered=False,
            updated_ms=present.time_ms,
            runs=runs,
        )
        self._writes.put_key(opened)

    def _place_of_part(self, bucket: Bucket, body: records.OpenKey) -> tuple[int, str]:
        require(not body.is_append and not body.expected_generation and 1 <= body.part_number <= MAX_PART_NUMBER)
        upload = self._uploads.find(bucket, body.key, body.upload_id)
        parent_id, name = self._present.place_in_directory(bucket, body.key)
        require(parent_id == upload.parent_id)
        there = self._history.find(parent_id, name)
        require(there is None or not there.is_directory)
        return parent_id, name

    def _appended_to(self, parent_id: int, name: str, there: Entry | None) -> Synced:
        """Return the version to which a client appends. Nobody else may be writing it."""
        live = required(there)
        require(self._writes.writer_of(parent_id, name, self._known_as(live)) is None)
        require(self._history.stored_bytes(live.object_id, live.birth) == live.length)
        return Synced(self._known_as(live), room_bytes=0)

    def _key(self, bucket: Bucket, parent_id: int, name: str) -> tuple[int, bytes]:
        """Return where metadata lists the open key."""
        session = self._present.now.txn
        if bucket.is_tree:
            return TREE_TABLE, open_key(tree_key(bucket.volume_id, bucket.bucket_id, parent_id, name), session)
        return FLAT_TABLE, open_key(flat_key(bucket.volume, bucket.name, name), session)

    def _whole_blocks(self, bucket: Bucket, size_bytes: int, block_size_bytes: int) -> BlockRun | None:
        """Return blocks for some bytes: whole ones, which are stored from now on."""
        blocks = self._present.new_blocks(bucket, size_bytes, block_size_bytes)
        if blocks is None:
            return None
        whole = replace(blocks, size_bytes=blocks.block_count * block_size_bytes)
        self._present.store(taken_bytes(blocks_of(whole)))
        return whole

    def _as_runs(self, blocks: BlockRun | None) -> tuple[Run, ...]:
        return () if blocks is None else (Run(self._present.new_object_id(), blocks),)

    def _opened(self, body: Any) -> tuple[Bucket, OpenKey]:
        bucket = self._present.bucket(body)
        opened = required(self._writes.key_at(*self._present.place_in_directory(bucket, body.key), body.session))
        require(opened.bucket_id == bucket.bucket_id)
        return bucket, opened

    def _allocate(self, body: records.AllocateBlocks) -> None:
        bucket, opened = self._opened(body)
        require(not opened.is_recovered)
        require(len(opened.runs) + (body.size_bytes > 0) <= MAX_RUNS)
        runs = (*opened.runs, *self._as_runs(self._whole_blocks(bucket, body.size_bytes, opened.block_size_bytes)))
        self._writes.put_key(replace(opened, runs=runs, updated_ms=self._present.time_ms))

    # Making visible

    def _sync(self, body: records.SyncKey) -> None:
        bucket, opened = self._opened(body)
        require(not opened.upload_id and not opened.is_recovered)
        synced, unused = self._show(bucket, opened, body.size_bytes)
        self._writes.put_key(replace(opened, runs=unused, synced=synced, updated_ms=self._present.time_ms))

    def _commit(self, body: records.CommitKey) -> None:
        bucket, opened = self._opened(body)
        require(opened.is_recovered == body.is_recovery)
        unused: Sequence[Run]
        if opened.upload_id:
            unused = self._uploads.commit_part(bucket, opened, body.size_bytes)
        else:
            _, unused = self._show(bucket, opened, body.size_bytes)
        self._writes.close_key(opened)
        free(self._present, opened.bucket_id, unused)

    def _show(self, bucket: Bucket, opened: OpenKey, length: int) -> tuple[Synced, tuple[Run, ...]]:
        """Make a key as long as its writer says. Return what the writer knows of it now, and the blocks left over."""
        present, place = self._present, (opened.parent_id, opened.name)
        there = self._history.find(*place)
        if opened.synced is None:
            require(there is None or not there.is_directory)
            require_generation(there, opened.expected_generation)
            self._namespace.require_replaceable(bucket, there)
        else:
            require(there is not None and self._known_as(there) == opened.synced.known_as)
        added = length - (opened.synced.known_as.length if opened.synced else 0)
        require(added >= 0)
        old_room = opened.synced.room_bytes if opened.synced else 0
        into_last = min(added, old_room)
        runs, unused, room = with_content(opened.runs, added - into_last, present.new_object_id)
        present.store(filled_bytes(runs) - whole_bytes(runs) + self._grown_bytes(there, into_last))
        if opened.synced is None or there is None:
            entry = self._namespace.replace(bucket, place, there, length, runs[0].blocks if runs else None)
            further: Sequence[Run] = runs[1:]
        else:
            entry, further = self._grow(bucket, place, there, length, into_last, runs)
        for run in further:
            name = (entry.object_id, entry.birth)
            self._history.add_run(name, bucket.bucket_id, run.object_id, run.blocks, present.now)
        return Synced(self._known_as(entry), room if runs else old_room - into_last), tuple(unused)

    def _grown_bytes(self, there: Entry | None, into_last: int) -> int:
        """Return what the last block of a version takes more with further bytes."""
        last = self._history.last_run(there.object_id, there.birth) if there and into_last else None
        if last is None:
            return 0
        shape = required(last.container_id), required(last.block_count), required(last.block_size_bytes)
        before = Blocks(*shape, last.size_bytes)
        return taken_bytes(before._replace(size_bytes=last.size_bytes + into_last)) - taken_bytes(before)

    def _grow(
        self, bucket: Bucket, place: tuple[int, str], there: Entry, length: int, into_last: int, runs: Sequence[Run]
    ) -> tuple[Entry, Sequence[Run]]:
        """Lengthen the live version. Return its entry, and the runs that become further ones of it.

        A version without blocks gets its first ones as if it was written now: nobody has seen them before.
        """
        now, last = self._present.now, self._history.last_run(there.object_id, there.birth)
        entry = there._replace(generation=now.txn, length=length)
        if last is not None and last.first_local_id is None and runs:
            entry = entry._replace(birth=now.txn)
            self._history.die(there.object_id, there.birth, now)
            self._history.write(bucket.bucket_id, entry.object_id, entry.birth, length, runs[0].blocks, now)
            if last.is_versioned:
                self._history.mark_versioned(entry.object_id, entry.birth)
            runs = runs[1:]
        else:
            self._history.lengthen((there.object_id, there.birth), length, last, into_last)
        self._history.leave(*place, now)
        self._history.add(bucket.bucket_id, *place, entry, now)
        return entry, runs

    def _known_as(self, live: Entry) -> Known:
        """Return by what a client recognizes a version that it has written."""
        last = self._history.last_run(live.object_id, live.birth)
        return Known(live.object_id, live.birth, live.length, (last.first_local_id or 0) if last else 0)

    # Ends without a commit

    def _abandon(self, body: records.AbandonKey) -> None:
        bucket = self._present.bucket(body)
        if body.parent_id and bucket.is_tree:  # the directory, wherever it is by now
            opened = required(self._writes.key_at(body.parent_id, body.key.rpartition("/")[2], body.session))
            require(opened.path == body.key)
        else:
            opened = required(self._writes.key_at(*self._present.place_in_directory(bucket, body.key), body.session))
        require(opened.bucket_id == bucket.bucket_id)
        self._close(opened)

    def _close(self, opened: OpenKey) -> None:
        """Close an open key. What was synced stays."""
        self._writes.close_key(opened)
        free(self._present, opened.bucket_id, opened.runs)

    def _recover(self, body: records.RecoverLease) -> None:
        bucket = self._present.bucket(body)
        parent_id, name = self._present.place_in_directory(bucket, body.key)
        live = required(self._history.find(parent_id, name))
        require(not live.is_directory)
        opened = required(self._writes.writer_of(parent_id, name, self._known_as(live)))
        self._writes.put_key(replace(opened, is_recovered=True, updated_ms=self._present.time_ms))

    def expire(self, body: records.ExpireWrites, end_key: bytes = b"") -> Page:
        """Close what is old enough on one page, which ends at a number of rows, with those that it frees.

        It ends before ``end_key``, too, if there is one: where others have the rest of its rows.
        """
        left, last_key, last_rows = page_rows(body), b"", 0
        for row in list(islice(self._rows_from(body.table, body.start_key), max(1, body.max_rows))):
            if end_key and row.key >= end_key:
                break
            if left <= 0:
                return Page(page_rows(body) - left, last_key, last_rows, is_cut=True, has_rest=True)
            last_key, last_rows = row.key, 1 + self._expire_row(body, row)
            left -= last_rows
        rows = page_rows(body) - left
        rest = self._rows_from(body.table, end_key or last_key + b"\0") if end_key or rows else iter(())
        return Page(rows, last_key, last_rows, is_cut=False, has_rest=next(rest, None) is not None)

    def _expire_row(self, body: records.ExpireWrites, row: OpenKey | Upload) -> int:
        """Close an open key or end an upload, if it is old enough. Return the number of rows that this frees."""
        now_ms = self._present.time_ms
        if isinstance(row, OpenKey) and row.updated_ms + body.open_key_age_ms <= now_ms:
            self._close(row)
            return len(row.runs)
        if isinstance(row, Upload) and row.initiated_ms + body.upload_age_ms <= now_ms:
            return self._uploads.end(row)
        return 0

    def _rows_from(self, table: int, key: bytes) -> Iterator[OpenKey | Upload]:
        return self._writes.uploads_from(key) if table == UPLOAD_TABLE else self._writes.keys_from(table, key)


def page_rows(body: records.ExpireWrites) -> int:
    """Return after how many rows a page of an expiry ends."""
    return min(max(1, body.max_rows), MAX_PAGE_ROWS)
