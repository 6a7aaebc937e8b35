"""The snapshots service of one shard: passes each message to the part that handles it."""

from __future__ import annotations

import structlog
from prometheus_client import CollectorRegistry

from schemas.error_codes import ErrorCode
from schemas.records import (
    Barrier,
    CollectionChanged,
    CreateSnapshot,
    CreateTag,
    DeleteConsumer,
    DeleteSnapshot,
    DeleteTag,
    ExpireSnapshots,
    MetadataProgress,
    RenameSnapshot,
    ResolveDeadLetter,
    RollBackBucket,
    RollbackPageDone,
    SetConsumer,
    SetDeepClean,
    SetRetention,
    SetSecret,
    Settle,
    SnapshotCaptured,
    SnapshotCommand,
    SnapshotDropped,
    SnapshotReply,
    SpaceUpdate,
    StopClaims,
    UnsetRetention,
)
from schemas.topics import (
    DEAD_LETTERS,
    METADATA_PROGRESS,
    SNAPSHOT_CHAIN,
    SNAPSHOTS_COMMANDS,
    SNAPSHOTS_INFO,
    SNAPSHOTS_REPLIES,
    SPACE,
)
from services.domain.collection import may_claim
from services.domain.dead_letters import shortened
from services.domain.errors import InvalidMessageError
from services.domain.names import MAX_CLIENT_ID_LENGTH, InvalidNameError
from services.domain.refusals import CommandError
from services.runtime.loop.remembering import RememberingService
from services.runtime.loop.service import Message, Work
from services.runtime.parts.collection_follower import CollectionFollower
from services.runtime.parts.feature_level import require_known_level
from services.snapshots.access import Access
from services.snapshots.dead_letters import DeadLetters
from services.snapshots.lifecycle.chain_check import ChainCheck
from services.snapshots.lifecycle.dropped_snapshots import DroppedSnapshots
from services.snapshots.lifecycle.protections import Protections
from services.snapshots.lifecycle.requests import Requests
from services.snapshots.lifecycle.rollbacks import Rollbacks
from services.snapshots.lifecycle.settle import Settling
from services.snapshots.lifecycle.sizes import Sizes
from services.snapshots.lifecycle.snapshots import Lifecycle
from services.snapshots.metrics import OPERATIONS, SnapshotsMetrics
from services.snapshots.retention.expiry import Expiry
from services.snapshots.retention.runs import Retention
from services.snapshots.retention.waiting_requests import WaitingRequests
from services.snapshots.settings import SnapshotsSettings
from services.snapshots.state.answers import Answers
from services.snapshots.state.commands import send_to_metadata
from services.snapshots.state.refusals import ChainCorruptedError
from services.snapshots.state.rows import SnapshotRows, is_active, is_complete
from services.snapshots.state.tables import TABLES
from services.storage.tables import Tables, TablesReader

FLAGS_SENDER = "key_deletion"
REPORTED_MS = 60_000
"""Time between two reports about all snapshots of the shard: their counts, which change with collection states, too,
and the comparison with metadata's chain."""
SHOWN_IDS = 10

logger = structlog.get_logger(__name__)


