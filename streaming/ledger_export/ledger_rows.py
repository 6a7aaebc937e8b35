"""Messages of the ledger as rows, one for each freed version: what the exports to Parquet and to tables share."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import DataFrame
from pyspark.sql.functions import arrays_zip, coalesce, col, element_at, explode, expr, lit

from streaming.spark.read_messages import read_messages
from streaming.spark.written_messages import WrittenMessages

_CLAIM_FIELDS = (
    *("claim_txn", "claim_time_ms", "chain_version", "previous_txn", "next_txn"),
    *("task", "first_judge_version", "second_judge_version"),
)
_GROUP_FIELDS = {
    "bucket_ids": "bucket_id",
    "object_ids": "object_id",
    "births": "birth",
    "deaths": "death",
    "container_ids": "container_id",
    "first_local_ids": "first_local_id",
    "block_counts": "block_count",
    "block_sizes_bytes": "block_size_bytes",
    "sizes_bytes": "size_bytes",
}


def read_ledger_messages(batch: DataFrame, messages: WrittenMessages) -> DataFrame:
    """Return ``read_messages``. A message in which a row names a claim that the message does not have is not whole."""
    lengths = " and ".join(f"size(entry.groups.{name}) = size(entry.claim_places)" for name in _GROUP_FIELDS)
    places = "forall(entry.claim_places, place -> place >= 0 and place < size(entry.claims))"
    return read_messages(batch, messages, coalesce(expr(f"{lengths} and {places}"), lit(False)))


def new_rows(read: DataFrame, marks: Mapping[str, int]) -> DataFrame:
    """Return the rows of readable messages above the marks, each message once."""
    once = read.filter(col("error").isNull()).select("shard", "entry.*").dropDuplicates(["shard", "finish_txn"])
    for shard, mark in marks.items():
        once = once.filter((col("shard") != int(shard)) | (col("finish_txn") > mark))
    zipped = arrays_zip(col("claim_places"), *(col(f"groups.{name}").alias(name) for name in _GROUP_FIELDS))
    rows = once.select("shard", "finish_txn", "finish_time_ms", "claims", explode(zipped).alias("row"))
    claim = element_at(col("claims"), col("row.claim_places") + 1)
    return rows.select(
        *("shard", "finish_txn", "finish_time_ms"),
        *(claim.getField(name).alias(name) for name in _CLAIM_FIELDS),
        *(col(f"row.{name}").alias(one) for name, one in _GROUP_FIELDS.items()),
    )
