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
    history = _History(table, kind, random)
    for _ in range(random.randint(2, 5)):
        history.write()
    for _ in range(random.randint(6, 14)):
        history.step()
    history.write()
    _age(table, random)
    return table


class _History:
    """What may happen to a table."""

    def __init__(self, table: PaimonTable, kind: TableKind, random: Random) -> None:
        self.table, self.kind, self.random = table, kind, random
        self.bucket_of = (lambda row: row[1] % kind.buckets) if kind.has_given_buckets else None
        self.steps = {self.write: 10, self.overwrite: 2, self.tag: 3, self.compact: 3, self.analyze: 1}
        self.steps |= {self.consume: 1, self.table.truncate: 1, self.delete_tag: 1, self.branch: 1}
        self.steps |= {self.roll_back: 1, self.expire: 1}

    def step(self) -> None:
        (step,) = self.random.choices(list(self.steps), list(self.steps.values()))
        step()

    def write(self) -> None:
        rows: list[tuple[str, Row]] = []
        for _ in range(self.random.randint(1, 8)):
            what = DELETE if self.kind.has_keys and self.random.random() < 0.2 else INSERT
            rows.append((what, (self._day(), self.random.randint(0, 9), "v" * self.random.randint(0, 40))))
        self.table.write(rows, bucket_of=self.bucket_of)

    def overwrite(self) -> None:
        day = self._day()
        where = {"day": day} if self.kind.is_partitioned else {}
        self.table.write([(INSERT, (day, self.random.randint(0, 9), "o"))], overwrite=where, bucket_of=self.bucket_of)

    def compact(self) -> None:
        day = self._day()
        self.table.write([], compact=[((day, 0, ""), bucket) for bucket in range(self.kind.buckets)])

    def tag(self) -> None:
        self.table.java.createTag(f"t{time.time_ns()}", self.random.choice(self.table.snapshots()))

    def delete_tag(self) -> None:
        for tag in self._tags()[:1]:
            self.table.java.deleteTag(tag)

    def branch(self) -> None:
        """Paimon makes no branch of a tag whose snapshot has expired."""
        there = self.table.snapshots()
        tags = [tag for tag in self._tags() if self.table.java.tagManager().getOrThrow(tag).id() in there]
        for tag in tags[:1]:
            branch = self.table.on_branch(f"b{time.time_ns()}")
            self.table.java.createBranch(branch.branch, tag)
            history = _History(branch, self.kind, self.random)
            for _ in range(self.random.randint(0, 3)):
                history.write()

    def analyze(self) -> None:
        self.table.analyze(self.random.randint(1, 100))

    def consume(self) -> None:
        following = self.random.choice(self.table.snapshots()) + self.random.randint(0, 3)
        self.table.consume(self.random.choice("ab"), following)

    def roll_back(self) -> None:
        self.table.java.rollbackTo(self.random.choice(self.table.snapshots()[-3:]))

    def expire(self) -> None:
        _age(self.table, self.random)
        kept = str(self.random.randint(2, 6))
        self.table.expire({"snapshot.num-retained.min": kept, "snapshot.num-retained.max": kept})

    def _day(self) -> str:
        return f"d{self.random.randint(0, 2)}"

    def _tags(self) -> list[str]:
        """Return the names of all tags in any order that the seed decides."""
        tags = sorted(str(name) for name in self.table.java.tagManager().allTagNames())
        self.random.shuffle(tags)
        return tags


def _age(table: PaimonTable, random: Random) -> None:
    """Give the snapshots times some minutes apart, the newest one a minute ago."""
    time_ms = time.time_ns() // 1_000_000 - MINUTE_MS
    for snapshot in reversed(table.snapshots()):
        table.set_time(snapshot, time_ms)
        time_ms -= random.randint(1, 20) * MINUTE_MS
