"""What the page shows of one bucket: all of it in one answer, and what takes longer when it is needed."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import chain
from typing import Any

from schemas.records import SnapshotInfo, SpaceCellValue
from services.client.tasks.space_pages import space_pages
from services.client.tasks.space_view import BucketView, KeepReasons, NamedSnapshots
from services.domain.retention import KeepReason
from services.domain.run_space import Runs
from services.domain.space_matrix import NOBODY, SpaceCell, cell_counts
from services.domain.words import counted
from services.page.bucket_list import bytes_by_state
from services.page.picture import draw, script_data
from services.wording.collection import suspended_words
from services.wording.figures import size_text, time_text
from services.wording.space import snapshot_texts, states_of, why_it_stays

MOST_BYTES = 2**63 - 1
POLICY = "the retention policy"
BEING_DELETED = "(being deleted)"


@dataclass(frozen=True, slots=True)
class ShownSnapshot:
    """A snapshot as the picture shows it."""

    name: str
    time_ms: int
    protected_by: tuple[str, ...]
    is_droppable: bool = True


def bucket_answer(view: BucketView) -> dict[str, Any]:
    """Return what the page first shows of a bucket: what takes longer is asked for when it is needed.

    Raises:
        PlaneError: BUCKET_NOT_FOUND.
    """
    reads = view.plane.metadata(view.shard)
    with ThreadPoolExecutor(1) as other:  # two processes answer, each for about as long
        named = other.submit(lambda: (view.snapshots(), view.keep_reasons()))
        pages = list(space_pages(reads, view.volume, view.bucket))
        suspended = suspended_words(reads.collection(view.volume, view.bucket))
        snapshots, reasons = named.result()
    space, cells = pages[0], chain.from_iterable(page.cells for page in pages)
    is_exact = not space.unexpanded_directories
    shown = [ShownSnapshot(info.name, info.creation_time_ms, guards) for info, guards in _guards(snapshots, reasons)]
    picture = draw(shown, drawn_cells(cells, snapshots.active))
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
            cell = SpaceCell(*cell_counts(one))
            found[runs] = found[runs] + cell if runs in found else cell
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