class SnapshotsService(RememberingService):
    """One shard of the snapshots service."""

    name = "snapshots"
    inputs = (SNAPSHOTS_COMMANDS, METADATA_PROGRESS, SNAPSHOT_CHAIN, SPACE, DEAD_LETTERS)
    tables = TABLES

    def __init__(self, settings: SnapshotsSettings | None = None, metrics: SnapshotsMetrics | None = None) -> None:
        settings = settings or SnapshotsSettings()
        metrics = self._metrics = metrics or SnapshotsMetrics(CollectorRegistry())
        self._rows = SnapshotRows()
        self._collection = CollectionFollower()
        self._access = Access(self._rows)
        self._sizes = Sizes(self._rows)
        self._answers = Answers(settings.remembered_client_ms)
        self._settling = Settling(self._answers, self._own_work, metrics, self._collection)
        self._lifecycle = Lifecycle(self._rows, self._sizes, self._answers, self._settling.work_was_done, metrics)
        self._protections = Protections(self._rows, settings)
        self._requests = Requests(self._rows, self._lifecycle, self._protections, self._answers, settings, metrics)
        self._waiting = WaitingRequests(self._rows, self._answers)
        expiry = Expiry(self._rows, self._lifecycle, self._protections)
        self._retention = Retention(
            self._rows,
            self._lifecycle,
            self._requests,
            self._protections,
            expiry,
            self._waiting,
            settings,
            metrics,
        )
        self._rollbacks = Rollbacks(self._rows, self._lifecycle, self._protections, self._answers, settings, metrics)
        self._dropped_snapshots = DroppedSnapshots(settings.max_dropped_snapshots)
        self._lifecycle.when_completed = [
            self._dropped_snapshots.snapshot_completed,
            self._retention.snapshot_completed,
        ]
        self._lifecycle.when_removed = [self._dropped_snapshots.snapshot_removed, self._waiting.snapshot_removed]
        self._lifecycle.when_create_refused = [self._retention.create_refused]
        self._chain_check = ChainCheck(self._rows)
        self._dead_letters = DeadLetters(metrics)
        self._is_started = False
        self._reported_ms = -REPORTED_MS
        self._reported_differences: dict[str, list[str]] = {}

    @property
    def chain_corruption(self) -> str:
        """Return why the chain is corrupted; empty when it is not. The service is not ready while it is corrupted."""
        return self._lifecycle.corruption

    def restore(self, tables: TablesReader) -> None:
        """Read the state from the tables again, and verify the chain that the rows form."""
        self._rows.forget_changed()
        self._sizes.forget_stale()
        super().restore(tables)
        self._is_started = False

    def read_memory(self, tables: Tables) -> None:
        """Replace the state in memory with the state of the tables."""
        self._rows.restore(tables)
        self._collection.restore(tables)
        self._access.restore(tables)
        self._sizes.restore(tables)
        self._settling.restore(tables)
        self._lifecycle.restore(tables)
        self._protections.restore(tables)
        self._retention.restore(tables)
        self._waiting.restore(tables)
        self._rollbacks.restore(tables)
        self._dropped_snapshots.restore(tables)
        unanswered = self._settling.unanswered() | self._lifecycle.unanswered()
        unanswered |= self._waiting.unanswered() | self._rollbacks.unanswered()
        self._answers.restore(tables, unanswered)
        self._chain_check.restore(tables)

    def carry_out(self, message: Message, work: Work) -> None:
        """Carry out one message."""
        record = message.record
        if message.topic is SNAPSHOTS_COMMANDS:
            self._apply_command(message, record, work)
        elif message.topic is METADATA_PROGRESS:
            self._apply_progress(record, message.timestamp_ms, work)
        elif message.topic is SPACE:
            self._sizes.update(record, work)
            if record.deleted_path:
                place = _place_of(record)
                self._retention.forget_bucket(place, record, work)
                self._protections.forget_bucket(place, record, work)
        elif message.topic is DEAD_LETTERS:
            self._dead_letters.receive(message, record, work)
        else:
            self._chain_check.follow(record, work)

    def _apply_command(self, message: Message, command: SnapshotCommand, work: Work) -> None:
        if isinstance(command.body, SetDeepClean):
            self._access.check_service(message, command)
            self._apply_flags(command, command.body, work)
            return
        if len(command.client_id) > MAX_CLIENT_ID_LENGTH:
            raise InvalidMessageError(f"a client id has at most {MAX_CLIENT_ID_LENGTH} characters: use a UUID")
        operation = OPERATIONS[type(command.body)]
        if self._access.is_on:
            try:
                self._access.check_client(message, command)
            except CommandError as denial:
                # Not recorded: an unauthorized sender could otherwise use up a client's numbers.
                self._metrics.refusals.labels(operation).inc()
                work.send(SNAPSHOTS_REPLIES, SnapshotReply(command.client_id, command.number, denial.code, str(denial)))
                return
        if self._answers.is_repeat(command, work):
            self._metrics.repeats.inc()
            return
        self._answers.received(command, message.timestamp_ms, work)
        try:
            if command.shard != work.shard:
                raise CommandError(
                    ErrorCode.WRONG_SHARD,
                    f"the command means shard {command.shard} but is in partition {work.shard}; "
                    f"set the partition explicitly",
                )
            self._carry_out(message, command, work)
        except (CommandError, InvalidNameError) as error:
            self._metrics.refusals.labels(operation).inc()
            reply = SnapshotReply(command.client_id, command.number, str(error.code), shortened(str(error)))
            self._answers.answer(reply, work)

    def _carry_out(self, message: Message, command: SnapshotCommand, work: Work) -> None:
        body = command.body
        if isinstance(body, CreateSnapshot):
            self._requests.create(message, command, body, work)
        elif isinstance(body, DeleteSnapshot):
            self._requests.delete(message, command, body, work)
        elif isinstance(body, RenameSnapshot):
            self._requests.rename(command, body, work)
        elif isinstance(body, Settle):
            self._lifecycle.check_chain()
            self._settling.begin(command, body, work)
        elif isinstance(body, RollBackBucket):
            self._rollbacks.begin(message, command, body, work)
        elif isinstance(body, ExpireSnapshots):
            self._retention.expire(command, body, message.timestamp_ms, work)
            self._metrics.commands.labels("expire").inc()
        else:
            snapshot_id = self._carry_out_at_once(command, message.timestamp_ms, work)
            self._metrics.commands.labels(OPERATIONS[type(body)]).inc()
            self._answers.answer(SnapshotReply(command.client_id, command.number, snapshot_id=snapshot_id), work)
        if not isinstance(body, Settle):
            self._settling.work_was_done(work)

    def _carry_out_at_once(self, command: SnapshotCommand, log_time_ms: int, work: Work) -> str:
        """Carry out a command that changes no snapshot. Return the id of the snapshot that it names; empty for none."""
        body = command.body
        if isinstance(body, SetRetention):
            self._retention.set_policy(body, log_time_ms, work)
        elif isinstance(body, UnsetRetention):
            self._retention.unset_policy(body, work)
        elif isinstance(body, CreateTag):
            return self._protections.create_tag(body, log_time_ms, work).snapshot_id
        elif isinstance(body, DeleteTag):
            return self._protections.delete_tag(body, log_time_ms, work)
        elif isinstance(body, SetConsumer):
            return self._protections.set_consumer(body, log_time_ms, work).snapshot_id
        elif isinstance(body, DeleteConsumer):
            self._protections.delete_consumer(body, work)
        elif isinstance(body, SetSecret):
            self._access.set_secret(body, work)
        elif isinstance(body, ResolveDeadLetter):
            self._dead_letters.resolve(body, log_time_ms, work)
        return ""

    def _apply_flags(self, command: SnapshotCommand, flags: SetDeepClean, work: Work) -> None:
        if command.sender != FLAGS_SENDER:
            raise InvalidMessageError(f"SetDeepClean comes from {FLAGS_SENDER}, not from {command.sender!r}")
        if command.shard != work.shard:
            raise InvalidMessageError(f"command for shard {command.shard} in partition {work.shard}")
        self._lifecycle.set_deep_clean(flags, work)

    def _apply_progress(self, progress: MetadataProgress, log_time_ms: int, work: Work) -> None:
        require_known_level(progress)
        body = progress.body
        if isinstance(body, SnapshotCaptured):
            self._lifecycle.snapshot_captured(progress, body, log_time_ms, work)
        elif isinstance(body, SnapshotDropped):
            self._lifecycle.snapshot_dropped(progress, body, work)
        elif isinstance(body, RollbackPageDone):
            if self._rollbacks.page_done(body, work):
                self._settling.work_was_done(work)
        elif isinstance(body, Barrier):
            self._settling.barrier_returned(progress, body, work)
        elif isinstance(body, CollectionChanged):
            self._collection.follow(body, work)

    def do_due(self, now_ms: int, work: Work) -> None:
        """Run the retention that is due; first after a start, act on the state of the chain.

        Retention runs only while the service is caught up with its log: an unread message may create a tag or change
        a policy.
        """
        if not self._is_started:
            self._start(work)
        if not 0 <= now_ms - self._reported_ms < REPORTED_MS:  # below 0 the clock was set back
            self._report_counts(work)
            self._report_differences(work)
            self._reported_ms = now_ms
        if work.is_caught_up and self._retention.tick(now_ms, work):
            self._settling.work_was_done(work)

    def _start(self, work: Work) -> None:
        """If the chain is corrupted, stop claims and refuse the waiting requests; else send unfinished ones again."""
        if self._lifecycle.corruption:
            send_to_metadata(StopClaims(f"snapshots: {self._lifecycle.corruption}"), work)
            error = ChainCorruptedError(self._lifecycle.corruption)
            self._settling.give_up(error, work)
            self._waiting.give_up(error, work)
        else:
            self._lifecycle.ask_again(work)
            self._rollbacks.ask_again(work)
        self._is_started = True

    def end_batch(self, work: Work) -> None:
        """Compute sizes, publish changed rows, end complete settle rounds, and report."""
        self._sizes.refresh(work)
        is_changed = self._rows.has_changed()
        for row in self._rows.pop_changed():
            work.send(SNAPSHOTS_INFO, row, row.snapshot_id.encode())
        if self._settling.end_rounds(self._sizes.complete_txn, work):
            self._sizes.forget_removed(work)
        self._answers.forget_old_clients(work)
        self._report_retention(work)
        self._dead_letters.report(work)
        if is_changed:
            self._report_counts(work)

    def _own_work(self) -> int:
        """Return the number of unfinished creates, drops and rollbacks, and of snapshots without deep-clean flags."""
        return len(self._lifecycle.pending) + len(self._rollbacks) + self._unclean_count()

    def _unclean_count(self) -> int:
        """Return the number of active snapshots without deep-clean flags; buckets with suspended claims have none."""
        return sum(
            is_active(row)
            and not (row.has_deep_cleaned_keys and row.has_deep_cleaned_directories)
            and may_claim(self._collection.of(row.bucket_id))
            for row in self._rows
        )

    def _report_counts(self, work: Work) -> None:
        states = {"active": 0, "deleted": 0, "being_made": 0}
        for row in self._rows:
            states["active" if is_active(row) else "deleted" if is_complete(row) else "being_made"] += 1
        shard = str(work.shard)
        for state, count in states.items():
            self._metrics.snapshots.labels(shard, state).set(count)
        self._metrics.unclean.labels(shard).set(self._unclean_count())

    def _report_retention(self, work: Work) -> None:
        shard = str(work.shard)
        self._metrics.retention_policies.labels(shard).set(self._retention.policy_count)
        self._metrics.retention_failing.labels(shard).set(self._retention.failing_count)
        self._metrics.tags.labels(shard).set(self._protections.tag_count)
        self._metrics.consumers.labels(shard).set(self._protections.consumer_count)
        self._metrics.chain_corrupted.labels(shard).set(bool(self._lifecycle.corruption))

    def _report_differences(self, work: Work) -> None:
        found = self._chain_check.different_snapshots()
        for difference, ids in found.items():
            self._metrics.chain_differences.labels(str(work.shard), difference).set(len(ids))
        if any(found.values()) and found != self._reported_differences:
            first = {difference: ids[:SHOWN_IDS] for difference, ids in found.items() if ids}
            logger.warning("snapshots differ from metadata's chain", shard=work.shard, **first)
        self._reported_differences = found


def _place_of(update: SpaceUpdate) -> tuple[str, str]:
    """Return the volume and the name of a deleted bucket.

    Raises:
        InvalidMessageError: its path has no volume.
    """
    volume, separator, bucket = update.deleted_path.partition("/")
    if not separator:
        raise InvalidMessageError(f"a deleted bucket is called {update.deleted_path!r}: its volume is missing")
    return volume, bucket
