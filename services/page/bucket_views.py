"""What the page shows of buckets: the list with its bytes by state, and all of one bucket in one answer."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from schemas.answers import BucketSpace
from schemas.records import BucketRow, SnapshotInfo, SpaceCellValue
from services.cli.collection_lines import suspended_words
from services.cli.output import counted, size_text, time_text
from services.cli.space_lines import snapshot_texts, states_of, why_it_stays
from services.client.errors import PlaneError
from services.client.plane import Plane
from services.client.tasks.space_pages import all_cells
from services.client.tasks.space_view import BucketView, KeepReasons, NamedSnapshots
from services.domain.retention import KeepReason
from services.domain.run_space import Runs
from services.domain.space_matrix import EMPTY, NOBODY, SpaceCell, cell_counts
from services.page.picture import draw, script_data

MOST_LISTED = 50
"""Most buckets in the list: those with the most bytes."""
MOST_READ = 2_000
"""Most buckets that are compared for the list: each costs a row of an answer, every few seconds."""
MOST_BYTES = 2**63 - 1
STATES = ("live", "held", "pending", "claimed", "freed")
POLICY = "the retention policy"
BEING_DELETED = "(being deleted)"


@dataclass(frozen=True, slots=True)
class ShownSnapshot:
    """A snapshot as the picture shows it."""

    name: str
    time_ms: int
    protected_by: tuple[str, ...]
    is_droppable: bool = True


@dataclass(frozen=True, slots=True)
class ListedBuckets:
    """The buckets with the most bytes, and the number of those that were compared."""

    rows: tuple[tuple[int, BucketRow], ...]
    """Shard and bucket."""
    count: int
    are_all: bool
    """Whether all buckets of the plane were compared."""


def largest_buckets(plane: Plane, most: int = MOST_LISTED) -> ListedBuckets:
    """Return the buckets that have the most bytes, live or deleted, among the first ``MOST_READ``, by shard and name.

    Links are left out.
    """
    found: list[tuple[int, BucketRow]] = []
    left = MOST_READ
    for shard in range(plane.shards):
        for volume in plane.metadata(shard).volumes(limit=MOST_READ):
            rows = plane.metadata(shard).buckets(volume.volume, limit=left) if left else []
            left -= len(rows)
            found += [(shard, row) for row in rows if not row.source_bucket]
    found.sort(key=lambda one: (-(one[1].used_bytes + one[1].snapshot_used_bytes), one[1].volume, one[1].bucket))
    return ListedBuckets(tuple(found[:most]), len(found), are_all=left > 0)


def bytes_by_state(space: BucketSpace) -> dict[str, int]:
    """Return the bytes of a bucket in each state."""
    return {state: getattr(space, f"{state}_bytes") for state in STATES}


def listed_buckets(plane: Plane) -> dict[str, Any]:
    """Return the list of buckets with the bytes of each by state."""
    listed = largest_buckets(plane)
    rows = []
    for shard, row in listed.rows:
        try:
            space = plane.metadata(shard).space(row.volume, row.bucket, limit=1)
        except PlaneError:  # deleted since it was listed
            continue
        amounts = {
            state: {"bytes": size, "text": size_text(size, is_exact=not space.unexpanded_directories)}
            for state, size in bytes_by_state(space).items()
        }
        rows.append({"volume": row.volume, "bucket": row.bucket, "snapshots": space.live_snapshots, "states": amounts})
    return {"buckets": rows, "note": _note(listed)}


def _note(listed: ListedBuckets) -> str:
    more = listed.count - len(listed.rows)
    note = f"{counted(more, 'smaller bucket')} not listed: open one by its name." if more else ""
    if not listed.are_all:
        note += f" The plane has further buckets: only the first {MOST_READ:,} were compared."
    return note.strip()


def bucket_answer(view: BucketView) -> dict[str, Any]:
    """Return what the page first shows of a bucket: what takes longer is asked for when it is needed.

    Raises:
        PlaneError: BUCKET_NOT_FOUND.
    """
    reads = view.plane.metadata(view.shard)
    snapshots = view.snapshots()
    space = reads.space(view.volume, view.bucket, limit=1)
    reasons = view.keep_reasons()
    suspended = suspended_words(reads.collection(view.volume, view.bucket))
    is_exact = not space.unexpanded_directories
    shown = [ShownSnapshot(info.name, info.creation_time_ms, guards) for info, guards in _guards(snapshots, reasons)]
    cells = drawn_cells(all_cells(reads, view.volume, view.bucket), snapshots.active)
    picture = draw(shown, cells)
    notes = [] if is_exact else ["What is below an unexpanded directory still counts as live; ~ may still change."]
    if suspended:
        notes.append(f"Nothing is claimed at present: {suspended}")
    if len(picture.groups) < len(shown):
        notes.append(
            f"{counted(len(shown), 'snapshot')} are too many to draw: timeline and matrix show groups of neighbours."
        )
    return {
        "volume": view.volume,
        "bucket": view.bucket,
        "as_of": f"txn {space.txn:,} of shard {view.shard}",
        "notes": notes,
        "states": [
            {
                "state": state,
                "size": size_text(size, is_exact=is_exact),
                "on_disks": size_text(replicated, is_exact=is_exact),
                "versions": f"{versions:,}" if isinstance(versions, int) else versions,
                "goes": goes,
            }
            for state, size, replicated, versions, goes in states_of(space, suspended)
        ],
        "amounts": [{"state": state, "bytes": size} for state, size in bytes_by_state(space).items()],
        "picture": script_data(picture, is_exact=is_exact),
    }


def _guards(snapshots: NamedSnapshots, reasons: KeepReasons) -> Iterable[tuple[SnapshotInfo, tuple[str, ...]]]:
    """Yield each snapshot with what protects it: tags and consumers by their names, the policy as one."""
    kept = {one.snapshot_id: reasons.of(one) for one in reasons.preview.kept}
    for info in snapshots.active:
        guards: list[str] = []
        for reason in kept.get(info.snapshot_id, ()):
            kind = KeepReason(reason.reason)
            guards += reason.names if kind in (KeepReason.TAG, KeepReason.CONSUMER) else [POLICY]
        yield info, tuple(dict.fromkeys(guards))


def drawn_cells(cells: Iterable[SpaceCellValue], active: Sequence[SnapshotInfo]) -> Mapping[Runs, SpaceCell]:
    """Return cells by places among the active snapshots.

    Snapshots that are being deleted hold nothing here, as in a what-if: what they alone hold is left out.
    """
    txns = [info.create_txn for info in active]
    found: dict[Runs, SpaceCell] = {}
    for one in cells:
        if (one.first_holder, one.last_holder) == NOBODY:
            continue
        first, last = bisect_left(txns, one.first_holder), bisect_right(txns, one.last_holder) - 1
        if first <= last:
            runs = ((first, last),)
            found[runs] = found.get(runs, EMPTY) + SpaceCell(*cell_counts(one))
    return found


def most_planned(view: BucketView) -> dict[str, int]:
    """Return the bytes that dropping all snapshots which may go would free: the end of the scale of plans."""
    return {"most_bytes": view.plan(view.snapshots(), MOST_BYTES).freed_bytes}


def snapshot_rows(view: BucketView) -> list[dict[str, Any]]:
    """Return the sizes of each snapshot, and why it stays."""
    snapshots, reasons = view.snapshots(), view.keep_reasons()
    names = {info.snapshot_id: info.name for info in snapshots.active}
    kept = {one.snapshot_id: reasons.of(one) for one in reasons.preview.kept}
    return [
        {
            "name": names.get(one.snapshot_id, BEING_DELETED),
            "created": time_text(one.creation_time_ms),
            "sizes": snapshot_texts(one),
            "why": why_it_stays(reasons, one.snapshot_id, kept.get(one.snapshot_id, ()))
            if one.snapshot_id in names
            else "",
        }
        for one in view.spaces().snapshots
    ]
