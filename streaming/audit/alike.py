"""Groups runs of blocks that the rule cannot tell apart, so that each group is judged once.

The rule compares a run's facts with a few numbers of the shard. Runs for which all these comparisons have the same
result are *alike*: SQL groups them, the rule judges one of each group by ``judge_run``, and the amount is that of all.
A run whose facts do not agree, or that has several of a kind, is *odd*: the rule gets all of its facts. Runs that are
not usual (referenced, and in both inventories) form a group each, so that their ids are known.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import reduce
from operator import or_

from pyspark.sql import Column, DataFrame, Row, functions
from pyspark.sql.functions import col, lit, when

from schemas.audit_report import Amount
from services.domain.table_keys import INDEX_BITS, TXN_BITS
from streaming.audit.fact_source import (
    COUNT_BITS,
    FLAGS,
    HAS_CLAIMED,
    HAS_DELETED,
    SHOWN,
    STORED_SHIFT,
    RunId,
    extent_of,
    seen_in,
)
from streaming.audit.facts import AFTER, BEFORE, RUN, Fact, FactKind
from streaming.audit.shard import AuditedShard

TRAITS = (
    *("is_odd", "kind", "bucket_id", "flags", "oldest", "newest", "extent"),
    *("snapshots_before_death", "died_at_birth", "is_upload", "is_late", "was_reported", "is_young"),
)
"""Everything that the rule looks at."""
_ONE = (*RUN, "birth", "death")
"""Numbers of one run of a group."""
_OF_ALL = ("redundancy_bytes", "bucket_id", "snapshots_before_death")
_COUNT = (1 << COUNT_BITS) - 1


def runs_of(facts: DataFrame, shard: AuditedShard) -> DataFrame:
    """Return one row a run with its traits, from facts as rows of ``SUMMED``."""
    ids = ["container_id", "first_local_id"]
    # Before they are grouped, the rows are half as long as after; and hardly any two are of one run in one task.
    found = (
        facts.repartition(*ids)
        .groupBy(*ids)
        .agg(
            functions.sum("counted").alias("counted"),
            functions.bit_or("flags").alias("flags"),
            functions.min("oldest").alias("oldest"),
            functions.max("newest").alias("newest"),
            functions.sum("extent").alias("extent"),
            *(functions.max(name).alias(name) for name in (*_ONE[2:], *_OF_ALL)),
            *(functions.min(name).alias(f"least_{name}") for name in ("blocks", "owner")),
            *(functions.max(name).alias(f"most_{name}") for name in ("blocks", "owner")),
        )
    )
    txn = functions.shiftright("first_local_id", INDEX_BITS).bitwiseAND((1 << TXN_BITS) - 1)
    is_late = functions.coalesce(txn != col("birth"), lit(False))
    reported = functions.greatest("first_local_id", when(is_late, lit(shard.reported_local_id)).otherwise(lit(0)))
    return found.select(
        *_ONE, *_OF_ALL, "flags", "oldest", "newest", "extent",
        when(col("container_id") < 0, -col("container_id")).alias("kind"),
        _is_odd().alias("is_odd"),
        functions.coalesce(col("death") == col("birth"), lit(False)).alias("died_at_birth"),
        functions.coalesce(col("birth") == 0, lit(False)).alias("is_upload"),
        is_late.alias("is_late"),
        (reported <= shard.mark_before).alias("was_reported"),
        (txn > shard.txn).alias("is_young"),
    )  # fmt: skip


def _is_odd() -> Column:
    """Return whether a run's facts disagree, or there are several of a kind."""
    several = [functions.shiftright("counted", place * COUNT_BITS).bitwiseAND(_COUNT) > 1 for place in range(3)]
    differ = [col(f"least_{name}") != col(f"most_{name}") for name in ("blocks", "owner")]
    return reduce(or_, (functions.coalesce(one, lit(False)) for one in (*several, *differ)))


@dataclass(frozen=True, slots=True)
class Alike:
    """A group of runs, with the numbers of one of them."""

    row: Row

    @property
    def run_id(self) -> RunId | None:
        """Return the id of a run that is not usual; None for a group of usual ones."""
        return None if self.row.listed is None else (self.row.container_id, self.row.first_local_id)

    @property
    def is_odd(self) -> bool:
        """Return whether all facts of a run are needed to judge it: they disagree, or its states are not in a row."""
        row = self.row
        if row.is_odd or row.oldest is None:
            return bool(row.is_odd)
        return bool(row.extent != extent_of((1 << row.newest + 1) - (1 << row.oldest)))

    @property
    def amount(self) -> Amount:
        """Return the amount of all runs of the group."""
        return Amount(self.row.versions, self.row.bytes, self.row.all_redundancy_bytes)

    def facts(self, shard: AuditedShard) -> list[Fact]:
        """Return the facts of one run; an odd one has others, too.

        The rule compares object ids only among facts of one run, which agree on them.
        """
        row = self.row
        run = (row.container_id, row.first_local_id, row.block_count, row.block_size_bytes, row.size_bytes)
        found: list[Fact] = []

        def add(kind: FactKind, seen: int) -> None:
            owner = (0, 0) if kind is FactKind.INVENTORY else (0, row.birth)
            found.append((int(kind), *run, row.bucket_id, *owner, seen, b""))

        if row.flags & SHOWN:
            bucket = shard.buckets[row.bucket_id]
            add(FactKind.NAMESPACE, seen_in(row.flags & FLAGS, row.oldest, row.newest, bucket))
        if row.flags & HAS_DELETED:
            add(FactKind.DELETED, row.death)
        if row.flags & HAS_CLAIMED:
            add(FactKind.CLAIMED, row.death)
        if row.flags >> STORED_SHIFT:
            add(FactKind.INVENTORY, row.flags >> STORED_SHIFT)
        return found


def alike(runs: DataFrame) -> Iterator[Alike]:
    """Yield the groups of runs."""
    is_stored = functions.shiftright("flags", STORED_SHIFT) == BEFORE | AFTER
    is_usual = ~col("is_odd") & is_stored & (col("flags").bitwiseAND(SHOWN | HAS_DELETED) != 0)
    listed = when(~functions.coalesce(is_usual, lit(False)), col("first_local_id"))
    container = when(listed.isNotNull(), col("container_id"))
    groups = runs.groupBy(*TRAITS, listed.alias("listed"), container.alias("listed_container")).agg(
        functions.count("*").alias("versions"),
        functions.sum("size_bytes").alias("bytes"),
        functions.sum("redundancy_bytes").alias("all_redundancy_bytes"),
        *(functions.first(name).alias(name) for name in _ONE),
    )
    return map(Alike, groups.toLocalIterator(prefetchPartitions=True))


def ids_of(runs: DataFrame, groups: list[Alike]) -> Iterator[RunId]:
    """Yield the ids of all runs of some groups."""
    wanted = runs.sparkSession.createDataFrame(
        [tuple(one.row[name] for name in TRAITS) for one in groups], runs.select(*TRAITS).schema
    )
    is_same = lit(True)
    for name in TRAITS:
        is_same &= runs[name].eqNullSafe(wanted[name])
    found = runs.join(functions.broadcast(wanted), is_same, "left_semi").select("container_id", "first_local_id")
    return ((row.container_id, row.first_local_id) for row in found.toLocalIterator(prefetchPartitions=True))
