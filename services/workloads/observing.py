"""What an observation of a workload shows of a plane: buckets, their snapshots, and what is seen through links."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from schemas import records
from schemas.answers import ListedEntry
from schemas.records import BucketLayout, BucketRow, SnapshotInfo
from services.client.errors import PlaneError
from services.client.plane import Plane
from services.client.tasks.links import bucket_of_link
from services.workloads import workload
from services.workloads.names import Place, logical_name, physical_names

Line = dict[str, Any]


def observe_bucket(plane: Plane, shard: int, volume: str, bucket: str, *, has_replication: bool = False) -> Line:
    """Return the layout, the chain, the snapshots and the listings of one bucket.

    ``has_replication``: also what the blocks of each snapshot take on disks.
    """
    volume_name, bucket_name = physical_names(volume, bucket)
    reads = plane.metadata(shard)
    row: BucketRow = reads.bucket(volume_name, bucket_name)
    snapshots = plane.snapshots(shard).snapshots(volume_name, bucket_name)
    names = {snapshot.snapshot_id: logical_name("snap", snapshot.name) for snapshot in snapshots}
    listings = {"active": list_everything(plane, shard, volume_name, bucket_name)}
    for snapshot in snapshots:
        entries = list_everything(plane, shard, volume_name, bucket_name, snapshot.snapshot_id)
        listings[names[snapshot.snapshot_id]] = entries
    is_tree = row.layout is BucketLayout.FILE_SYSTEM_OPTIMIZED
    return {
        "layout": workload.LAYOUT_NAMES[row.layout],
        "chain": list(names.values()),
        "snapshots": {names[snapshot.snapshot_id]: _observe_snapshot(snapshot, names) for snapshot in snapshots},
        "listing": {
            store: {
                entry.path: {"tag": entry.tag, "bytes": entry.size_bytes} for entry in entries if not entry.is_directory
            }
            for store, entries in listings.items()
        },
        "directories": {
            store: sorted(entry.path for entry in entries if entry.is_directory)
            for store, entries in listings.items()
            if is_tree
        },
        **({"replicated": {names[one.snapshot_id]: _replicated(one) for one in snapshots}} if has_replication else {}),
    }


def _file_sizes(entries: Iterable[ListedEntry]) -> dict[str, int]:
    return {entry.path: entry.size_bytes for entry in entries if not entry.is_directory}


def _observe_snapshot(snapshot: SnapshotInfo, names: dict[str, str]) -> Line:
    return {
        "previous": names.get(snapshot.path_previous_snapshot_id),
        "exclusive_bytes": snapshot.exclusive_bytes + snapshot.exclusive_delta_bytes,
        "referenced_bytes": snapshot.referenced_bytes,
        "deep_cleaned_keys": snapshot.has_deep_cleaned_keys,
        "deep_cleaned_directories": snapshot.has_deep_cleaned_directories,
    }


def _replicated(snapshot: SnapshotInfo) -> Line:
    """Return what the blocks that a snapshot references, and those that it alone holds, take on disks."""
    return {
        "exclusive_bytes": snapshot.exclusive_replicated_bytes + snapshot.exclusive_delta_replicated_bytes,
        "referenced_bytes": snapshot.referenced_replicated_bytes,
    }


def list_everything(plane: Plane, shard: int, volume: str, bucket: str, snapshot_id: str = "") -> list[ListedEntry]:
    """Return all keys and directories of a bucket or of one of its snapshots."""
    return plane.metadata(shard).entries(volume, bucket, snapshot_id=snapshot_id)


def observe_link(plane: Plane, shard: int, link: Place, leads_to: Place) -> Line:
    """Return what a client sees through a link, or the code of the refusal."""
    names, shown = physical_names(*link), {"link": "/".join(leads_to)}
    try:
        real = bucket_of_link(plane, shard, *names)
        snapshots = plane.snapshots(shard).snapshots(*real)
        listed = {one.name: list_everything(plane, shard, *real, one.snapshot_id) for one in snapshots}
        active = list_everything(plane, shard, *names)
    except PlaneError as error:
        return {**shown, "error": error.code}
    in_snapshots = {logical_name("snap", name): _file_sizes(entries) for name, entries in listed.items()}
    return {
        **shown,
        "listing": _file_sizes(active),
        "snapshots": sorted(in_snapshots),
        "in_snapshots": in_snapshots,
    }


def observe_used(plane: Plane, shard: int, volume: str, bucket: str) -> Line:
    """Return the used figures of a bucket. Bytes are those that the blocks take on disks."""
    row = plane.metadata(shard).bucket(*physical_names(volume, bucket))
    return {
        "used_bytes": row.used_bytes + row.used_redundancy_bytes,
        "used_namespace": row.used_namespace,
        "snapshot_used_bytes": row.snapshot_used_bytes + row.snapshot_used_redundancy_bytes,
    }


def observe_suspended(plane: Plane, shard: int, volume: str, bucket: str) -> Line:
    """Return the amounts of a bucket that wait because its claims are suspended; {} while collection is active."""
    names = physical_names(volume, bucket)
    lines = plane.metadata(shard).collection(*names)
    line = next((one for one in lines if one.bucket and not one.is_deleted), lines[0])
    if line.effective_state is records.CollectionState.RUNNING:
        return {}
    waiting = {
        "by": line.effective_state.lower(),
        "bytes": line.pending_bytes,
        "versions": line.pending_versions,
        "unexpanded_directories": line.unexpanded_directories,
    }
    return {"suspended": waiting}
