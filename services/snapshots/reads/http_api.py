"""The HTTP reads of snapshots: a bucket's snapshots in chain order, its retention, tags and consumers; dead letters."""

from __future__ import annotations

from dataclasses import replace
from itertools import islice
from typing import Any

from starlette.routing import Route

from schemas.answers import DeadLetterBytes, DeadLetterCount, RetentionPreview, SnapshotConsumer, SnapshotTag
from schemas.records import DeadLetterRow, RetentionPolicy, RetentionRow, SnapshotInfo
from services.domain.refusals import CommandError
from services.log.clock import Clock, SystemClock
from services.runtime.http.reads import Question, Stores, closing_reader, read_route
from services.snapshots.lifecycle.sizes import space_complete_until
from services.snapshots.reads import dead_letter_queries, queries, retention_queries
from services.snapshots.reads.dead_letter_queries import Wanted
from services.snapshots.state.rows import is_active
from services.snapshots.state.tables import ReadableTables

PREVIEWED = ("num_retained_min", "num_retained_max", "time_retained_ms", "expire_limit", "consumer_expiration_ms")
"""Fields of a policy for which a request for a preview may give other values."""


def routes(stores: Stores, clock: Clock | None = None) -> list[Route]:
    """Return the routes of all reads of the shards that this process serves."""
    clock_or_system = clock or SystemClock()

    def _preview(question: Question) -> RetentionPreview:
        now_ms = question.whole_number("now_ms", clock_or_system.now_ms())
        with closing_reader(question.store.reading()) as tables:
            volume, bucket = question.text("volume"), question.text("bucket")
            policy = _previewed_policy(question, tables, volume, bucket)
            return retention_queries.preview(tables, volume, bucket, now_ms, policy)

    return [
        read_route("/snapshots", stores, _snapshots, list[SnapshotInfo], applied_txn=space_complete_until),
        read_route("/snapshot", stores, _snapshot, SnapshotInfo, applied_txn=space_complete_until),
        read_route("/retention", stores, _retention, RetentionRow),
        read_route("/retention/preview", stores, _preview, RetentionPreview, applied_txn=space_complete_until),
        read_route("/tags", stores, _tags, list[SnapshotTag]),
        read_route("/consumers", stores, _consumers, list[SnapshotConsumer]),
        read_route("/dead-letters", stores, _dead_letters, list[DeadLetterRow]),
        read_route("/dead-letters/counts", stores, _dead_letter_counts, list[DeadLetterCount]),
        read_route("/dead-letter", stores, _dead_letter, DeadLetterBytes),
    ]


def _snapshots(question: Question) -> list[SnapshotInfo]:
    """Return a page of a bucket's chain: the snapshots captured after the txn ``start_after``."""
    start_after = question.whole_number("start_after", 0)
    is_deleted_shown = question.flag("with_deleted")
    with closing_reader(question.store.reading()) as tables:
        chain = queries.snapshot_chain(tables, question.text("volume"), question.text("bucket"))
    shown = (row for row in chain if row.create_txn > start_after and (is_deleted_shown or is_active(row)))
    return list(islice(shown, question.limit()))


def _snapshot(question: Question) -> SnapshotInfo:
    with closing_reader(question.store.reading()) as tables:
        return queries.snapshot_info(tables, question.text("volume"), question.text("bucket"), question.text("name"))


def _retention(question: Question) -> RetentionRow:
    with closing_reader(question.store.reading()) as tables:
        return retention_queries.retention_of(tables, question.text("volume"), question.text("bucket"))


def _previewed_policy(question: Question, tables: ReadableTables, volume: str, bucket: str) -> RetentionPolicy | None:
    """Return the bucket's policy with the values that the request replaces; None if it replaces none."""
    given: dict[str, Any] = {name: question.whole_number(name, 0) for name in PREVIEWED if name in question.parameters}
    if not given:
        return None
    try:
        base = retention_queries.retention_of(tables, volume, bucket).policy
    except CommandError:
        base = RetentionPolicy()
    return replace(base, **given)


def _tags(question: Question) -> list[SnapshotTag]:
    """Return a page of a bucket's tags: those whose name is greater than ``start_after``."""
    start_after = question.text("start_after", "")
    with closing_reader(question.store.reading()) as tables:
        tags = retention_queries.list_tags(tables, question.text("volume"), question.text("bucket"))
    return list(islice((tag for tag in tags if tag.tag > start_after), question.limit()))


def _consumers(question: Question) -> list[SnapshotConsumer]:
    """Return a page of a bucket's consumers: those whose name is greater than ``start_after``."""
    start_after = question.text("start_after", "")
    with closing_reader(question.store.reading()) as tables:
        consumers = retention_queries.list_consumers(tables, question.text("volume"), question.text("bucket"))
    return list(islice((one for one in consumers if one.consumer > start_after), question.limit()))


def _wanted(question: Question) -> Wanted:
    return Wanted(
        question.text("service", ""),
        question.text("topic", ""),
        question.text("error", ""),
        question.whole_number("since_ms", 0),
        question.flag("with_resolved"),
    )


def _dead_letters(question: Question) -> list[DeadLetterRow]:
    """Return a page of dead letters, newest first, older than the one numbered ``start_after``."""
    start_after = question.whole_number("start_after", 0) if "start_after" in question.parameters else None
    with closing_reader(question.store.reading()) as tables:
        return dead_letter_queries.list_letters(tables, _wanted(question), start_after, question.limit())


def _dead_letter_counts(question: Question) -> list[DeadLetterCount]:
    with closing_reader(question.store.reading()) as tables:
        return dead_letter_queries.count_letters(tables, _wanted(question))


def _dead_letter(question: Question) -> DeadLetterBytes:
    question.text("number")
    with closing_reader(question.store.reading()) as tables:
        return dead_letter_queries.letter_bytes(tables, question.whole_number("number", 0))
