"""Carries out retention: policies, expiry, and automatic snapshots and tags.

``services.domain.retention`` decides. A decision is carried out in the unit of work in which it is made, so that no
message comes between. The order of a run: remove consumers and tags that are over, expire snapshots, create automatic
tags, remove surplus ones.

In SYNC mode a policy runs with each create, before the client is answered; in ASYNC mode soon after it. In both modes
a policy also runs once a minute, because snapshots age while none is created. The failure of a run is stored with the
policy until the next run, and the answer to a request to expire reports it. It never fails a create.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from enum import StrEnum

import structlog

from schemas.error_codes import ErrorCode
from schemas.records import (
    ExecutionMode,
    ExpireSnapshots,
    ExpiryRow,
    PendingSnapshot,
    RetentionPolicy,
    RetentionRow,
    SetRetention,
    SnapshotCommand,
    SnapshotInfo,
    SnapshotsExpired,
    SpaceUpdate,
    TagRow,
    UnsetRetention,
)
from services.domain.names import InvalidNameError, check_bucket_name, check_volume_name
from services.domain.refusals import CommandError
from services.domain.retention import NEVER_MS, due_tags, surplus_tags
from services.runtime.loop.service import Work
from services.runtime.parts.due import DueQueue
from services.snapshots.lifecycle.protections import Protections
from services.snapshots.lifecycle.requests import Requests
from services.snapshots.lifecycle.snapshots import Lifecycle
from services.snapshots.metrics import SnapshotsMetrics
from services.snapshots.retention.expiry import Expiry, checked
from services.snapshots.retention.waiting_requests import WaitingRequests
from services.snapshots.settings import SnapshotsSettings
from services.snapshots.state.rows import SnapshotRows
from services.snapshots.state.tables import RETENTION_TABLE, bucket_key
from services.storage.tables import Tables

logger = structlog.get_logger(__name__)


DOUBT_MS = 60_000
"""Difference of the log times of two topics up to which their order is uncertain."""


class Trigger(StrEnum):
    """The cause of a run."""

    REQUEST = "request"
    CREATE = "create"
    CLOCK = "clock"


@dataclass(eq=False, repr=False)
class Retention:
    """All policies of the shard, their runs, and the clients' requests to expire snapshots."""

    _rows: SnapshotRows
    _lifecycle: Lifecycle
    _requests: Requests
    _protections: Protections
    _expiry: Expiry
    _waiting: WaitingRequests
    _settings: SnapshotsSettings
    _metrics: SnapshotsMetrics
    _policies: dict[bytes, RetentionRow] = field(default_factory=dict)
    _due: DueQueue[bytes] = field(init=False)

    def __post_init__(self) -> None:
        self._due = DueQueue(self._settings.retention_run_ms)

    def restore(self, tables: Tables) -> None:
        """Read the policies from the table."""
        self._policies = dict(tables.table(RETENTION_TABLE).scan())
        self._due.clear()
        for key, row in self._policies.items():
            self._due.set(key, row.next_run_ms)

    @property
    def policy_count(self) -> int:
        """Return the number of buckets with a policy."""
        return len(self._policies)

    @property
    def failing_count(self) -> int:
        """Return the number of buckets with a stored failure."""
        return sum(bool(row.failure) for row in self._policies.values())

    # ---- policies

    def set_policy(self, request: SetRetention, log_time_ms: int, work: Work) -> None:
        """Set the policy of a bucket. The first run comes later; the current period gets no automatic snapshot.

        Raises:
            CommandError: INVALID_REQUEST, LIMIT_EXCEEDED.
        """
        check_volume_name(request.volume)
        check_bucket_name(request.bucket)
        policy = checked(request.policy)
        before = self._policies.get(bucket_key(request.volume, request.bucket))
        if before is None and len(self._policies) >= self._settings.max_policies:
            raise CommandError(
                ErrorCode.LIMIT_EXCEEDED,
                f"{len(self._policies)} buckets of the shard have a retention policy, as many as are allowed: "
                f"unset some",
            )
        row = RetentionRow(
            request.volume,
            request.bucket,
            policy,
            next_run_ms=self._next_run_ms(policy, log_time_ms),
            last_run_ms=before.last_run_ms if before else NEVER_MS,
            last_expired=before.last_expired if before else 0,
            last_snapshot_period=_period(policy.snapshot_every_ms, log_time_ms),
            last_tag_period=_period(policy.tag_every_ms, log_time_ms) - 1,
            failure="",
            failure_time_ms=NEVER_MS,
            is_failure_of_snapshot=False,
            set_ms=log_time_ms,
        )
        self._put(row, work)

    def unset_policy(self, request: UnsetRetention, work: Work) -> None:
        """Remove the policy of a bucket.

        Raises:
            CommandError: RETENTION_NOT_FOUND.
        """
        key = bucket_key(request.volume, request.bucket)
        if key not in self._policies:
            raise _no_policy(request.volume, request.bucket)
        self._remove(key, work)

    def forget_bucket(self, place: tuple[str, str], update: SpaceUpdate, work: Work) -> None:
        """Remove the policy of a deleted bucket, unless it was set for a later bucket of the same name.

        The log times of two topics show which came first. If they differ by at most ``DOUBT_MS``, the policy stays.
        """
        key = bucket_key(*place)
        row = self._policies.get(key)
        if row is not None and row.set_ms + DOUBT_MS < update.deleted_ms:
            self._remove(key, work)

    def _remove(self, key: bytes, work: Work) -> None:
        del self._policies[key]
        self._due.discard(key)
        work.table(RETENTION_TABLE).delete(key)

    def _put(self, row: RetentionRow, work: Work) -> None:
        key = bucket_key(row.volume, row.bucket)
        self._policies[key] = row
        self._due.set(key, row.next_run_ms)
        work.table(RETENTION_TABLE).put(key, row)

    # ---- requests to expire

    def expire(self, command: SnapshotCommand, request: ExpireSnapshots, log_time_ms: int, work: Work) -> None:
        """Expire the snapshots that are due. The answer follows their removal (SYNC) or their deletion (ASYNC).

        Raises:
            CommandError: RETENTION_NOT_FOUND (neither request nor bucket has a policy), INVALID_REQUEST, BUCKET_BUSY,
                INTERNAL_ERROR.
        """
        self._lifecycle.check_chain()
        row = self._policies.get(bucket_key(request.volume, request.bucket))
        if request.policy is None and row is None:
            raise _no_policy(request.volume, request.bucket)
        policy = checked(request.policy) if request.policy is not None else row.policy if row else RetentionPolicy()
        now_ms = request.now_ms if request.now_ms >= 0 else log_time_ms
        expired = self._expiry.carry_out(request.volume, request.bucket, policy, now_ms, log_time_ms, work)
        self._count(Trigger.REQUEST, expired)
        outcome = SnapshotsExpired(
            tuple(one.name for one in expired),
            tuple(one.snapshot_id for one in expired),
            row.failure if row else "",
        )
        if row is not None:
            if request.policy is None:  # it counts as a run of the bucket's own policy
                row = replace(row, last_run_ms=log_time_ms, last_expired=len(expired))
            self._put(_without_failure(row), work)  # the answer reports the failure
        asked = ExpiryRow(command.client_id, command.number, outcome)
        is_named = command.client_id and command.number  # without a name one request would take another's place
        if expired and is_named and policy.execution_mode is ExecutionMode.SYNC:
            self._waiting.add(asked, work)
        else:
            self._waiting.answer(asked, work)

    # ---- the life of snapshots

    def snapshot_completed(self, row: SnapshotInfo, log_time_ms: int, work: Work) -> None:
        """Run the bucket's policy at once (SYNC), or make it due at the next tick (ASYNC).

        A service that is behind its log also waits for a tick: an unread message may create a tag, and an answer that
        metadata repeats has the time of the repeat.
        """
        policy_row = self._policies.get(bucket_key(row.volume, row.bucket))
        if policy_row is None:
            return
        if policy_row.policy.execution_mode is ExecutionMode.SYNC and work.is_caught_up:
            self._run(policy_row, Trigger.CREATE, log_time_ms, work)
        else:
            self._put(replace(policy_row, next_run_ms=min(policy_row.next_run_ms, log_time_ms)), work)

    def create_refused(self, pending: PendingSnapshot, row: SnapshotInfo, message: str, work: Work) -> None:
        """Store the refusal of an automatic snapshot as a failure of the bucket's policy."""
        policy_row = self._policies.get(bucket_key(row.volume, row.bucket))
        if pending.is_automatic and policy_row is not None:
            self._put(self._snapshot_failed(policy_row, row.name, message, pending.since_ms), work)

    # ---- runs

    def tick(self, now_ms: int, work: Work) -> bool:
        """Remove the tags that are over, and run the due policies. Return whether a create or a delete has begun."""
        self._protections.remove_tags_that_are_over(now_ms, work)
        pending_before = len(self._lifecycle.pending)
        for key in self._due.to_be_timed(now_ms):
            row = self._policies[key]
            self._put(replace(row, next_run_ms=self._next_run_ms(row.policy, now_ms)), work)
        while (due := self._due.pop_due(now_ms)) is not None:
            row = self._policies[due]
            period = _period(row.policy.snapshot_every_ms, now_ms)
            if period > row.last_snapshot_period:
                row = self._create_automatic(row, period, now_ms, work)
            self._run(row, Trigger.CLOCK, now_ms, work)
        return len(self._lifecycle.pending) > pending_before

    def _create_automatic(self, row: RetentionRow, period: int, now_ms: int, work: Work) -> RetentionRow:
        """Request the automatic snapshot of a period that has begun. Return the policy's new row."""
        row = _without_failure(replace(row, last_snapshot_period=period))
        name = _name_of_period(period * row.policy.snapshot_every_ms)
        try:
            self._requests.create_on_schedule(row, name, now_ms, work)
        except (CommandError, InvalidNameError) as error:
            return self._snapshot_failed(row, name, f"{error.code}: {error}", now_ms)
        return row

    def _snapshot_failed(self, row: RetentionRow, name: str, reason: str, now_ms: int) -> RetentionRow:
        self._metrics.retention_runs.labels("failed").inc()
        return replace(_with_failure(row, f"automatic snapshot {name}: {reason}", now_ms), is_failure_of_snapshot=True)

    def _run(self, row: RetentionRow, trigger: Trigger, now_ms: int, work: Work) -> None:
        """Run a policy once, and store its failure.

        The failure of an automatic snapshot stays until the next automatic snapshot is due: no other run can repair it.
        """
        if not row.is_failure_of_snapshot:
            row = _without_failure(row)
        problem = ""
        expired: list[SnapshotInfo] = []
        try:
            self._lifecycle.check_chain()
            expired = self._expiry.carry_out(row.volume, row.bucket, row.policy, now_ms, now_ms, work)
            row = self._tag_by_period(row, now_ms, work)
        except CommandError as error:
            problem = f"{error.code}: {error}"
        self._count(trigger, expired, is_failed=bool(problem))
        row = replace(
            row,
            next_run_ms=self._next_run_ms(row.policy, now_ms),
            last_run_ms=now_ms,
            last_expired=len(expired),
        )
        if problem and not row.is_failure_of_snapshot:
            row = _with_failure(row, problem, now_ms)
        self._put(row, work)

    def _next_run_ms(self, policy: RetentionPolicy, now_ms: int) -> int:
        next_run_ms = now_ms + self._settings.retention_run_ms
        if policy.snapshot_every_ms:
            boundary_ms = (_period(policy.snapshot_every_ms, now_ms) + 1) * policy.snapshot_every_ms
            next_run_ms = min(next_run_ms, boundary_ms)
        return next_run_ms

    def _tag_by_period(self, row: RetentionRow, now_ms: int, work: Work) -> RetentionRow:
        """Create the automatic tags that are due, and remove the surplus ones. Return the policy's new row."""
        policy, chain = row.policy, self._rows.active_chain(row.volume, row.bucket)
        tagged = {tag.tag for tag in self._protections.tags_of(row.volume, row.bucket)}
        for period, snapshot_id in due_tags(policy, chain, row.last_tag_period, now_ms):
            end_ms = now_ms + policy.tag_time_retained_ms if policy.tag_time_retained_ms else NEVER_MS
            name = _name_of_period(period * policy.tag_every_ms)
            if name not in tagged:
                self._remove_surplus_tags(row, work, coming=1)  # before: the shard may have no room for one more
                self._protections.put_tag(
                    TagRow(
                        row.volume,
                        row.bucket,
                        name,
                        snapshot_id,
                        "",
                        "the first snapshot of its period",
                        now_ms,
                        end_ms,
                        is_automatic=True,
                    ),
                    work,
                )
            row = replace(row, last_tag_period=period)
        self._remove_surplus_tags(row, work)
        return row

    def _remove_surplus_tags(self, row: RetentionRow, work: Work, coming: int = 0) -> None:
        for name in surplus_tags(row.policy, self._protections.tags_of(row.volume, row.bucket), coming):
            self._protections.remove_tag(row.volume, row.bucket, name, work)

    def _count(self, trigger: Trigger, expired: Sequence[SnapshotInfo], *, is_failed: bool = False) -> None:
        outcome = "failed" if is_failed else "expired" if expired else "nothing"
        self._metrics.retention_runs.labels(outcome).inc()
        self._metrics.expired.labels(trigger.value).inc(len(expired))


def _period(every_ms: int, now_ms: int) -> int:
    """Return the number of the period that contains ``now_ms``, counted from the epoch; 0 without periods."""
    return now_ms // every_ms if every_ms else 0


def _name_of_period(start_ms: int) -> str:
    """Return the name of the automatic snapshot or tag of a period that begins at ``start_ms``."""
    return datetime.fromtimestamp(start_ms / 1_000, UTC).strftime("auto-%Y%m%dt%H%M%Sz")


def _with_failure(row: RetentionRow, problem: str, now_ms: int) -> RetentionRow:
    """Log a failure, and return the row with it."""
    logger.warning("a retention run failed", bucket=f"{row.volume}/{row.bucket}", reason=problem)
    return replace(row, failure=problem, failure_time_ms=now_ms)


def _without_failure(row: RetentionRow) -> RetentionRow:
    """Return the row without a failure: it was reported, or the failed step is tried again."""
    return replace(row, failure="", failure_time_ms=NEVER_MS, is_failure_of_snapshot=False)


def _no_policy(volume: str, bucket: str) -> CommandError:
    return CommandError(
        ErrorCode.RETENTION_NOT_FOUND,
        f"{volume}/{bucket} has no retention policy: set one first (deepclean retention set)",
    )
