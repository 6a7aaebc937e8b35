"""Writing a key as clients do: open, allocate blocks, sync, commit, and what can come instead of a commit.

An open key is a row of openKeyTable or openFileTable, which snapshots do not have. No snapshot holds its blocks until
a sync or the commit makes them part of the present version of the key. A sync makes what was written so far visible,
and the key stays open. Blocks without bytes are freed at the commit. An open key without further commands expires
(``expired_writes``): what was synced stays, everything else is freed.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from schemas.error_codes import ErrorCode
from schemas.records import (
    AbandonKey,
    AllocateBlocks,
    BlockRun,
    BucketLayout,
    BucketRow,
    CommitKey,
    Committed,
    KeyRow,
    OpenKey,
    OpenKeyRow,
    OpenRun,
    RecoverLease,
    SyncedVersion,
    SyncKey,
)
from services.domain.names import MAX_KEY_TAG_LENGTH, check_key_path, check_length
from services.domain.refusals import CommandError
from services.domain.replication import redundancy_of, redundancy_of_all
from services.domain.table_keys import (
    MAX_BLOCKS_PER_COMMAND,
    MAX_PART_NUMBER,
    MAX_RUNS_PER_VERSION,
    flat_key,
    open_key,
)
from services.metadata.namespace import tree, uploads
from services.metadata.namespace.buckets import find_bucket
from services.metadata.namespace.conditions import NO_CONDITION, check_generation
from services.metadata.namespace.first_runs import begin_version
from services.metadata.namespace.garbage import BlocksOf, free_runs
from services.metadata.namespace.growing import Written, parts_born, written
from services.metadata.namespace.key_parts import Ids, part_at, parts_of, put_parts, run_at, runs_of, stored_bytes
from services.metadata.namespace.quotas import check_room, room_bytes
from services.metadata.namespace.shown_bytes import run_has_grown
from services.metadata.namespace.tree import Place
from services.metadata.state.tables import DIRECTORY_TABLE, FILE_TABLE, KEY_TABLE, OPEN_FILE_TABLE, OPEN_KEY_TABLE
from services.metadata.state.transaction import Transaction
from services.runtime.loop.service import Work
from services.storage.tables import Table, Tables

_NOT_SYNCED = SyncedVersion(0, 0, 0, 0, 0, 0)


def is_tree(bucket: BucketRow) -> bool:
    """Return whether keys of a bucket are files of a tree."""
    return bucket.layout is BucketLayout.FILE_SYSTEM_OPTIMIZED


@dataclass(frozen=True, slots=True)
class OpenedKey:
    """An open key of the present command, and where its version belongs."""

    bucket: BucketRow
    row: OpenKeyRow
    place: Place[KeyRow]

    @property
    def ids(self) -> Ids:
        """objectIDs of the volume and the bucket."""
        return self.bucket.volume_id, self.bucket.object_id

    @property
    def owner(self) -> BlocksOf:
        """The name under which unused blocks are listed."""
        return BlocksOf(self.row.parent_id, self.row.name, self.row.tag)

    def save(self, work: Work, row: OpenKeyRow) -> None:
        """Write the row of the open key."""
        table_of_open_keys(work, self.bucket).put(open_key(self.place.db_key, row.session), row)

    def close(self, work: Work) -> None:
        """Remove the row of the open key."""
        table_of_open_keys(work, self.bucket).delete(open_key(self.place.db_key, self.row.session))


def table_of_open_keys(work: Work, bucket: BucketRow) -> Table[OpenKeyRow]:
    """Return the table of open keys for a bucket's layout."""
    return work.table(OPEN_FILE_TABLE if is_tree(bucket) else OPEN_KEY_TABLE)


def open_a_key(transaction: Transaction, command: OpenKey) -> Committed:
    """Open a key, or a part of an upload. The answer has the id of the open key and its first blocks."""
    bucket = find_bucket(transaction.work, command.volume, command.bucket)
    check_key_path(command.key, is_tree=is_tree(bucket))
    check_length("a tag", command.tag, MAX_KEY_TAG_LENGTH)
    if command.upload_id:
        place = _place_of_part(transaction, bucket, command)
    else:
        place = uploads.place_for_key(transaction, bucket, command.key)
    live = None if command.upload_id else transaction.work.table(place.table).get(place.db_key)
    check_generation(live, command.expected_generation, command.key)
    runs = _allocated(transaction, bucket, command.size_bytes, command.block_size_bytes)
    check_room(transaction, bucket, 0, 1 + place.made_directories)
    now = transaction.log_time_ms
    row = OpenKeyRow(
        session=transaction.txn,
        volume_id=bucket.volume_id,
        bucket_id=bucket.object_id,
        key=command.key,
        parent_id=place.parent_id,
        name=place.name,
        tag=command.tag,
        block_size_bytes=command.block_size_bytes,
        runs=runs,
        creation_time_ms=now,
        update_time_ms=now,
        expected_generation=command.expected_generation,
        synced=_appended_to(transaction, bucket, place, live) if command.is_append else None,
        upload_id=command.upload_id,
        part_number=command.part_number,
    )
    OpenedKey(bucket, row, place).save(transaction.work, row)
    transaction.figures.put(bucket.object_id, 0, place.made_directories)
    return Committed(0, session=row.session, runs=tuple([run.blocks for run in runs]))


