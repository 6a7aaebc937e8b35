"""Makes a bucket whose snapshots hold millions of deleted versions, on the running plane.

A hundred thousand keys are overwritten repeatedly, about ten thousand between two snapshots, each at most once. So at
least one snapshot shows every overwritten version, and several snapshots show most of them, because lifetimes differ.
Halfway, one snapshot is created of many further keys, which are deleted before the next snapshot: this snapshot alone
holds them.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from random import Random

from bench.bulk import KEY_BYTES, VOLUME, flat_deletes, flat_name, flat_puts
from bench.conditions import Conditions
from bench.shared_plane import HeldVersions, SharedPlane, shared_plane
from schemas.records import PutKey
from services.client.plane import NamespaceCommand

NAME = "held-versions"
KEYS_OVERWRITTEN_AT_ONCE = 10
"""The share of the keys that is overwritten between two snapshots: one in this many."""
ALONE_SHARE = 10
"""The share of the versions that one snapshot holds alone: one in this many."""
ALONE_FROM = 500_000_000
"""First number of the keys that only one snapshot holds."""
ALONE = "snapshot-alone"


def plane_with_held_versions(conditions: Conditions) -> tuple[SharedPlane, HeldVersions]:
    """Return a separate plane with held versions, filled once: all rows about held versions share it.

    Commands through Kafka fill the plane, because the rows measure the memory and disk space that its processes use
    then; the whole plane runs meanwhile.
    """
    plane = shared_plane(conditions, is_for_held=True)
    if plane.held is None:
        plane.held = _fill(conditions, plane)
    return plane, plane.held


def _fill(conditions: Conditions, plane: SharedPlane) -> HeldVersions:
    sizes = conditions.sizes
    bucket, started = plane.make_bucket(NAME), time.monotonic()
    alone = max(1, sizes.held_versions // ALONE_SHARE)
    at_once = max(1, (sizes.held_versions - alone) // sizes.held_snapshots)
    keys = at_once * KEYS_OVERWRITTEN_AT_ONCE
    plane.send(flat_puts(bucket, keys))
    random = Random(keys)  # noqa: S311  the same at each run
    for number in range(sizes.held_snapshots - 1):
        conditions.say(f"{NAME}: {number * at_once:,} of {sizes.held_versions:,} versions held")
        if number == sizes.held_snapshots // 2:
            plane.send(flat_puts(bucket, alone, ALONE_FROM))
            plane.snapshot(bucket, ALONE)
            plane.send(flat_deletes(bucket, alone, ALONE_FROM))
        plane.snapshot(bucket, snapshot_name(number))
        plane.send(_overwrites(bucket, random.sample(range(keys), at_once)))
    plane.settle(NAME)
    versions = (sizes.held_snapshots - 1) * at_once + alone
    seconds = time.monotonic() - started
    return HeldVersions(bucket, versions, sizes.held_snapshots, keys, alone, seconds)


def snapshot_name(number: int) -> str:
    """Return the name of a snapshot by its number, in the order of creation; all but one have such a name."""
    return f"snapshot-{number:05}"


def _overwrites(bucket: str, numbers: list[int]) -> Iterator[NamespaceCommand]:
    return (PutKey(VOLUME, bucket, flat_name(number), KEY_BYTES) for number in numbers)
