"""Groups runs of blocks that the rule cannot tell apart, so that each group is judged once.

The rule compares a run's facts with a few numbers of the shard. Runs for which all these comparisons have the same
result are *alike*: SQL groups them, the rule judges one of each group by ``judge_run``, and the amount is that of all.
A run whose facts do not agree, or that has several of a kind, is *odd*: the rule gets all of its facts. Runs that are
not usual (referenced, and in both inventories) form a group each, so that their ids are known.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame, Row, functions
from pyspark.sql.functions import col, lit, when

from schemas.audit_report import Amount
from services.domain.table_keys import INDEX_BITS, TXN_BITS
from streaming.audit.fact_source import RunId, edges_of, seen_in
from streaming.audit.facts import AFTER, BEFORE, RUN, Fact, FactKind
from streaming.audit.reach import PRESENT
from streaming.audit.shard import AuditedShard

_SAME = (*RUN[2:], "bucket_id", "object_id", "birth")
"""What all facts of a run agree on."""
TRAITS = (
    *("is_odd", "kind", "bucket_id", "states", "is_shown", "flags", "oldest", "newest", "edges"),
    *("deleted", "claimed", "snapshots_before_death", "died_at_birth", "copies"),
    *("is_upload", "is_late", "was_reported", "is_young"),
)
"""Everything that the rule looks at."""
_ONE = (*RUN, "object_id", "birth", "death")
"""Numbers of one run of a group."""


def runs_of(facts: DataFrame, shard: AuditedShard) -> DataFrame:
    """Return one row a run with its traits, from facts as rows of ``SUMMED``."""
    ids = ["container_id", "first_local_id"]
    is_row, is_stored = col("kind") == int(FactKind.NAMESPACE), col("kind") == int(FactKind.INVENTORY)
    # Before they are grouped, the rows are half as long as after; and hardly any two are of one run in one task.
    found = (
        facts.repartition(*ids)
        .groupBy(*ids)
        .agg(
            functions.count_if(is_row).alias("rows"),
            functions.count_if(is_row & (col("flags").bitwiseAND(PRESENT) != 0)).alias("present"),
            functions.count_if(col("kind") == int(FactKind.DELETED)).alias("deleted"),
            functions.count_if(col("kind") == int(FactKind.CLAIMED)).alias("claimed"),
            functions.count_if(is_stored).alias("stored"),
            functions.bit_or(when(is_row, col("flags"))).alias("flags"),
            functions.max(when(is_stored, col("flags"))).alias("copies"),
            functions.min("oldest").alias("oldest"),
            functions.max("newest").alias("newest"),
            functions.bit_xor("edges").alias("edges"),
            functions.sum("states").alias("states"),
            functions.max("death").alias("death"),
            functions.max("snapshots_before_death").alias("snapshots_before_death"),
            functions.max("redundancy_bytes").alias("redundancy_bytes"),
            *(functions.min(name).alias(name) for name in _SAME),
            *(functions.max(name).alias(f"most_{name}") for name in _SAME),
        )
    )
    txn = functions.shiftright("first_local_id", INDEX_BITS).bitwiseAND((1 << TXN_BITS) - 1)
    is_late = functions.coalesce(txn != col("birth"), lit(False))
    reported = functions.greatest("first_local_id", when(is_late, lit(shard.reported_local_id)).otherwise(lit(0)))
    return found.select(
        *ids, *_SAME, "redundancy_bytes", "death", "flags", "oldest", "newest", "edges", "deleted", "claimed", "copies",
        "snapshots_before_death", functions.coalesce("states", lit(0)).alias("states"),
        when(col("container_id") < 0, -col("container_id")).alias("kind"),
        _is_odd().alias("is_odd"),
        (col("rows") > 0).alias("is_shown"),
        functions.coalesce(col("death") == col("birth"), lit(False)).alias("died_at_birth"),
        functions.coalesce(col("birth") == 0, lit(False)).alias("is_upload"),
        is_late.alias("is_late"),
        (reported <= shard.mark_before).alias("was_reported"),
        (txn > shard.txn).alias("is_young"),
    )  # fmt: skip


def _is_odd() -> Column:
    """Return whether a run's facts disagree, or there are several of a kind."""
    differ = [functions.coalesce(col(name) != col(f"most_{name}"), lit(False)) for name in _SAME]
    odd = (col("present") > 1) | (col("deleted") + col("claimed") > 1) | (col("stored") > 1)
    for one in differ:
        odd |= one
    return odd & (col("container_id") >= 0)


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
        places = (1 << row.newest + 1) - (1 << row.oldest)
        return (row.states, row.edges) != (places.bit_count(), edges_of(places))

    @property
    def amount(self) -> Amount:
        """Return the amount of all runs of the group."""
        return Amount(self.row.versions, self.row.bytes, self.row.all_redundancy_bytes)

    def facts(self, shard: AuditedShard) -> list[Fact]:
        """Return the facts of one run; an odd one has others, too."""
        row = self.row
        run = (row.container_id, row.first_local_id, row.block_count, row.block_size_bytes, row.size_bytes)
        found: list[Fact] = []

        def add(kind: FactKind, seen: int) -> None:
            owner = (0, 0) if kind is FactKind.INVENTORY else (row.object_id, row.birth)
            found.append((int(kind), *run, row.bucket_id, *owner, seen, b""))

        if row.is_shown:
            bucket = shard.buckets[row.bucket_id]
            add(FactKind.NAMESPACE, seen_in(row.flags, row.oldest, row.newest, bucket))
        if row.deleted:
            add(FactKind.DELETED, row.death)
        if row.claimed:
            add(FactKind.CLAIMED, row.death)
        if row.copies:
            add(FactKind.INVENTORY, row.copies)
        return found


def alike(runs: DataFrame) -> Iterator[Alike]:
    """Yield the groups of runs."""
    is_usual = ~col("is_odd") & (col("copies") == BEFORE | AFTER) & (col("is_shown") | (col("deleted") > 0))
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
