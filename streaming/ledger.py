"""The export job: brings what is new in the ledger into Parquet files, a row for each freed version, exactly once.

Started by ``deepclean ledger export``; ``python -m streaming.ledger --help`` says with what. It is one run of a
stream: whatever is there is written, then it ends, and the next run goes on from its checkpoint.

A message comes twice when metadata dies between sending and knowing that it was sent, or is put back to an older state.
Its finish txn names it: those of a shard only rise, so of each run only what is above the mark of the last one counts.
Spark gives a batch that was cut off the same number and the same messages again; it is written into a directory of that
number, in place of what is there.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.avro.functions import from_avro
from pyspark.sql.functions import arrays_zip, col, element_at, explode, expr, lit
from pyspark.sql.functions import max as greatest_of

from schemas.access import group_prefix
from schemas.codec import FINGERPRINT_HEADER, released_schemas, schema_fingerprint
from schemas.credentials import CredentialsError, KafkaCredentials, credentials_of, login_file_of
from schemas.records import LedgerRows
from schemas.topics import CLIENTS, LEDGER
from streaming.child_job import STOPPED_STATUS, end_with_standard_input, say
from streaming.errors import StopError, StreamingError
from streaming.session import SessionOptions, spark_session

MARKS_DIRECTORY = "marks"
CHECKPOINT_DIRECTORY = "checkpoint"
ROWS_DIRECTORY = "rows"
MAX_MESSAGES_PER_BATCH = 2_000
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


@dataclass(frozen=True, slots=True)
class ExportOptions:
    """What a run is told. ``directory`` gets ``rows``, ``marks`` and ``checkpoint``; it belongs to this job."""

    bootstrap_servers: str
    directory: Path
    max_messages_per_batch: int = MAX_MESSAGES_PER_BATCH
    credentials: KafkaCredentials | None = None
    """Who the job is at the broker: a client, who may read the ledger."""

    def broker_settings(self) -> dict[str, str]:
        """How Spark's source reaches the broker."""
        login = self.credentials.spark_settings() if self.credentials else {}
        return {**login, "kafka.bootstrap.servers": self.bootstrap_servers, "groupIdPrefix": group_prefix(CLIENTS)}


def export(session: SparkSession, options: ExportOptions) -> int:
    """Write what is new in the ledger; says how many rows that were.

    Raises:
        StopError: a message is none of this ledger's, or the topic is not the one that was read before.
    """
    has_rows, has_checkpoint = ((options.directory / name).exists() for name in (ROWS_DIRECTORY, CHECKPOINT_DIRECTORY))
    if has_rows and not has_checkpoint:
        raise StopError(f"{options.directory} has rows and no checkpoint: name another directory, or empty this one.")
    written = _Batches(options.directory)
    messages = (
        session.readStream.format("kafka")
        .options(**options.broker_settings())
        .option("subscribe", LEDGER.name)
        .option("startingOffsets", "earliest")
        .option("failOnDataLoss", "true")
        .option("includeHeaders", "true")
        .option("maxOffsetsPerTrigger", str(options.max_messages_per_batch))
        .load()
    )
    writer = messages.writeStream.foreachBatch(written.write).trigger(availableNow=True)
    query = writer.option("checkpointLocation", str(options.directory / CHECKPOINT_DIRECTORY)).start()
    try:
        query.awaitTermination()
    except Exception as error:
        raise StopError(f"The ledger could not be exported: {str(error)[:2_000]}") from error
    return written.rows


