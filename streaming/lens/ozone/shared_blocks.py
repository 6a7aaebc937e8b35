"""Counts a block once that several rows name.

Some rows share blocks by right: an hsynced key has them in its own row and in its open key's. Others share them after
a crash, or by a defect of Ozone. Usually no two rows share a block, and then the things stay as they are.
"""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import DataFrame, functions

from streaming.lens.runs import merged_runs

_BLOCK = ("container", "local")


@dataclass(frozen=True)
class BlocksOnce:
    """Things of which no two have a block in common."""

    things: DataFrame
    disagreeing: DataFrame | None = None
    """By bucket, the blocks of which rows say different holders, and those that rows of other buckets have as well:
    columns ``bucket``, ``is_of_others``, ``blocks``, ``bytes``, ``replicated_bytes``. None if there are none."""


def each_block_once(things: DataFrame) -> BlocksOnce:
    """Return the things with each block in one of them.

    A committed row counts rather than an open key or a part of an upload. Several committed rows of a block are held
    by whoever holds one of them. Places are those of a bucket: rows of different buckets cannot be united, so that
    those of one bucket count.
    """
    blocks = things.select("row", functions.explode("blocks").alias("block")).select(
        "row", "block.container", "block.local"
    )
    shared = blocks.groupBy(*_BLOCK).count().where("count > 1").select(*_BLOCK).cache()
    if shared.isEmpty():
        return BlocksOnce(things)
    rows = blocks.join(shared, list(_BLOCK)).select("row").distinct().cache()
    pieces = (
        things.join(rows, "row", "left_semi")
        .select("*", functions.explode("blocks").alias("block"))
        .withColumn("rank", functions.when(functions.col("kind").isin("open-key", "upload-part"), 1).otherwise(0))
    )
    owner = functions.struct("rank", "row", "bucket", "path", "id", "kind", "block.bytes", "block.replicated_bytes")
    by_block = (
        pieces.groupBy("block.container", "block.local")
        .agg(
            functions.min(owner).alias("owner"),
            functions.min("rank").alias("best"),
            functions.collect_list(functions.struct("rank", "bucket", "runs")).alias("rows"),
        )
        .withColumn("best_rows", functions.expr("filter(rows, one -> one.rank = best)"))
        .withColumn("buckets", functions.expr("array_distinct(transform(best_rows, one -> one.bucket))"))
        .withColumn(
            "best_runs",
            functions.expr("transform(filter(best_rows, one -> one.bucket = owner.bucket), one -> one.runs)"),
        )
        .withColumn("all_runs", functions.flatten("best_runs"))
        .withColumn("runs", merged_runs("all_runs"))
        .withColumn("is_disagreed", functions.expr("size(array_distinct(best_runs)) > 1"))
        .cache()
    )
    merged_things = (
        by_block.groupBy("owner.row", "owner.bucket", "owner.path", "owner.id", "owner.kind", "runs")
        .agg(
            functions.sum("owner.bytes").alias("bytes"),
            functions.sum("owner.replicated_bytes").alias("replicated_bytes"),
            functions.min(functions.struct(*_BLOCK)).alias("block"),
        )
        .withColumn("id", functions.expr("concat(substring_index(id, '/', 1), '/', block.container, ':', block.local)"))
    )
    columns = ("bucket", "path", "id", "kind", "bytes", "replicated_bytes", "runs")
    untouched = things.join(rows, "row", "left_anti").select(*columns)
    sums = (
        functions.count("*").alias("blocks"),
        functions.sum("owner.bytes").alias("bytes"),
        functions.sum("owner.replicated_bytes").alias("replicated_bytes"),
    )
    of_several = by_block.where("size(buckets) > 1").withColumn("bucket", functions.explode("buckets"))
    disagreed = by_block.where("is_disagreed").withColumn("bucket", functions.col("owner.bucket"))
    disagreeing = (
        disagreed.withColumn("is_of_others", functions.lit(False))
        .unionByName(of_several.withColumn("is_of_others", functions.lit(True)))
        .groupBy("bucket", "is_of_others")
        .agg(*sums)
    )
    return BlocksOnce(untouched.unionByName(merged_things.select(*columns)), disagreeing)
