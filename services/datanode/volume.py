"""One disk of a datanode: the rows of its containers and the files of their blocks, changed together.

A block is there when it has a row. Its file is durable before the row is written, and is removed before the row is: a
crash in between leaves a file without a row, which the next start removes, or a transaction in delete_txns, which is
carried out once more. All changes are made by one thread at a time.
"""

from __future__ import annotations

import errno
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path

from schemas.block_checksums import PIECE_BYTES, checksums_of
from schemas.block_store import BlockContents, BlockEntry, DeletionOrder, ReplicaReport, ReplicaState
from schemas.records import BlockDataRow, DeleteTransactionRow
from services.datanode.block_files import BLOCK, COPYING, HEALING, BlockFiles
from services.datanode.block_rows import (
    STATES,
    add_to_figure,
    checksums_in,
    chunks_of,
    contents_of,
    figure,
    forget_block,
    is_there,
    leaving_runs,
    put_figure,
    require_writable,
    state_of,
)
from services.datanode.errors import BlockError, DiskError, damaged, no_block, no_container
from services.datanode.tables import (
    BLOCK_DATA,
    DELETE_TXNS,
    METADATA,
    TABLES,
    Counter,
    container_of,
    counter_key,
    number_key,
    prefix,
    prefix_end,
)
from services.storage.store import Store, StoreError
from services.storage.tables import RowCache, TablesReader, UnitOfWork

MARKER = "VERSION"
"""A file that every disk in use has: without it another disk, or none, is mounted there."""