def _place_of_part(transaction: Transaction, bucket: BucketRow, command: OpenKey) -> Place[KeyRow]:
    if command.is_append or command.expected_generation != NO_CONDITION:
        raise CommandError(ErrorCode.INVALID_REQUEST, "a part of an upload has no condition and is not appended to")
    if not 1 <= command.part_number <= MAX_PART_NUMBER:
        raise CommandError(ErrorCode.INVALID_REQUEST, f"a part has a number from 1 to {MAX_PART_NUMBER}")
    upload = uploads.find_upload(transaction.work, bucket, command.key, command.upload_id)
    place = find_place(transaction, bucket, command.key)
    if place is not None:
        _require_no_directory(transaction, place, command.key)
    elif is_tree(bucket):
        tree.require_no_file_above(transaction, bucket, command.key)
    if place is None or place.parent_id != upload.parent_id:
        raise CommandError(
            ErrorCode.NO_SUCH_MULTIPART_UPLOAD_ERROR,
            f"the directory of {command.key} was deleted or renamed since the upload was initiated",
        )
    return place


def _appended_to(
    transaction: Transaction, bucket: BucketRow, place: Place[KeyRow], live: KeyRow | None
) -> SyncedVersion:
    """Return the version to which a client appends. No other client may be writing it.

    A version that was rolled back may end before its blocks do: bytes behind these would not be behind its own.
    """
    if live is None:
        raise CommandError(ErrorCode.KEY_NOT_FOUND, f"there is no key {place.name} to append to")
    if _writer_of(transaction, bucket, place, live) is not None:
        raise CommandError(
            ErrorCode.KEY_UNDER_LEASE_RECOVERY,
            f"another client writes {place.name}: wait for its commit, or end its right to write (RecoverLease)",
        )
    parts = parts_of(transaction.work, (bucket.volume_id, bucket.object_id), live)
    if stored_bytes(live, parts) != live.size_bytes:
        raise CommandError(
            ErrorCode.NOT_SUPPORTED_OPERATION,
            f"{place.name} was rolled back to a part of a block, which has later bytes: put it again to add to it",
        )
    runs = list(runs_of(live, parts))
    last_local_id = runs[-1].first_local_id if runs else 0
    return SyncedVersion(live.object_id, live.birth, live.size_bytes, len(runs), last_local_id, room_bytes=0)


