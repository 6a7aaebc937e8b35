"""What a plane shows of its state, so that two versions of the program can be compared."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from schemas.space_answers import WhatIf
from services.client.kafka_plane import KafkaPlane
from services.client.tasks.diffs import diff
from services.plane.upkeep.rebuilds import PlacedDigest, readable_metadata

SHARD = 0
MOMENTS = frozenset({"txn", "chain_version"})
"""Fields of an answer that say as of when it is."""


def observed(plane: KafkaPlane) -> Any:
    """Return all buckets of the first shard: listings, diffs, figures, what holds what, policies and dead letters."""
    reads = plane.metadata(SHARD)
    places = [(bucket.volume, bucket.bucket) for volume in reads.volumes() for bucket in reads.buckets(volume.volume)]
    found = {
        "buckets": {"/".join(place): _bucket(plane, place) for place in places},
        "dead letters": plane.snapshots(SHARD).dead_letter_counts(),
        "stored bytes": plane.scm(SHARD).totals().inventory_bytes,
    }
    return _lasting(msgspec.to_builtins(found))


def _lasting(found: Any) -> Any:
    """Return what was found without the moments of the reads."""
    if isinstance(found, dict):
        return {name: _lasting(value) for name, value in found.items() if name not in MOMENTS}
    return [_lasting(one) for one in found] if isinstance(found, list | tuple) else found


def _bucket(plane: KafkaPlane, place: tuple[str, str]) -> dict[str, Any]:
    reads, space = plane.metadata(SHARD), plane.space(SHARD)
    snapshots = plane.snapshots(SHARD).snapshots(*place)
    ids = [one.snapshot_id for one in snapshots]
    states = ["", *ids]
    paths = [entry.path for entry in reads.entries(*place)][:20]
    return {
        "row": reads.bucket(*place),
        "snapshots": snapshots,
        "listings": {name: reads.entries(*place, snapshot_id=name) for name in states},
        "diffs": {
            f"{older} to {newer or 'active'}": diff(reads, *place, from_snapshot_id=older, to_snapshot_id=newer)
            for older, newer in zip(ids, [*ids[1:], ""], strict=False)
        },
        "deleted": [(one.path, one.object_id, one.death) for one in reads.deleted(*place)],
        "space": reads.space(*place),
        "exclusive": {name: space.what_if(*place, WhatIf((name,))).freed_bytes for name in ids},
        "explained": {path: space.explain_path(*place, path).versions for path in paths},
        "tags": plane.snapshots(SHARD).tags(*place),
        "consumers": plane.snapshots(SHARD).consumers(*place),
        "collection": [one.state for one in reads.collection(*place)],
    }


def digest_of_stopped(home: Path) -> str:
    """Return the digest of metadata's first shard in a home without a running plane."""
    with readable_metadata(home, SHARD) as store:
        return PlacedDigest.of(store).digest.digest


def differences(expected: Any, found: Any, place: str = "") -> list[str]:
    """Return where two observations differ; fields that only ``found`` has are those of a later version."""
    if isinstance(expected, Mapping) and isinstance(found, Mapping):
        missing = [f"{place}/{name} is missing" for name in expected if name not in found]
        return missing + [
            one
            for name in expected
            if name in found
            for one in differences(expected[name], found[name], f"{place}/{name}")
        ]
    is_list = isinstance(expected, Sequence) and not isinstance(expected, str)
    if is_list and isinstance(found, Sequence) and len(expected) == len(found):
        pairs = enumerate(zip(expected, found, strict=True))
        return [one for number, (mine, theirs) in pairs for one in differences(mine, theirs, f"{place}/{number}")]
    return [] if expected == found else [f"{place}: {expected!r} became {found!r}"]
