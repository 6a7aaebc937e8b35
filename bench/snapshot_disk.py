"""Measures the bytes on disk of metadata's directory with snapshots: tables, log and checkpoints.

A file that has several links counts once, by its inode: for the database, if that has it. Of other files each
checkpoint has its share, the bytes divided by the number of checkpoints that have the file.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

from bench.bulk import VOLUME
from bench.conditions import Conditions
from bench.figures import Figure, Target
from bench.loaded_shard import LoadedShard
from schemas.records import BucketLayout, PutKey
from services.client.plane import NamespaceCommand
from services.log.clock import SystemClock
from services.metadata.checkpoints.kept_rows import kept_rows
from services.storage.linked_files import LinkedFiles, file_sizes

NAME = "snapshot-disk"
BUCKET = "bucket"
MEGABYTE = 1_000_000
ROUNDS = 3
DIRECTORIES = 1_000
SIZE_BYTES = 100
FEWER = 10
"""There are so many times fewer keys when there are many snapshots."""
CHURN = 100
"""One in so many keys is overwritten between two of many snapshots."""
WHOLE, OF_CHECKPOINTS = Target(120, is_upper=True), Target(60, is_upper=True)


def measure_snapshot_disk(conditions: Conditions) -> Sequence[Figure]:
    """Put many keys, create a snapshot, overwrite all, create another, overwrite all, create a third: the bytes on disk
    then, and after metadata has merged its tables at rest and rewritten the checkpoints that are worth it. Then, in a
    shard of its own with a tenth of the keys, many snapshots with a hundredth of them overwritten before each.
    """
    keys = conditions.sizes.many_keys
    shard = LoadedShard(conditions.scratch(NAME), SystemClock())
    shard.make_bucket(BUCKET, BucketLayout.OBJECT_STORE)
    for number in range(ROUNDS):
        for done in shard.load(_puts(range(keys))):
            conditions.say(f"{NAME}: round {number + 1}, {done:,} of {keys:,} keys")
        shard.snapshot(f"round-{number + 1}", BUCKET)
    while shard.store.trim_checkpoints():
        pass
    figures = _figures(shard, "before")
    conditions.say(f"{NAME}: rewriting")
    _defragment(shard)
    figures += _figures(shard, "after", WHOLE, OF_CHECKPOINTS)
    shard.close()
    return [*figures, *_under_churn(conditions, max(1, keys // FEWER), conditions.sizes.held_snapshots)]


def _under_churn(conditions: Conditions, keys: int, snapshots: int) -> Iterator[Figure]:
    """Yield the bytes that the first and the second half of many snapshots have added, for each snapshot."""
    shard = LoadedShard(conditions.scratch(f"{NAME}-churn"), SystemClock())
    shard.make_bucket(BUCKET, BucketLayout.OBJECT_STORE)
    shard.apply(_puts(range(keys)))
    changed, half = max(1, keys // CHURN), max(1, snapshots // 2)
    sizes = [_bytes(shard.directory)]
    for number in range(2 * half):
        first = number * changed % keys
        shard.apply(_puts(range(first, min(keys, first + changed))))
        shard.snapshot(f"churn-{number}", BUCKET)
        if number % 10 == 0:
            conditions.say(f"{NAME}: {number:,} of {snapshots:,} snapshots")
        if number in (half - 1, 2 * half - 1):
            _defragment(shard)
            sizes.append(_bytes(shard.directory))
    shard.close()
    details = {"changed_keys": float(changed), "snapshots": float(half)}
    for name, before, after in zip(("first", "second"), sizes, sizes[1:], strict=False):
        added = (after - before) / half
        yield Figure(f"{NAME}/{name}-half", added, "bytes", None, None, {**details, "bytes_a_change": added / changed})


def _puts(numbers: range) -> Iterator[NamespaceCommand]:
    """Yield puts of keys in another order than that of their names, as from many clients."""
    return (PutKey(VOLUME, BUCKET, f"dir{number % DIRECTORIES:04}/key{number:07}", SIZE_BYTES) for number in numbers)


def _defragment(shard: LoadedShard) -> None:
    """Do what metadata's threads do when nothing is written."""
    store = shard.store
    store.trim_checkpoints(1_000_000)
    store.compact_at_rest(0)
    while store.defragment(partial(kept_rows, store), lambda _: True):
        pass
    store.trim_checkpoints(1_000_000)


def _figures(shard: LoadedShard, when: str, whole: Target | None = None, own: Target | None = None) -> list[Figure]:
    database, checkpoints = shard.directory / "db", shard.directory / "checkpoints"
    tables = {f"{name}_megabytes": size / MEGABYTE for name, size in sorted(shard.store.table_sizes().items()) if size}
    files = file_sizes(database)
    log = sum(file.stat().st_size for file in database.glob("*.log"))
    other = sum(files.values()) / MEGABYTE - sum(tables.values()) - log / MEGABYTE
    linked = LinkedFiles()
    linked.look(checkpoints.iterdir())
    shares = {f"{path.name}_megabytes": share / MEGABYTE for path, share in sorted(linked.shares(files).items())}
    return [
        Figure(
            f"{NAME}/{when}",
            _bytes(shard.directory) / MEGABYTE,
            "MB",
            whole,
            None,
            {**tables, "log_megabytes": log / MEGABYTE, "other_megabytes": other},
        ),
        Figure(f"{NAME}/checkpoints-{when}", linked.bytes_beside(files) / MEGABYTE, "MB", own, None, shares),
    ]


def _bytes(directory: Path) -> int:
    """Return the bytes of all files below a directory, each inode once."""
    found: dict[int, int] = {}
    for parent, _, _ in os.walk(directory):
        found |= file_sizes(Path(parent))
    return sum(found.values())