def _allocated(
    transaction: Transaction, bucket: BucketRow, size_bytes: int, block_size_bytes: int, unseen_bytes: int = 0
) -> tuple[OpenRun, ...]:
    """Return blocks for a number of bytes. Their ids follow from shard and txn, so that a replay assigns the same.

    ``unseen_bytes`` is the room that blocks need which the open key has got before, and which nobody sees yet.
    """
    if size_bytes < 0 or block_size_bytes <= 0:
        raise CommandError(ErrorCode.INVALID_REQUEST, "size_bytes must be at least 0 and block_size_bytes at least 1")
    count = -(-size_bytes // block_size_bytes)
    if count > MAX_BLOCKS_PER_COMMAND:
        raise CommandError(
            ErrorCode.INVALID_REQUEST,
            f"{count} blocks in one command; at most {MAX_BLOCKS_PER_COMMAND}: allocate them in several steps",
        )
    if not count:
        return ()
    first = transaction.first_local_id()
    blocks = BlockRun(transaction.container_for(bucket), first, count, block_size_bytes, count * block_size_bytes)
    needed_bytes = room_bytes([blocks])
    check_room(transaction, bucket, unseen_bytes + needed_bytes, 0)
    transaction.check_stored(needed_bytes)
    transaction.figures.allocate(needed_bytes)
    return (OpenRun(transaction.new_object_id(), blocks),)


def find_place(transaction: Transaction, bucket: BucketRow, path: str) -> Place[KeyRow] | None:
    """Return the place of a path without creating directories; None if its directory is missing."""
    if not is_tree(bucket):
        return Place(KEY_TABLE, flat_key(bucket.volume, bucket.bucket, path), 0, path)
    parent_id = tree.find_directory(transaction, bucket, path.rpartition("/")[0])
    return None if parent_id is None else _place_in(bucket, parent_id, path)


def _place_in(bucket: BucketRow, parent_id: int, path: str) -> Place[KeyRow]:
    """Return the place of the last name of a path in a directory, wherever the directory is by now."""
    name = path.rpartition("/")[2]
    return Place(FILE_TABLE, tree.row_key(bucket, parent_id, name), parent_id, name)


def _no_directory(path: str) -> CommandError:
    return CommandError(
        ErrorCode.DIRECTORY_NOT_FOUND, f"the directory of {path} was deleted or renamed since the key was opened"
    )


def _opened(transaction: Transaction, command: AllocateBlocks | SyncKey | CommitKey | AbandonKey) -> OpenedKey:
    """Return the open key that a command names.

    Raises:
        CommandError: KEY_NOT_FOUND, or DIRECTORY_NOT_FOUND when its path leads to another directory by now.
    """
    bucket = find_bucket(transaction.work, command.volume, command.bucket)
    # Rights were checked by the path, so by a directory's id only the key that was opened at this path is found.
    is_by_directory = isinstance(command, AbandonKey) and command.parent_id != 0 and is_tree(bucket)
    if isinstance(command, AbandonKey) and is_by_directory:
        place: Place[KeyRow] | None = _place_in(bucket, command.parent_id, command.key)
    else:
        place = find_place(transaction, bucket, command.key)
    if place is None:
        raise _no_directory(command.key)
    row = table_of_open_keys(transaction.work, bucket).get(open_key(place.db_key, command.session))
    if row is None or row.bucket_id != bucket.object_id or (is_by_directory and row.key != command.key):
        raise CommandError(
            ErrorCode.KEY_NOT_FOUND,
            f"there is no open key {command.key} with the id {command.session}: it was closed, has expired, or its "
            f"directory was deleted or renamed",
        )
    return OpenedKey(bucket, row, place)


def allocate_blocks(transaction: Transaction, command: AllocateBlocks) -> Committed:
    """Allocate further blocks for an open key."""
    opened = _opened(transaction, command)
    row = opened.row
    _require_lease(row, is_recovery=False)
    unseen_bytes = room_bytes(run.blocks for run in row.runs)
    runs = _allocated(transaction, opened.bucket, command.size_bytes, row.block_size_bytes, unseen_bytes)
    if len(row.runs) + len(runs) > MAX_RUNS_PER_VERSION:
        raise CommandError(
            ErrorCode.INVALID_REQUEST,
            f"{command.key} has blocks of {MAX_RUNS_PER_VERSION} allocations: sync it, or allocate more at a time",
        )
    opened.save(transaction.work, replace(row, runs=(*row.runs, *runs), update_time_ms=transaction.log_time_ms))
    return Committed(0, session=row.session, runs=tuple([run.blocks for run in runs]))


def sync_key(transaction: Transaction, command: SyncKey) -> Committed:
    """Make what was written visible as the present version of the key, which stays open."""
    opened = _opened(transaction, command)
    if opened.row.upload_id:
        raise CommandError(
            ErrorCode.NOT_SUPPORTED_OPERATION,
            "a part of an upload becomes visible when the upload is completed: commit it",
        )
    _require_lease(opened.row, is_recovery=False)
    synced, rest = _make_visible(transaction, opened, command.key, command.size_bytes)
    opened.save(transaction.work, replace(opened.row, runs=rest, synced=synced, update_time_ms=transaction.log_time_ms))
    return Committed(synced.object_id)


def commit_key(transaction: Transaction, command: CommitKey) -> Committed:
    """Make what was written the present version of the key, or of the part, and close it."""
    opened = _opened(transaction, command)
    _require_lease(opened.row, is_recovery=command.is_recovery)
    if opened.row.upload_id:
        object_id, rest = uploads.commit_part(transaction, opened.bucket, opened.row, command.size_bytes)
    else:
        synced, rest = _make_visible(transaction, opened, command.key, command.size_bytes)
        object_id = synced.object_id
    opened.close(transaction.work)
    report_and_free(transaction, opened.ids, rest, opened.owner)
    return Committed(object_id)


def _require_lease(row: OpenKeyRow, *, is_recovery: bool) -> None:
    """Refuse the writer once its lease was recovered, and the commit of a recovery without RecoverLease before it."""
    if row.is_recovered and not is_recovery:
        raise CommandError(
            ErrorCode.KEY_UNDER_LEASE_RECOVERY, f"the lease of {row.key} was recovered by another client"
        )
    if is_recovery and not row.is_recovered:
        raise CommandError(ErrorCode.INVALID_REQUEST, f"the lease of {row.key} was not recovered (RecoverLease)")


def _make_visible(
    transaction: Transaction, opened: OpenedKey, path: str, size_bytes: int
) -> tuple[SyncedVersion, tuple[OpenRun, ...]]:
    """Make what was written part of the live version. Return this version, and the blocks that have no bytes yet.

    ``path`` is the present one; a directory above the key may have been renamed since it was opened.
    """
    row = opened.row
    live = transaction.work.table(opened.place.table).get(opened.place.db_key)
    if row.synced is None:
        _require_no_directory(transaction, opened.place, row.key)
        check_generation(live, row.expected_generation, row.key)
    elif live is None or not is_version(transaction.work, opened.ids, live, row.synced):
        raise CommandError(
            ErrorCode.KEY_NOT_FOUND, f"the version of {row.key} that was synced was deleted, replaced or rolled back"
        )
    before = row.synced or _NOT_SYNCED
    grown_bytes = size_bytes - before.size_bytes
    if grown_bytes < 0:
        raise CommandError(
            ErrorCode.INVALID_REQUEST, f"{row.key} has {before.size_bytes} bytes already: a key that is open only grows"
        )
    growing = live if row.synced else None
    part_count = max(0, before.run_count - 1)
    last_run = run_at(transaction.work, opened.ids, growing, part_count) if growing else None
    found = written(last_run, before.room_bytes, row.runs, grown_bytes, transaction.new_object_id)
    redundancy = redundancy_of_all(run.blocks for run in found.runs)
    if found.last_run is not None:
        redundancy += redundancy_of(found.last_run) - redundancy_of(last_run)
    check_room(transaction, opened.bucket, grown_bytes + redundancy, 0 if row.synced or live else 1)
    if redundancy:
        transaction.figures.add_redundancy(opened.bucket.object_id, redundancy, stored=redundancy)
    transaction.figures.allocate(-room_bytes(run.blocks for run in found.runs))
    transaction.check_stored(grown_bytes)
    if growing is None:
        key = _first_version(transaction, opened, path, found)
    else:
        key = _grown_version(transaction, opened, growing, part_count, found, grown_bytes)
    last_local_id = found.runs[-1].blocks.first_local_id if found.runs else before.last_local_id
    run_count = before.run_count + len(found.runs)
    synced = SyncedVersion(key.object_id, key.birth, size_bytes, run_count, last_local_id, found.room_bytes)
    return synced, found.unused


def _require_no_directory(transaction: Transaction, place: Place[KeyRow], path: str) -> None:
    """Refuse a file in whose place a directory was made since it was opened, or its upload initiated."""
    if place.table is FILE_TABLE and transaction.work.table(DIRECTORY_TABLE).get(place.db_key) is not None:
        raise CommandError(ErrorCode.NOT_A_FILE, f"{path} is a directory, created since the key was opened")


def is_version(tables: Tables, ids: Ids, live: KeyRow, synced: SyncedVersion) -> bool:
    """Return whether a live version is as the last sync of a client has left it.

    After a rollback another client may have made it as long again, with other blocks.
    """
    is_as_long = (live.object_id, live.birth, live.size_bytes) == (synced.object_id, synced.birth, synced.size_bytes)
    if not is_as_long:
        return False
    last_run = run_at(tables, ids, live, max(0, synced.run_count - 1))
    is_longer = live.is_composed and run_at(tables, ids, live, max(1, synced.run_count)) is not None
    return not is_longer and (last_run.first_local_id if last_run else 0) == synced.last_local_id


def _first_version(transaction: Transaction, opened: OpenedKey, path: str, found: Written) -> KeyRow:
    """Create the version of a key that was not synced before. It replaces the live one."""
    row, bucket_id = opened.row, opened.bucket.object_id
    key = begin_version(transaction, opened.bucket, opened.place, path, found.runs, row.tag, row.creation_time_ms)
    transaction.figures.put(bucket_id, key.size_bytes, 1)
    for run in found.runs:
        transaction.report_late(bucket_id, run.blocks)
    return key


def _grown_version(
    transaction: Transaction,
    opened: OpenedKey,
    live: KeyRow,
    part_count: int,
    found: Written,
    grown_bytes: int,
) -> KeyRow:
    """Add what was written to the live version. Runs that are new to it are born now."""
    bucket_id, txn, runs = opened.bucket.object_id, transaction.txn, found.runs
    blocks, birth = live.blocks, live.birth
    last_run = run_at(transaction.work, opened.ids, live, part_count)
    if found.last_run is not None and last_run is not None:
        grown_birth = live.birth
        if part_count:
            last = part_at(transaction.work, opened.ids, live.object_id, part_count)
            grown_birth = last.birth
            grown = [replace(last, blocks=found.last_run)]
            put_parts(transaction.work, opened.ids, live.object_id, grown, part_count)
        else:
            blocks = found.last_run
        run_has_grown(transaction, bucket_id, last_run, found.last_run, grown_birth)
        transaction.report_late(bucket_id, found.last_run)
    for run in runs:
        transaction.report_late(bucket_id, run.blocks)
    if blocks is None and runs:  # a version without bytes: no snapshot that has seen it holds blocks
        blocks, birth, runs = runs[0].blocks, txn, runs[1:]
    put_parts(transaction.work, opened.ids, live.object_id, parts_born(runs, txn), part_count + 1)
    key = replace(
        live,
        birth=birth,
        size_bytes=live.size_bytes + grown_bytes,
        blocks=blocks,
        update_id=txn,
        modification_time_ms=transaction.log_time_ms,
        is_composed=live.is_composed or bool(runs),
    )
    transaction.work.table(opened.place.table).put(opened.place.db_key, key)
    transaction.figures.put(bucket_id, grown_bytes, 0)
    return key


def report_and_free(transaction: Transaction, ids: Ids, runs: tuple[OpenRun, ...], owner: BlocksOf) -> None:
    """Free blocks that were not used. The block store hears of them now, and then of their deletion."""
    for run in runs:
        transaction.report_late(ids[1], run.blocks)
    if runs:
        free_runs(transaction, ids, runs, owner)


def abandon_key(transaction: Transaction, command: AbandonKey) -> Committed:
    """Close an open key without a commit. What was synced stays."""
    opened = _opened(transaction, command)
    table = table_of_open_keys(transaction.work, opened.bucket)
    close_unfinished(transaction, table, opened.place.db_key, opened.row)
    return Committed(opened.row.synced.object_id if opened.row.synced else 0)


def close_unfinished(transaction: Transaction, table: Table[OpenKeyRow], row_key: bytes, row: OpenKeyRow) -> None:
    """Close an open key, whose bucket may be deleted, and free the blocks that no sync has made visible."""
    table.delete(open_key(row_key, row.session))
    owner = BlocksOf(row.parent_id, row.name, row.tag)
    report_and_free(transaction, (row.volume_id, row.bucket_id), row.runs, owner)


def recover_lease(transaction: Transaction, command: RecoverLease) -> Committed:
    """End the right of a key's writer to write. The answer names the open key and its blocks that have no bytes yet."""
    bucket = find_bucket(transaction.work, command.volume, command.bucket)
    place = find_place(transaction, bucket, command.key)
    live = None if place is None else transaction.work.table(place.table).get(place.db_key)
    if place is None or live is None:
        raise CommandError(ErrorCode.KEY_NOT_FOUND, f"there is no key {command.key}")
    row = _writer_of(transaction, bucket, place, live)
    if row is None:
        raise CommandError(ErrorCode.KEY_ALREADY_CLOSED, f"no client is writing {command.key}")
    recovered = replace(row, is_recovered=True, update_time_ms=transaction.log_time_ms)
    OpenedKey(bucket, row, place).save(transaction.work, recovered)
    return Committed(live.object_id, session=row.session, runs=tuple([run.blocks for run in row.runs]))


def _writer_of(transaction: Transaction, bucket: BucketRow, place: Place[KeyRow], live: KeyRow) -> OpenKeyRow | None:
    """Return the open key that adds to a live version; None when no client is writing it."""
    work, ids = transaction.work, (bucket.volume_id, bucket.object_id)
    first, beyond = place.db_key + b"/0", place.db_key + b"/:"  # ids are digits; other names are longer paths
    for _, row in table_of_open_keys(work, bucket).scan(first, beyond):
        is_here = (row.bucket_id, row.parent_id, row.name) == (bucket.object_id, place.parent_id, place.name)
        if is_here and row.synced is not None and is_version(work, ids, live, row.synced):
            return row
    return None
