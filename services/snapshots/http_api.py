"""The reads of snapshots over HTTP: a bucket's snapshots in the order of its chain, and one of them."""

from __future__ import annotations

from itertools import islice

from starlette.routing import Route

from schemas.records import SnapshotInfo
from services.runtime.reads import Question, Stores, closing_reader, read_route
from services.snapshots import queries
from services.snapshots.rows import is_active


def routes(stores: Stores) -> list[Route]:
    """All reads of the shards that this process serves."""
    return [
        read_route("/snapshots", stores, _snapshots, list[SnapshotInfo], applied_txn=queries.space_complete_until),
        read_route("/snapshot", stores, _snapshot, SnapshotInfo, applied_txn=queries.space_complete_until),
    ]


def _snapshots(question: Question) -> list[SnapshotInfo]:
    """A page of a bucket's chain, behind the snapshot that was taken at the txn ``start_after``."""
    start_after = question.whole_number("start_after", 0)
    is_deleted_shown = question.flag("with_deleted")
    with closing_reader(question.store.reading()) as tables:
        chain = queries.snapshot_chain(tables, question.text("volume"), question.text("bucket"))
    shown = (row for row in chain if row.create_txn > start_after and (is_deleted_shown or is_active(row)))
    return list(islice(shown, question.limit()))


def _snapshot(question: Question) -> SnapshotInfo:
    with closing_reader(question.store.reading()) as tables:
        return queries.snapshot_info(tables, question.text("volume"), question.text("bucket"), question.text("name"))
