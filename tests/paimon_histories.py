"""Random tables of Apache Paimon: kinds of tables, and histories of commits, tags, consumers, branches and expiries."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from random import Random

from tests.paimon_runtime import DELETE, INSERT, Paimon, PaimonTable, Row

COLUMNS = {"day": "STRING", "k": "INT", "v": "STRING"}
SMALL_MANIFESTS = {"manifest.merge-min-count": "3", "manifest.full-compaction-threshold-size": "4 kb"}
MINUTE_MS = 60_000


@dataclass(frozen=True, slots=True)
class TableKind:
    """The options of a table, and what may happen to it."""

    options: dict[str, str] = field(default_factory=dict)
    is_partitioned: bool = True
    has_keys: bool = True
    has_given_buckets: bool = False
    """Whether a row is written with its bucket: an index says later which bucket it has."""
    buckets: int = 2


KINDS = {
    "primary-key": TableKind({"bucket": "2", "num-sorted-run.compaction-trigger": "3"}),
    "append": TableKind({"bucket": "-1", "file.format": "avro"}, has_keys=False, buckets=0),
    "append-buckets": TableKind(
        {"bucket": "2", "bucket-key": "k", "compaction.min.file-num": "2", "file.format": "avro"}, has_keys=False
    ),
    "input-changelog": TableKind({"bucket": "2", "changelog-producer": "input", "file.format": "avro"}),
    "lookup-changelog": TableKind({"bucket": "1", "changelog-producer": "lookup"}, is_partitioned=False, buckets=1),
    "full-compaction-changelog": TableKind(
        {"bucket": "1", "changelog-producer": "full-compaction", "full-compaction.delta-commits": "2"}, buckets=1
    ),
    "deletion-vectors": TableKind({"bucket": "2", "deletion-vectors.enabled": "true"}),
    "deletion-vectors-beside-data": TableKind(
        {"bucket": "1", "deletion-vectors.enabled": "true", "index-file-in-data-file-dir": "true"}, buckets=1
    ),
    "hash-index": TableKind({"bucket": "-1", "file.format": "avro"}, is_partitioned=False, has_given_buckets=True),
    "file-index": TableKind(
        {"bucket": "2", "file-index.bloom-filter.columns": "v", "file-index.in-manifest-threshold": "1 B"},
    ),
    "own-data-directory": TableKind({"bucket": "2", "data-file.path-directory": "data", "file.format": "avro"}),
    "decoupled-changelog": TableKind(
        {"bucket": "2", "changelog-producer": "input", "changelog.num-retained.min": "30", "file.format": "avro"}
    ),
    "decoupled-without-producer": TableKind({"bucket": "1", "changelog.num-retained.min": "30"}, buckets=1),
}


def random_table(runtime: Paimon, name: str, kind: TableKind, random: Random) -> PaimonTable:
    """Create a table and let commits, tags, consumers, branches and expiries happen to it."""
    keys = (("day", "k") if kind.is_partitioned else ("k",)) if kind.has_keys else ()
    table = runtime.create(
        name,
        COLUMNS,
        {**SMALL_MANIFESTS, **kind.options},
        partition=("day",) if kind.is_partitioned else (),
        primary=keys,
    )
    for _ in range(random.randint(2, 5)):
        _write(table, kind, random)
    for _ in range(random.randint(6, 14)):
        _step(table, kind, random)
    _write(table, kind, random)
    _age(table, random)
    return table


def _step(table: PaimonTable, kind: TableKind, random: Random) -> None:
    steps = {"write": 10, "overwrite": 2, "tag": 3, "compact": 3, "analyze": 1, "consume": 1}
    steps |= {"truncate": 1, "delete_tag": 1, "branch": 1, "rollback": 1, "expire": 1}
    step = random.choices(list(steps), list(steps.values()))[0]
    if step == "write":
        _write(table, kind, random)
    elif step == "overwrite":
        where = {"day": f"d{random.randint(0, 2)}"} if kind.is_partitioned else {}
        rows = [(INSERT, (where.get("day", "d0"), random.randint(0, 9), "o"))]
        table.write(rows, overwrite=where, bucket_of=_bucket_of(kind))
    elif step == "tag":
        table.java.createTag(f"t{time.time_ns()}", random.choice(table.snapshots()))
    elif step == "compact" and kind.buckets:
        where_row: Row = (f"d{random.randint(0, 2)}", 0, "")
        table.write([], compact=[(where_row, bucket) for bucket in range(kind.buckets)], bucket_of=_bucket_of(kind))
    elif step == "analyze":
        table.analyze(random.randint(1, 100))
    elif step == "consume":
        table.consume(random.choice("ab"), random.choice(table.snapshots()) + random.randint(0, 3))
    else:
        _rare_step(step, table, kind, random)


def _rare_step(step: str, table: PaimonTable, kind: TableKind, random: Random) -> None:
    tags = [str(name) for name in table.java.tagManager().allTagNames()]
    if step == "truncate":
        table.truncate()
    elif step == "delete_tag" and tags:
        table.java.deleteTag(random.choice(tags))
    elif step == "branch" and tags:
        branch = table.on_branch(f"b{time.time_ns()}")
        table.java.createBranch(branch.branch, random.choice(tags))
        for _ in range(random.randint(0, 3)):
            _write(branch, kind, random)
    elif step == "rollback":
        newest = table.snapshots()[-3:]
        table.java.rollbackTo(random.choice(newest))
    elif step == "expire":
        _age(table, random)
        kept = str(random.randint(2, 6))
        table.expire({"snapshot.num-retained.min": kept, "snapshot.num-retained.max": kept})


def _write(table: PaimonTable, kind: TableKind, random: Random) -> None:
    rows: list[tuple[str, Row]] = []
    for _ in range(random.randint(1, 8)):
        what = DELETE if kind.has_keys and random.random() < 0.2 else INSERT
        rows.append((what, (f"d{random.randint(0, 2)}", random.randint(0, 9), "v" * random.randint(0, 40))))
    table.write(rows, bucket_of=_bucket_of(kind))


def _bucket_of(kind: TableKind) -> object:
    return (lambda row: row[1] % kind.buckets) if kind.has_given_buckets else None


def _age(table: PaimonTable, random: Random) -> None:
    """Give the snapshots times some minutes apart, the newest one a minute ago."""
    time_ms = time.time_ns() // 1_000_000 - MINUTE_MS
    for snapshot in reversed(table.snapshots()):
        table.set_time(snapshot, time_ms)
        time_ms -= random.randint(1, 20) * MINUTE_MS
