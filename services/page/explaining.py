"""Who holds a path or a block, and until when: explanations with the reasons for which the holders stay."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from schemas.records import SnapshotInfo
from schemas.space_answers import ExplainedVersion
from services.client.errors import PlaneError
from services.client.tasks.space_view import BucketView, NamedSnapshots, held_by_path, is_held_by
from services.domain.table_keys import local_id_shard
from services.page.asked import INVALID_REQUEST
from services.wording.collection import suspended_words
from services.wording.figures import amount_in_words, bytes_text, on_disks, size_text, time_text
from services.wording.holders import Holder, holders_of
from services.wording.space import NOTHING_LEFT, block_fields, directory_text, goes_when, names_text

MOST_PATHS = 20


def paths_with(view: BucketView, beginning: str) -> list[str]:
    """Return the first paths of the active namespace that begin with a text, to complete what is typed."""
    reads = view.plane.metadata(view.shard)
    return [one.path for one in reads.entries(view.volume, view.bucket, prefix=beginning, limit=MOST_PATHS)]


def path_answer(view: BucketView, path: str) -> dict[str, Any]:
    """Return who holds a path, until when, and what becomes of each of its versions.

    Raises:
        PlaneError: BUCKET_NOT_FOUND.
    """
    snapshots, found = view.snapshots(), view.path(path)
    held = held_by_path(snapshots, found)
    suspended = suspended_words(view.plane.metadata(view.shard).collection(view.volume, view.bucket))
    notes = [f"{NOTHING_LEFT} (deepclean explain)."] if not found.versions and not found.directories else []
    if found.below_versions:
        below = amount_in_words(found.below_bytes, found.below_versions, found.below_replicated_bytes)
        notes.append(f"Below it: {below}, live or held.")
    for directory in found.directories:
        names = [info.name for info in snapshots.active if is_held_by(info, directory)]
        text = directory_text(directory, names)
        notes.append(f"{text[:1].upper()}{text[1:]}.")
    return {
        "path": path,
        "as_of": f"txn {found.txn:,} of shard {view.shard}",
        "size": size_text(held.bytes, held.replicated_bytes, is_exact=found.is_exact),
        "holders": _rows(holders_of(view, held.holders)),
        "versions": [_version(snapshots, one, suspended) for one in found.versions],
        "notes": notes,
    }


def block_answer(view: BucketView, local_id: int, start: str) -> dict[str, Any]:
    """Search a block in the bucket, one page of rows from ``start`` on: empty for the first one.

    The answer has the ``next_start`` of the next page; empty when the search is over, and then what is known.

    Raises:
        PlaneError: BUCKET_NOT_FOUND; INVALID_REQUEST for a block that another shard has written, or another start.
    """
    shard = local_id_shard(local_id)
    if shard != view.shard:
        raise PlaneError(
            INVALID_REQUEST, f"{local_id} is a block of shard {shard}; this bucket is of shard {view.shard}"
        )
    place = (view.volume, view.bucket)
    found = view.plane.space(shard).explain_block(local_id, volume=view.volume, bucket=view.bucket, start=start)
    if found.next_start:
        return {"next_start": found.next_start}
    version, holders = found.version, list[SnapshotInfo]()
    if version is not None and version.last_holder:
        holders = [info for info in view.snapshots().active if is_held_by(info, version)]
    suspended = suspended_words(view.plane.metadata(shard).collection(*place)) if version is not None else ""
    names = [info.name for info in holders]
    return {
        "next_start": "",
        "fields": block_fields(found, local_id, "/".join(place), names, suspended),
        "holders": _rows(holders_of(view, holders)),
    }


def _rows(holders: Sequence[Holder]) -> list[dict[str, str]]:
    return [asdict(one) for one in holders]


def _version(snapshots: NamedSnapshots, version: ExplainedVersion, suspended: str) -> dict[str, str]:
    names = [info.name for info in snapshots.active if is_held_by(info, version)]
    return {
        "committed": time_text(version.modification_time_ms),
        "size": bytes_text(version.size_bytes) + on_disks(version.size_bytes, version.replicated_bytes),
        "born": f"txn {version.birth:,}",
        "died": f"txn {version.death:,}" if version.death else "",
        "stage": version.stage.lower(),
        "held_by": names_text(names),
        "goes": goes_when(version.stage, names, suspended),
    }