class Volume:
    """One disk. Any error of the disk makes it fail as a whole (DiskError)."""

    def __init__(self, directory: Path, store: Store) -> None:
        self.directory = directory
        self.failure = ""
        """Why the disk is not used any more; empty while it is."""
        self._store = store
        self._files = BlockFiles(directory / "chunks")
        self._lock = threading.RLock()
        self._cache = RowCache()
        (directory / "chunks").mkdir(parents=True, exist_ok=True)
        (directory / MARKER).touch()
        self._remove_strays()

    def _remove_strays(self) -> None:
        """Remove files without rows: a crash has left them between the file and the row.

        Raises:
            DiskError: blocks of a container have no row of it. No crash leaves that: the database was lost.
        """
        rows, figures = TablesReader(self._store).table(BLOCK_DATA), TablesReader(self._store).table(METADATA)
        for storage, name, path in self._files.found():
            local_id = name.removesuffix(BLOCK)
            if local_id.isdecimal() and figures.get(counter_key(storage, Counter.STATE)) is None:
                raise DiskError(
                    f"{path} is a block of a container that the database of {self.directory} does not know: put back "
                    f"the database, or empty the disk to have its containers copied from other datanodes"
                )
            if not (local_id.isdecimal() and is_there(rows.get(number_key(storage, int(local_id))))):
                path.unlink()

    @contextmanager
    def changing(self) -> Iterator[UnitOfWork]:
        """Yield a unit of work, which is written at the end unless an error is raised."""
        with self._lock:
            if self.failure:
                raise DiskError(self.failure)
            try:
                work = UnitOfWork(self._store, self._cache)
                yield work
                work.write()
            except FileNotFoundError:
                self.check()
                raise
            except (OSError, StoreError) as error:
                if getattr(error, "errno", None) in (errno.ENOSPC, errno.EDQUOT):
                    raise BlockError(
                        "DISK_OUT_OF_SPACE", f"{self.directory} is full: add disks or datanodes"
                    ) from error
                raise self._failed(error) from error

    def _failed(self, error: Exception) -> DiskError:
        self.failure = f"{self.directory} failed ({error}): replace the disk, then start the datanode again"
        return DiskError(self.failure)

    def check(self) -> None:
        """Raise DiskError if the disk is not there any more."""
        if not self.failure and not (self.directory / MARKER).exists():
            raise self._failed(FileNotFoundError(f"{MARKER} is missing"))

    def close(self) -> None:
        """Close the database."""
        closing = getattr(self._store, "close", None)
        if closing is not None:
            closing()

    # Containers

    def containers(self) -> dict[int, ReplicaState]:
        """Return all containers of the disk with their states."""
        with self.changing() as work:
            suffix = Counter.STATE.encode()
            rows = work.table(METADATA).scan()
            return {container_of(key): STATES[row.value] for key, row in rows if key.endswith(b"|" + suffix)}

    def counter(self, storage: int, counter: Counter) -> int:
        """Return a figure of a container."""
        with self.changing() as work:
            return figure(work, storage, counter)

    def state(self, storage: int) -> ReplicaState | None:
        """Return the state of a container; None if the disk does not have it."""
        with self.changing() as work:
            return state_of(work, storage)

    def report(self, storage: int, container_id: int) -> ReplicaReport:
        """Return what a heartbeat says of a container that the disk has."""
        counters = (Counter.BLOCK_COUNT, Counter.BYTES_USED, Counter.DAMAGED, Counter.DELETION_TXN)
        with self.changing() as work:
            state = state_of(work, storage)
            if state is None:
                raise no_container(container_id)
            return ReplicaReport(container_id, state, *[figure(work, storage, counter) for counter in counters])

    def create(self, storage: int, state: ReplicaState) -> None:
        """Create an empty copy of a container."""
        with self.changing() as work:
            self._files.create(storage)
            put_figure(work, storage, Counter.STATE, STATES.index(state))
            put_figure(work, storage, Counter.CREATED, time.time_ns() // 1_000_000)

    def close_container(self, storage: int) -> None:
        """Accept no further blocks: rows of deleted blocks, and what clients have begun to write, serve no more."""
        with self.changing() as work:
            if state_of(work, storage) is None:
                return
            self._files.discard_begun(storage)
            put_figure(work, storage, Counter.STATE, STATES.index(ReplicaState.CLOSED))
            for key, row in list(work.table(BLOCK_DATA).scan(prefix(storage), prefix_end(storage))):
                if row.is_deleted:
                    work.table(BLOCK_DATA).delete(key)

    def remove_container(self, storage: int, *, only_if_empty: bool) -> bool:
        """Remove a copy of a container. Return whether it was removed."""
        with self.changing() as work:
            if only_if_empty and figure(work, storage, Counter.BLOCK_COUNT):
                return False
            self._files.remove(storage)
            for table in TABLES:
                rows = work.table(table)
                for key in [key for key, _ in rows.scan(prefix(storage), prefix_end(storage))]:
                    rows.delete(key)
            return True

    # Blocks

    def write_chunk(self, storage: int, local_id: int, writer: str, offset_bytes: int, data: bytes) -> None:
        """Write a chunk of a block, whose bytes count once the block is put."""
        with self.changing() as work:
            require_writable(work, storage, local_id, is_copy=False)
            self._files.write(storage, local_id, writer, offset_bytes, data)

    def put_block(self, storage: int, local_id: int, writer: str, contents: BlockContents) -> None:
        """Make the written chunks the block, if they are what the writer says. It may be put again."""
        with self.changing() as work:
            require_writable(work, storage, local_id, is_copy=False)
            self._put_block(work, storage, local_id, writer, contents)

    def copy_block(self, storage: int, local_id: int, parts: Iterator[bytes], contents: BlockContents) -> None:
        """Put a block that another datanode has, into a copy that is recovering."""
        writer = COPYING
        with self.changing() as work:
            require_writable(work, storage, local_id, is_copy=True)
        self._write_parts(storage, local_id, writer, parts)
        with self.changing() as work:
            try:
                require_writable(work, storage, local_id, is_copy=True)
            except BlockError:  # it was deleted meanwhile
                self._files.discard(storage, local_id, writer)
                raise
            self._put_block(work, storage, local_id, writer, contents)

    def heal_block(self, storage: int, local_id: int, parts: Iterator[bytes]) -> None:
        """Replace the bytes of a damaged block by those of another datanode, which must be as they were written."""
        writer = HEALING
        self._write_parts(storage, local_id, writer, parts)
        with self.changing() as work:
            row = work.table(BLOCK_DATA).get(number_key(storage, local_id))
            if row is None or row.is_deleted or not row.is_damaged:
                self._files.discard(storage, local_id, writer)
                return
            self._put_block(work, storage, local_id, writer, contents_of(row))

    def note_lost(self, storage: int, local_id: int, contents: BlockContents) -> None:
        """Record, in a copy that is recovering, a block that no source has whole: it may be healed later."""
        with self.changing() as work:
            require_writable(work, storage, local_id, is_copy=True)
            key = number_key(storage, local_id)
            if work.table(BLOCK_DATA).get(key) is None:
                row = BlockDataRow(
                    local_id, contents.size_bytes, chunks_of(contents), is_damaged=True, is_deleted=False
                )
                work.table(BLOCK_DATA).put(key, row)
                add_to_figure(work, storage, Counter.BLOCK_COUNT, 1)
                add_to_figure(work, storage, Counter.BYTES_USED, row.size_bytes)
                add_to_figure(work, storage, Counter.DAMAGED, 1)

    def _write_parts(self, storage: int, local_id: int, writer: str, parts: Iterator[bytes]) -> None:
        offset_bytes = 0
        for part in parts:
            with self.changing():
                self._files.write(storage, local_id, writer, offset_bytes, part)
            offset_bytes += len(part)

    def _put_block(self, work: UnitOfWork, storage: int, local_id: int, writer: str, contents: BlockContents) -> None:
        try:
            written = self._files.checksums(storage, local_id, writer)
        except FileNotFoundError:
            self.check()
            raise no_block(local_id) from None
        if written != (contents.size_bytes, list(contents.checksums)):
            self._files.discard(storage, local_id, writer)
            raise BlockError("CHECKSUM_MISMATCH", f"what arrived of block {local_id} is not what was sent: send again")
        self._files.finish(storage, local_id, writer)
        key = number_key(storage, local_id)
        known = work.table(BLOCK_DATA).get(key)
        row = BlockDataRow(local_id, contents.size_bytes, chunks_of(contents), is_damaged=False, is_deleted=False)
        work.table(BLOCK_DATA).put(key, row)
        add_to_figure(work, storage, Counter.BLOCK_COUNT, int(known is None))
        add_to_figure(work, storage, Counter.BYTES_USED, row.size_bytes - (known.size_bytes if known else 0))
        add_to_figure(work, storage, Counter.DAMAGED, -int(known is not None and known.is_damaged))

    def read(self, storage: int, local_id: int, offset_bytes: int, length_bytes: int) -> bytes:
        """Return bytes of a block. All pieces that they are in are compared with their checksums."""
        row = self._row(storage, local_id)
        end = min(offset_bytes + length_bytes, row.size_bytes)
        first = offset_bytes - offset_bytes % PIECE_BYTES
        last = min(row.size_bytes, end + -end % PIECE_BYTES)
        if first >= last:
            return b""
        try:
            data = self._files.read(storage, local_id, first, last - first)
        except FileNotFoundError:
            data = b""
        except OSError as error:
            raise self._failed(error) from error
        expected = checksums_in(row)[first // PIECE_BYTES : -(-last // PIECE_BYTES)]
        if len(data) != last - first or checksums_of(data) != expected:
            self.check()
            self.mark_damaged(storage, local_id)
            raise damaged(local_id)
        return data[offset_bytes - first : end - first]

    def _row(self, storage: int, local_id: int) -> BlockDataRow:
        with self.changing() as work:
            if state_of(work, storage) is None:
                raise no_container(storage)
            row = work.table(BLOCK_DATA).get(number_key(storage, local_id))
            if row is None or row.is_deleted:
                raise no_block(local_id)
            return row

    def is_whole(self, storage: int, local_id: int) -> bool | None:
        """Read a block and compare it with its checksums; mark it if it is damaged. None if it is not there."""
        try:
            row = self._row(storage, local_id)
            size_bytes, found = self._files.checksums(storage, local_id)
        except BlockError:
            return None
        except FileNotFoundError:
            self.check()
            size_bytes, found = 0, []
        except OSError as error:
            raise self._failed(error) from error
        return (size_bytes, found) == (row.size_bytes, checksums_in(row)) or not self.mark_damaged(storage, local_id)

    def mark_damaged(self, storage: int, local_id: int) -> bool:
        """Record that a block is damaged, if it still is: it may have been deleted or replaced meanwhile."""
        with self.changing() as work:
            key = number_key(storage, local_id)
            row = work.table(BLOCK_DATA).get(key)
            if row is None or row.is_deleted:
                return False
            try:
                is_whole = self._files.checksums(storage, local_id) == (row.size_bytes, checksums_in(row))
            except FileNotFoundError:
                is_whole = False
            if not is_whole and not row.is_damaged:
                chunks = row.chunks
                work.table(BLOCK_DATA).put(key, BlockDataRow(local_id, row.size_bytes, chunks, True, False))
                add_to_figure(work, storage, Counter.DAMAGED, 1)
            return not is_whole

    def blocks(self, storage: int, after: int = -1, limit: int = 1_000) -> list[BlockEntry]:
        """Return the blocks of a container behind a local id, in order, without those that are to be deleted."""
        found: list[BlockEntry] = []
        with self.changing() as work:
            if state_of(work, storage) is None:
                raise no_container(storage)
            leaving = leaving_runs(work, storage)
            for _, row in work.table(BLOCK_DATA).scan(number_key(storage, after + 1), prefix_end(storage)):
                if not row.is_deleted and not any(first <= row.local_id < end for first, end in leaving):
                    entry = BlockEntry(row.local_id, row.size_bytes, tuple(checksums_in(row)), row.is_damaged)
                    found.append(entry)
                    if len(found) == limit:
                        break
        return found

    # Deletions

    def take_deletion(self, storage: int, order: DeletionOrder) -> None:
        """Store a transaction durably; it is carried out later."""
        with self.changing() as work:
            if state_of(work, storage) is None:
                return
            key = number_key(storage, order.deletion_txn)
            row = DeleteTransactionRow(order.deletion_txn, order.first_local_ids, order.block_counts)
            known = work.table(DELETE_TXNS).get(key)
            if known != row:
                # mock_scm was made again from the log, and has given the id to other blocks: both are deleted
                firsts = (*known.first_local_ids, *row.first_local_ids) if known else row.first_local_ids
                counts = (*known.block_counts, *row.block_counts) if known else row.block_counts
                work.table(DELETE_TXNS).put(key, DeleteTransactionRow(order.deletion_txn, firsts, counts))
                add_to_figure(work, storage, Counter.PENDING_DELETE, sum(order.block_counts))
            last = max(order.deletion_txn, figure(work, storage, Counter.DELETION_TXN))
            put_figure(work, storage, Counter.DELETION_TXN, last)

    def carry_out_deletions(self, limit: int) -> tuple[int, int]:
        """Carry out stored transactions, at most ``limit``. Return the blocks and bytes that were removed."""
        blocks = size_bytes = 0
        with self.changing() as work:
            keys = [key for key, _ in islice(work.table(DELETE_TXNS).scan(), limit)]
        for key in keys:
            with self.changing() as work:
                removed = self._carry_out(work, key)
            blocks, size_bytes = blocks + removed[0], size_bytes + removed[1]
        return blocks, size_bytes

    def _carry_out(self, work: UnitOfWork, key: bytes) -> tuple[int, int]:
        storage = container_of(key)
        transaction = work.table(DELETE_TXNS).get(key)
        if transaction is None:
            return 0, 0
        is_closed = state_of(work, storage) is ReplicaState.CLOSED
        blocks = size_bytes = 0
        missing = set[int]()
        for first, count in zip(transaction.first_local_ids, transaction.block_counts, strict=True):
            for local_id in range(first, first + count):
                row = work.table(BLOCK_DATA).get(number_key(storage, local_id))
                if row is not None and not row.is_deleted:
                    self._files.delete(storage, local_id)
                    blocks, size_bytes = blocks + 1, size_bytes + row.size_bytes
                    add_to_figure(work, storage, Counter.DAMAGED, -int(row.is_damaged))
                elif row is None:
                    missing.add(local_id)
                forget_block(work, storage, local_id, is_closed=is_closed)
        if missing:  # clients may have begun to write them
            self._files.discard_begun(storage, missing)
        work.table(DELETE_TXNS).delete(key)
        add_to_figure(work, storage, Counter.BLOCK_COUNT, -blocks)
        add_to_figure(work, storage, Counter.BYTES_USED, -size_bytes)
        add_to_figure(work, storage, Counter.PENDING_DELETE, -sum(transaction.block_counts))
        return blocks, size_bytes