class _Batches:
    """Writes one batch after the other, and keeps up to which finish txn each shard is exported."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.rows = 0

    def write(self, batch: DataFrame, number: int) -> None:
        """Write one batch: its rows first, then the marks behind them; the same batch again gives the same."""
        marks = self._marks_before(number)
        rows = new_rows(batch, marks).persist()
        try:
            ends = rows.groupBy("shard").agg(greatest_of("finish_txn").alias("finish_txn")).collect()
            target = self._directory / ROWS_DIRECTORY / f"batch={number}"
            if ends:
                rows.coalesce(1).write.mode("overwrite").parquet(str(target))
            self.rows += rows.count()
        finally:
            rows.unpersist()
        marks |= {str(end["shard"]): end["finish_txn"] for end in ends}
        self._save(number, marks)
        say(batch=number, rows=self.rows)

    def _marks_before(self, number: int) -> dict[str, int]:
        """Marks as the batch before left them, also when this one was cut off after it had left its own."""
        file = self._directory / MARKS_DIRECTORY / f"{number - 1}.json"
        if number == 0:
            return {}
        try:
            marks: dict[str, int] = json.loads(file.read_text("utf-8"))
        except (OSError, ValueError) as error:
            raise StopError(
                f"{file} cannot be read ({error}): remove {self._directory} and export all of it again."
            ) from error
        return marks

    def _save(self, number: int, marks: dict[str, int]) -> None:
        file = self._directory / MARKS_DIRECTORY / f"{number}.json"
        file.parent.mkdir(parents=True, exist_ok=True)
        fresh = file.with_suffix(".new")
        fresh.write_text(json.dumps(marks))
        fresh.replace(file)
        (file.parent / f"{number - 2}.json").unlink(missing_ok=True)


def new_rows(batch: DataFrame, marks: dict[str, int]) -> DataFrame:
    """The rows of a batch of messages, each message once, those above the marks; raises for one that is no message."""
    (schema,) = released_schemas(LedgerRows.__name__)  # when there are more, each message names its own
    fingerprint = expr(f"get(filter(headers, one -> one.key = '{FINGERPRINT_HEADER}'), 0).value")
    is_known = fingerprint.isNull() | (fingerprint == lit(schema_fingerprint(schema)))
    read = batch.select(
        col("partition").alias("shard"),
        is_known.alias("is_known"),
        from_avro(col("value"), json.dumps(schema), {"mode": "FAILFAST"}).alias("entry"),
    ).filter(expr("if(is_known, true, raise_error('a message of the ledger has another schema: take a newer job'))"))
    once = read.select("shard", "entry.*").dropDuplicates(["shard", "finish_txn"])
    lengths = " and ".join(f"size(groups.{name}) = size(claim_places)" for name in _GROUP_FIELDS)
    whole = expr(f"if({lengths}, true, raise_error('the lists of a message of the ledger differ in length'))")
    passed = _above(once, marks).filter(whole)
    zipped = arrays_zip(col("claim_places"), *(col(f"groups.{name}").alias(name) for name in _GROUP_FIELDS))
    rows = passed.select("shard", "finish_txn", "finish_time_ms", "claims", explode(zipped).alias("row"))
    claim = element_at(col("claims"), col("row.claim_places") + 1)
    return rows.select(
        *("shard", "finish_txn", "finish_time_ms"),
        *(claim.getField(name).alias(name) for name in _CLAIM_FIELDS),
        *(col(f"row.{name}").alias(one) for name, one in _GROUP_FIELDS.items()),
    )


def _above(messages: DataFrame, marks: dict[str, int]) -> DataFrame:
    condition = lit(True)
    for shard, mark in marks.items():
        condition &= ~((col("shard") == int(shard)) & (col("finish_txn") <= mark))
    return messages.filter(condition)


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m streaming.ledger", description="Export the ledger to Parquet.")
    parser.add_argument("--jars-directory", required=True, type=Path, metavar="DIR", help="Spark's jars")
    parser.add_argument("--bootstrap-servers", required=True, help="brokers")
    parser.add_argument("--directory", required=True, type=Path, metavar="DIR", help="where the files are and go")
    parser.add_argument("--master", default="local[2]", help="Spark's master (default: local[2])")
    parser.add_argument("--heap", default="1g", help="heap of Spark's driver (default: 1g)")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    """Export, and say with the exit status how it ended; why is one sentence on standard error."""
    options: Any = parse(arguments)
    end_with_standard_input()
    session_options = SessionOptions(
        *(options.jars_directory, options.master, options.heap),
        name="deepclean-ledger",
        login_file=login_file_of(os.environ),
    )
    try:
        told = ExportOptions(
            options.bootstrap_servers, options.directory.absolute(), credentials=credentials_of(os.environ)
        )
        with spark_session(session_options) as session:
            say(exported=export(session, told))
    except (StreamingError, CredentialsError) as error:
        print(error, file=sys.stderr)
        return STOPPED_STATUS
    return 0


if __name__ == "__main__":
    sys.exit(main())
