"""The mock storage container manager of one shard.

It keeps the contract of a block store (``docs/scm-contract.md``). Switches make it slow, make it fail, or make it
answer twice. Deletions are written to its deletedBlocks log. With datanodes each transaction of the log ends when they
have acknowledged it (``replication``), without in a later unit of work.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import replace
from zlib import crc32

from prometheus_client import CollectorRegistry

from schemas.records import (
    Barrier,
    BlocksDeleted,
    BlocksWritten,
    DelayedDeletion,
    DeleteBlocks,
    GrantContainer,
    MetadataCommand,
    ScmReply,
    WaitingDeletion,
)
from schemas.topics import METADATA_COMMANDS, SCM_COMMANDS, SCM_REPLIES
from services.domain.errors import InvalidMessageError
from services.domain.row_columns import BlockGroup, block_groups
from services.mock_scm import inventory
from services.mock_scm.deletion_log import DeletionLog, carry_out
from services.mock_scm.metrics import MockScmMetrics
from services.mock_scm.node_registry import NodeRegistry
from services.mock_scm.replication import Replication
from services.mock_scm.sequences import scm_state
from services.mock_scm.settings import MockScmSettings, MockScmSwitches
from services.mock_scm.tables import (
    BARRIER_STATE_KEY,
    DELAYED_DELETION_TABLE,
    SCM_STATE_TABLE,
    TABLES,
    WAITING_DELETION_TABLE,
    deletion_key,
    order_of_key,
)
from services.runtime.loop.remembering import RememberingService
from services.runtime.loop.service import Message, Work
from services.storage.tables import Tables


class MockScmService(RememberingService):
    """One shard of the mock storage container manager."""

    name = "mock_scm"
    inputs = (SCM_COMMANDS,)
    tables = TABLES

    def __init__(
        self,
        settings: MockScmSettings | None = None,
        switches: MockScmSwitches | None = None,
        metrics: MockScmMetrics | None = None,
    ) -> None:
        self.switches = switches or MockScmSwitches()
        self._settings = settings or MockScmSettings()
        self._metrics = metrics or MockScmMetrics(CollectorRegistry())
        self._is_reported = False
        self._is_replicated = self._settings.replication > 0
        self.registry = NodeRegistry()
        """What the HTTP server leaves heartbeats in; it is not used without datanodes."""
        self._replication = Replication(self._settings, self.registry, self._metrics)
        # Sorted keys of two tables and the log, so that a check for due work reads no table.
        self._waiting: list[bytes] = []
        self._delayed: list[bytes] = []
        self._log = DeletionLog()
        self._written_log_rows = 0
        self._seen_ms = 0
        """What the clock showed last."""

    @property
    def replication(self) -> int:
        """Return the number of copies of each container; 0 without datanodes."""
        return self._settings.replication

    def retry(self, deletion_txns: list[int] | None) -> int | None:
        """Have the loop send parked transactions again, some or all (None); for other threads.

        Return their number, or None if the loop is not getting to it.
        """
        if not self._is_replicated:
            return 0
        return self.registry.request(lambda work: self._log.retry(deletion_txns, work))

    def read_memory(self, tables: Tables) -> None:
        """Replace the state in memory with the state of the tables."""
        self._waiting = [key for key, _ in tables.table(WAITING_DELETION_TABLE).scan()]
        self._delayed = [key for key, _ in tables.table(DELAYED_DELETION_TABLE).scan()]
        self._log = DeletionLog(tables)
        self._written_log_rows = len(self._log.local)

    def carry_out(self, message: Message, work: Work) -> None:
        """Carry out one command."""
        body = message.record.body
        if isinstance(body, BlocksWritten):
            self._receive(body, work)
        elif isinstance(body, DeleteBlocks):
            self._on_delete_blocks(body, message.timestamp_ms, work)
        else:
            self._pass_barrier(body, work)

    def _receive(self, written: BlocksWritten, work: Work) -> None:
        new_bytes, container_id = inventory.add_written(
            written, self._settings.container_size_bytes, work, is_replicated=self._is_replicated
        )
        self._metrics.written_bytes.inc(new_bytes)
        self._grant(container_id, work)
        mark = scm_state(work).mark_local_id
        while self._waiting and order_of_key(self._waiting[0]) <= mark:
            key = self._waiting.pop(0)
            row = work.table(WAITING_DELETION_TABLE).get(key)
            work.table(WAITING_DELETION_TABLE).delete(key)
            if row is not None:
                self._delete(row.command, work)

    def _grant(self, container_id: int | None, work: Work) -> None:
        """Have metadata put the blocks of later commits into another container."""
        if container_id is not None:
            grant = GrantContainer(container_id)
            command = MetadataCommand(work.shard, "", 0, grant, sender=self.name, wants_reply=False)
            work.send(METADATA_COMMANDS, command)

    def _on_delete_blocks(self, command: DeleteBlocks, timestamp_ms: int, work: Work) -> None:
        if command.task < 0 or command.attempt < 0:
            raise InvalidMessageError(f"task {command.task}, attempt {command.attempt}: neither is below 0")
        inventory.check_groups(command.groups)
        if self.switches.delay_ms <= 0:
            self._delete_when_known(command, work)
            return
        row = DelayedDeletion(timestamp_ms + self.switches.delay_ms, command)
        key = deletion_key(row.due_ms, command)
        work.table(DELAYED_DELETION_TABLE).put(key, row)
        _insert(self._delayed, key)

    def _delete_when_known(self, command: DeleteBlocks, work: Work) -> None:
        """Delete blocks, once all are reported as written: an unreported block looks like one that is deleted."""
        groups = command.groups
        lasts = (first + count - 1 for first, count in zip(groups.first_local_ids, groups.block_counts, strict=True))
        newest = max(lasts, default=0)
        newest = max(newest, command.until_local_id)
        if newest <= scm_state(work).mark_local_id:
            self._delete(command, work)
            return
        key = deletion_key(newest, command)
        work.table(WAITING_DELETION_TABLE).put(key, WaitingDeletion(newest, command))
        _insert(self._waiting, key)

    def _delete(self, command: DeleteBlocks, work: Work) -> None:
        refused = self._refused(command)
        removal = inventory.remove_groups(command.groups, refused, work, is_replicated=self._is_replicated)
        self._log.add(removal.log_keys, work)
        for outcome, groups in (
            ("deleted", removal.deleted),
            ("absent", removal.absent),
            ("mismatched", len(removal.mismatched)),
            ("failed", len(refused)),
        ):
            self._metrics.groups.labels(outcome).inc(groups)
        self._metrics.deleted_bytes.inc(removal.deleted_bytes)
        answer = ScmReply(BlocksDeleted(command.task, command.attempt, tuple(sorted(refused | removal.mismatched))))
        for _ in range(2 if self.switches.answers_twice else 1):
            work.send(SCM_REPLIES, answer)

    def _refused(self, command: DeleteBlocks) -> set[int]:
        """Return the places of the groups that the switches make fail."""
        if not (self.switches.is_failing or self.switches.failing_buckets or self.switches.fail_share):
            return set()
        groups = block_groups(command.groups)
        return {place for place, group in enumerate(groups) if self._is_failing(group, command.attempt)}

    def _is_failing(self, group: BlockGroup, attempt: int) -> bool:
        if self.switches.is_failing or group.bucket_id in self.switches.failing_buckets:
            return True
        if not self.switches.fail_share:
            return False
        identity = b"%d/%d/%d/%d" % (group.bucket_id, group.object_id, group.death, attempt)
        return crc32(identity) < self.switches.fail_share * (1 << 32)

    def _pass_barrier(self, barrier: Barrier, work: Work) -> None:
        """Send the barrier on after all earlier answers, with the deletions since the last barrier and those left."""
        state = scm_state(work)
        done = state.deletion_txn - scm_state(work, BARRIER_STATE_KEY).deletion_txn
        work.table(SCM_STATE_TABLE).put(BARRIER_STATE_KEY, state)
        left = len(self._waiting) + len(self._delayed) + self._log.left()
        work.send(SCM_REPLIES, ScmReply(replace(barrier, work=barrier.work + done + left)))

    def do_due(self, now_ms: int, work: Work) -> None:
        """Carry out deletions whose delay is over, and go on with the transactions of the log."""
        due = bisect_right(self._delayed, now_ms, key=order_of_key)
        if now_ms < self._seen_ms:  # a clock that is set back ends all delays, and lengthens none
            due = len(self._delayed)
        self._seen_ms = now_ms
        for key in self._delayed[: min(due, self._settings.max_deletions_per_tick)]:
            row = work.table(DELAYED_DELETION_TABLE).get(key)
            work.table(DELAYED_DELETION_TABLE).delete(key)
            self._delayed.remove(key)
            if row is not None:
                self._delete_when_known(row.command, work)
        # Only rows that an earlier unit of work has written: a datanode reads a log that is on disk.
        if self._is_replicated:
            self._grant(self._replication.do_due(now_ms, self._log, work), work)
            if not self._replication.knows_all:  # a datanode may have a container that this database does not know
                return
        carried_out = min(self._written_log_rows, self._settings.max_deletion_rows_per_tick)
        for key in self._log.local[:carried_out]:
            carry_out(key, work)
        del self._log.local[:carried_out]

    def end_batch(self, work: Work) -> None:
        """Report the gauges. The log rows of this unit of work are carried out from the next one on."""
        self._written_log_rows = len(self._log.local)
        if work.is_changed() or not self._is_reported:
            self._is_reported = True
            shard = str(work.shard)
            self._metrics.inventory_bytes.labels(shard).set(scm_state(work).inventory_bytes)
            self._metrics.log_transactions.labels(shard).set(self._log.left())
            self._metrics.waiting_deletions.labels(shard).set(len(self._waiting) + len(self._delayed))


def _insert(keys: list[bytes], key: bytes) -> None:
    """Insert a key into a sorted list, unless it is in it: a repeated command waits once."""
    place = bisect_left(keys, key)
    if keys[place : place + 1] != [key]:
        keys.insert(place, key)
