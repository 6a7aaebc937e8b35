"""The Spark job's work as an ordinary service over the pure rule, for the plane in one process and the simulator.

An entry with a newer chain version than this judge's chain waits. All entries behind it wait, too, so that a barrier
never overtakes the entries sent before it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any

from schemas.codec import codec
from schemas.records import Barrier, DeadLetter, DeletedEntries, DirectoryVerdict, PurgeKeys, SweepResult
from schemas.topics import (
    DEAD_LETTERS,
    DELETED_ENTRIES,
    PURGE_DIRECTORIES,
    PURGE_KEYS,
    SNAPSHOT_CHAIN,
    SWEEP_RESULTS,
    Topic,
)
from services.domain.judging import JudgedBatch, LoggedEntry, RefusedEntry, judge_batch
from services.domain.row_columns import NO_ROWS, deleted_entries, entries_by_columns
from services.runtime.loop.service import Message, Work
from services.runtime.parts.stored_chain import CHAIN_TABLE, ChainFollower
from services.storage.tables import TableDefinition, TablesReader

WAITING_ENTRIES = TableDefinition("waitingEntryTable", DeletedEntries)
_Logged = tuple[int, DeletedEntries]
"""The offset of a message, and the message."""


def _key(number: int) -> bytes:
    """Return an offset as a key that sorts in numeric order."""
    return number.to_bytes(8, "big")


class PureJudge:
    """Judges one shard's deleted entries with the pure rule."""

    name = "streaming"
    inputs: Sequence[Topic] = (DELETED_ENTRIES, SNAPSHOT_CHAIN)
    tables: Sequence[TableDefinition[Any]] = (CHAIN_TABLE, WAITING_ENTRIES)

    def __init__(self) -> None:
        self._chain = ChainFollower()
        self._waiting: deque[_Logged] = deque()
        self._ready: list[_Logged] = []

    def restore(self, tables: TablesReader) -> None:
        """Load the chain from the stored markers, and the waiting entries."""
        self._chain.restore(tables)
        rows = tables.table(WAITING_ENTRIES).scan()
        self._waiting = deque((int.from_bytes(key, "big"), message) for key, message in rows)
        self._ready = []

    def stands_alone(self, message: Message) -> bool:  # noqa: ARG002 the same for every message
        """Return False: no message needs a batch of its own."""
        return False

    def apply(self, message: Message, work: Work) -> None:
        """Apply a marker or accept an entry. Entries are judged together at the end of the batch.

        Raises:
            ChainBrokenError: a marker is missing or contradicts earlier markers.
        """
        if message.topic is SNAPSHOT_CHAIN:
            self._chain.follow(message.record, work)
            return
        deleted_entries(message.record)  # raises for an invalid message before any of its entries is judged
        logged = (message.offset, message.record)
        if self._waiting or message.record.chain_version > self._chain.view.version:
            work.table(WAITING_ENTRIES).put(_key(message.offset), message.record)
            self._waiting.append(logged)
        else:
            self._ready.append(logged)

    def tick(self, now_ms: int, work: Work) -> None:
        """Do nothing: this judge has no timed work."""

    def end_batch(self, work: Work) -> None:
        """Judge the entries that the chain now covers, then send their barriers."""
        while self._waiting and self._waiting[0][1].chain_version <= self._chain.view.version:
            logged = self._waiting.popleft()
            work.table(WAITING_ENTRIES).delete(_key(logged[0]))
            self._ready.append(logged)
        if self._ready:
            entries = [LoggedEntry(offset, entry) for offset, sent in self._ready for entry in deleted_entries(sent)]
            _send(judge_batch(entries, self._chain.view), work)
            for _, sent in self._ready:
                if sent.barrier is not None:
                    _send_barrier(sent.barrier, self._chain.view.version, work)
            self._ready = []


def _send(batch: JudgedBatch, work: Work) -> None:
    for keys in batch.purge_keys:
        work.send(PURGE_KEYS, keys)
    for directories in batch.directory_verdicts:
        work.send(PURGE_DIRECTORIES, directories)
    for result in batch.sweep_results:
        work.send(SWEEP_RESULTS, result)
    for refused in batch.refused:
        work.send(DEAD_LETTERS, _dead_letter(refused, work.shard))


def _send_barrier(barrier: Barrier, chain_version: int, work: Work) -> None:
    work.send(PURGE_KEYS, PurgeKeys(chain_version, NO_ROWS, (), barrier))
    work.send(PURGE_DIRECTORIES, DirectoryVerdict(chain_version, (), barrier))
    work.send(SWEEP_RESULTS, SweepResult(0, 0, 0, 0, 0, 0, chain_version, barrier))


def _dead_letter(refused: RefusedEntry, shard: int) -> DeadLetter:
    value = codec(DeletedEntries).encode_message(entries_by_columns([refused.logged.entry]))
    return DeadLetter(
        service=PureJudge.name,
        topic=DELETED_ENTRIES.name,
        partition=shard,
        offset=refused.logged.offset,
        error=refused.error,
        message=refused.message,
        value=value,
        size_bytes=len(value),
        key=b"",
        headers=(),
    )
