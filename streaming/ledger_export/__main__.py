"""The export job: writes new ledger messages to Parquet files, a row for each freed version, exactly once.

``deepclean ledger export`` starts it; ``python -m streaming.ledger_export --help`` lists the arguments. A run exports
all present messages, then ends. The next run resumes from the Spark checkpoint.

A message is duplicated if metadata crashes before the broker's acknowledgement arrives, or is restored to an older
state. The finish txn identifies a message. The finish txns of a shard only rise, so a batch exports only messages above
the mark of the batch before it. Spark repeats an interrupted batch with the same number and the same messages; the
repeated batch replaces the directory of that number.

The job decodes a message with the schema that its frame names: one of the released schemas, or one that is published.
A message that does not match its schema is dead-lettered: the job writes it to a directory beside the rows, counts it,
and exports the messages after it. A message whose schema is not published ends the run before any row of its batch is
written, since nothing of the ledger may be left out because a schema is missing.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col
from pyspark.sql.functions import max as greatest_of

from schemas.access import group_prefix
from schemas.credentials import KafkaCredentials, credentials_of, login_file_of
from schemas.records import LedgerRows
from schemas.topics import CLIENTS, LEDGER
from services.domain.errors import DeepcleanError, InvariantError
from services.log.kafka import KafkaLog
from services.log.schema_topic import SchemaTopic
from streaming.ledger_export.ledger_rows import new_rows, read_ledger_messages
from streaming.spark.child_job import job_session, say
from streaming.spark.read_messages import require_schemas
from streaming.spark.session import session_parser
from streaming.spark.written_messages import WrittenMessages

MARKS_DIRECTORY = "marks"
CHECKPOINT_DIRECTORY = "checkpoint"
ROWS_DIRECTORY = "rows"
UNREADABLE_DIRECTORY = "unreadable"
MAX_MESSAGES_PER_BATCH = 2_000


@dataclass(frozen=True, slots=True)
class Exported:
    """The number of rows and of unreadable messages that a run has written."""

    rows: int
    unreadable: int


def export(
    session: SparkSession,
    bootstrap_servers: str,
    directory: Path,
    max_messages_per_batch: int = MAX_MESSAGES_PER_BATCH,
    credentials: KafkaCredentials | None = None,
) -> Exported:
    """Export the new messages of the ledger; return the numbers of rows and unreadable messages.

    ``directory`` belongs to this job: rows, unreadable messages, marks, Spark checkpoint. ``credentials`` are those of
    a client that may read the ledger.

    Raises:
        InvariantError: the topic has lost messages or was recreated, or the directory cannot be used.
        RetryableError: the broker did not answer.
    """
    if (directory / ROWS_DIRECTORY).exists() and not (directory / CHECKPOINT_DIRECTORY).exists():
        raise InvariantError(f"{directory} has rows and no checkpoint: name another directory, or empty this one.")
    log = KafkaLog(bootstrap_servers, group_prefix(CLIENTS) + "ledger-export", credentials=credentials)
    written = _Batches(directory, SchemaTopic(log))
    messages = (
        session.readStream.format("kafka")
        .options(**(credentials.spark_settings() if credentials else {}))
        .option("kafka.bootstrap.servers", bootstrap_servers)
        .option("groupIdPrefix", group_prefix(CLIENTS))
        .option("kafka.isolation.level", "read_committed")
        .option("subscribe", LEDGER.name)
        .option("startingOffsets", "earliest")
        .option("failOnDataLoss", "true")
        .option("maxOffsetsPerTrigger", str(max_messages_per_batch))
        .load()
    )
    writer = messages.writeStream.foreachBatch(written.write).trigger(availableNow=True)
    query = writer.option("checkpointLocation", str(directory / CHECKPOINT_DIRECTORY)).start()
    try:
        query.awaitTermination()
    except Exception as error:
        if written.failure is not None:
            raise written.failure from error
        raise InvariantError(f"The ledger could not be exported: {str(error)[:2_000]}") from error
    return Exported(written.rows, written.unreadable)


class _Batches:
    """Writes batches, and stores the last exported finish txn of each shard (its mark)."""

    def __init__(self, directory: Path, schemas: SchemaTopic) -> None:
        self._directory = directory
        self._schemas = schemas
        self._messages = WrittenMessages(LedgerRows)
        self.rows = self.unreadable = 0
        self.failure: DeepcleanError | None = None
        """The error that ended the export; Spark's own exception contains only its text."""

    def write(self, batch: DataFrame, number: int) -> None:
        """Write one batch: first its rows, then its marks. A repeated batch writes the same files.

        Raises:
            InvariantError: a schema is not published, or the marks of the batch before cannot be read.
            RetryableError: the broker did not answer.
        """
        try:
            self._write(batch, number)
        except DeepcleanError as error:
            self.failure = error
            raise

    def _write(self, batch: DataFrame, number: int) -> None:
        marks = self._marks_before(number)
        self._schemas.read()  # metadata has published each schema before the first message of it
        self._messages.learn_published()
        read = read_ledger_messages(batch, self._messages).persist()
        rows = new_rows(read, marks).persist()
        try:
            require_schemas(read, self._messages, LEDGER.name)
            ends = rows.groupBy("shard").agg(greatest_of("finish_txn").alias("finish_txn")).collect()
            if ends:
                rows.coalesce(1).write.mode("overwrite").parquet(self._target(ROWS_DIRECTORY, number))
            self.rows += rows.count()
            self._dead_letter(read.filter(col("error").isNotNull()), number)
        finally:
            rows.unpersist()
            read.unpersist()
        marks |= {str(end["shard"]): end["finish_txn"] for end in ends}
        self._save(number, marks)
        say(batch=number, rows=self.rows, unreadable=self.unreadable)

    def _dead_letter(self, unreadable: DataFrame, number: int) -> None:
        count = unreadable.count()
        if count:
            kept = unreadable.select("shard", "offset", "error", "value").coalesce(1)
            kept.write.mode("overwrite").parquet(self._target(UNREADABLE_DIRECTORY, number))
        self.unreadable += count

    def _target(self, name: str, number: int) -> str:
        return str(self._directory / name / f"batch={number}")

    def _marks_before(self, number: int) -> dict[str, int]:
        """Return the marks that the batch before has saved, also if a run of this batch has already saved its own."""
        file = self._directory / MARKS_DIRECTORY / f"{number - 1}.json"
        if number == 0:
            return {}
        try:
            marks: dict[str, int] = json.loads(file.read_text("utf-8"))
        except (OSError, ValueError) as error:
            raise InvariantError(
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


def main() -> None:
    """Export the new messages of the ledger to a directory."""
    parser = session_parser("streaming.ledger_export", "Export the ledger to Parquet.")
    parser.add_argument("--bootstrap-servers", required=True, help="brokers")
    parser.add_argument("--directory", required=True, type=Path, metavar="DIR", help="where the files are and go")
    options = parser.parse_args()
    with job_session(options, "deepclean-ledger", login_file_of(os.environ)) as session:
        written = export(
            session, options.bootstrap_servers, options.directory.absolute(), credentials=credentials_of(os.environ)
        )
        say(exported=written.rows, unreadable=written.unreadable)


if __name__ == "__main__":
    main()
