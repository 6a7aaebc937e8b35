"""Spark columns that decode, judge and encode one batch. They are built once and used in every plan.

A message holds many rows, stored by columns. The job decodes the whole message, then judges each row. It groups the
batch by shard and by a stretch of offsets: one shuffle, of little more than the rows to be purged, yields whole
messages. An unreadable message is dead-lettered unchanged; a row that cannot be judged is dead-lettered alone. Every
row whose verdict is an error or null becomes a dead letter.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import reduce
from operator import and_
from typing import Any

from pyspark.sql import Column, DataFrame, functions
from pyspark.sql.avro.functions import to_avro
from pyspark.sql.functions import col, lit, when

from schemas.codec import codec
from schemas.records import DeletedEntries, DeletedKind
from schemas.schema_files import resolved_schema
from schemas.topics import DEAD_LETTERS, DELETED_ENTRIES, PURGE_DIRECTORIES, PURGE_KEYS, SWEEP_RESULTS, Topic
from services.domain.judging import ROWS_PER_MESSAGE
from streaming.reclaiming.rule import (
    CHAIN_COLUMNS,
    HELD,
    LIFETIME_ERROR,
    RECLAIMABLE,
    UNKNOWN_DEATH_ERROR,
    verdict,
    with_neighbours,
)
from streaming.reclaiming.view_table import JoinedView
from streaming.spark.written_messages import COLUMNS_ERROR, DECODE_ERROR, WrittenMessages, as_text

OFFSETS_PER_GROUP = 50
"""A message holds at most 1,000 rows; all rows of a group are in memory at once.

All messages of a group but the last one are full. A full batch has many groups for each task, so that no task publishes
much more than another.
"""

DEAD_LETTER_BYTES = 900_000
"""Most bytes of a message in a dead letter. A broker accepts one megabyte, which includes the framing."""
SURROUNDING_BYTES = 50_000
"""Most bytes of a message's key and headers in a dead letter."""

PASSED_OVER = "passed over"
PREMATURE = "premature"
PREMATURE_ERROR = "PrematureError"
EMPTY = "empty"
_BARRIER_TYPE = "struct<barrier_id:string,round:int,work:bigint,origin:string,collection_txn:bigint,passed_txn:bigint>"


class BatchPlan:
    """Turns a batch of messages of gc.deleted-entries into the messages that it causes."""

    def __init__(self, schemas: WrittenMessages) -> None:
        self._placed = [
            col("partition").alias("shard"),
            *(col("offset"), col("value")),
            col("key").alias("message_key"),
            col("headers").alias("message_headers"),
            functions.unix_millis("timestamp").alias("published_ms"),
        ]
        readable = when(col("view_version").isNotNull(), col("value"))  # the rest is only counted
        self._decoded = [col("*"), schemas.decode(readable).alias("decoded")]
        self._checked = [
            *(col(name) for name in ("shard", "offset", "value", "message_key", "message_headers", "published_ms")),
            col("view_version"),
            col("decoded.message").alias("entry"),
            (schemas.is_exact(col("decoded")) & _has_text()).alias("is_exact"),
            _has_whole_rows(col("decoded.message")).alias("has_whole_rows"),
        ]
        self._known = [col("*"), _is_judged().alias("is_judged")]
        self._exploded = [col("*"), functions.posexplode_outer(_object_ids()).alias("place", "object_id")]
        self._rows = [
            *(col(name) for name in ("shard", "offset", "published_ms", "view_version", "is_exact", "has_whole_rows")),
            *(_unless_judged(name) for name in ("value", "message_key", "message_headers")),
            *(col(f"entry.{name}") for name in ("chain_version", *_SWEEP)),
            _barrier().alias("barrier"),
            col("entry.rows.kind"),
            functions.size("entry.rows.object_ids").cast("long").alias("message_rows"),
            col("object_id"),
            *(_cell(place).alias(name) for name, place in _COLUMNS.items()),
        ]
        self._is_of_bucket = (col("entries.shard") == col("view.shard")) & (
            col("entries.bucket_id") == col("view.bucket_id")
        )
        self._stretch = functions.expr(f"offset div {OFFSETS_PER_GROUP}").alias("stretch")
        self._collected = _collected()
        self._results = [
            *(col(name) for name in _RESULTS),
            functions.size("letters").cast("long").alias("dead_letters"),
        ]
        self._messages = functions.concat(*_messages()).alias("messages")
        self._message = functions.explode("messages").alias("message")
        self._sent = [
            col("shard").alias("partition"),
            col("message.topic").alias("topic"),
            col("message.value").alias("value"),
        ]

    def judged(self, batch: DataFrame, view: JoinedView, versions: DataFrame, *, is_patient: bool = True) -> DataFrame:
        """Return a row for each stretch of offsets and page of a sweep, with its results and the messages to send.

        ``versions`` has the chain version of each shard's view (``VersionTable``). A shard without a version is passed
        over. A message whose chain version is above the view's is listed as premature; if ``is_patient`` is
        false, it is dead-lettered.
        """
        placed = batch.select(*self._placed).join(functions.broadcast(versions), "shard", "left")
        read = placed.select(*self._decoded).select(*self._checked).select(*self._known)
        entries = read.select(*self._exploded).select(*self._rows)
        joined = entries.alias("entries").join(functions.broadcast(view.rows.alias("view")), self._is_of_bucket, "left")
        cells = joined.select(col("entries.*"), *map(col, CHAIN_COLUMNS))
        judged = with_neighbours(cells, view.search_steps).select(
            col("*"), _verdict(is_patient=is_patient).alias("verdict")
        )
        grouped = judged.groupBy("shard", self._stretch, "sweep_id", "sweep_page").agg(*self._collected)
        return grouped.select("shard", *self._results, self._messages)

    def to_send(self, judged: DataFrame) -> DataFrame:
        """Return the messages to send, without the barriers, in the columns of the Kafka sink."""
        return judged.select("shard", self._message).select(*self._sent)

    def results(self, judged: DataFrame) -> DataFrame:
        """Return the rows of results for ``batch_outcome``."""
        return judged.select("shard", *_RESULTS, "dead_letters")


_SWEEP = ("sweep_id", "sweep_page", "sweep_txn", "sweep_part")
"""The fields of a message that name its sweep."""
_COLUMNS = {
    "bucket_id": "rows.bucket_ids",
    "birth": "rows.births",
    "death": "rows.deaths",
    "snapshots_before_death": "snapshots_before_death",
}
"""The fields of a row other than its objectID, with their paths in the message."""
_NAME_COLUMNS = {"bucket_ids": "bucket_id", "object_ids": "object_id", "births": "birth", "deaths": "death"}
"""The lists of a RowNames, with the field of a row that each of them holds."""


def _has_whole_rows(entry: Column) -> Column:
    """Return whether all columns of a message have the same length; null for an unreadable message."""
    size = functions.size(entry["rows"]["object_ids"])
    places = (reduce(lambda column, name: column[name], place.split("."), entry) for place in _COLUMNS.values())
    return reduce(and_, (functions.size(place) == size for place in places))


def _has_text() -> Column:
    """Return whether the strings of a message are valid UTF-8, which Spark's decoder does not check."""
    barrier = col("decoded.message.barrier")
    is_text = functions.is_valid_utf8(barrier["barrier_id"]) & functions.is_valid_utf8(barrier["origin"])
    return barrier.isNull() | is_text


def _is_judged() -> Column:
    """Return whether a message is readable and the view has reached its chain version, so that its rows are judged."""
    is_known = col("entry.chain_version") <= col("view_version")
    return functions.coalesce(col("is_exact") & col("has_whole_rows") & is_known, lit(False))


def _unless_judged(name: str) -> Column:
    """Return a column that is needed only to dead-letter the whole message; null for a message that is judged."""
    return when(~col("is_judged"), col(name)).alias(name)


def _object_ids() -> Column:
    """Return the column to explode; null, which yields one row without an objectID, if the message is not judged."""
    return when(col("is_judged"), col("entry.rows.object_ids"))


def _barrier() -> Column:
    """Return the barrier of a message, on its first row only."""
    return when(col("is_judged") & (functions.coalesce(col("place"), lit(0)) == 0), col("entry.barrier"))


def _cell(column: str) -> Column:
    return functions.get(col(f"entry.{column}"), col("place"))


def _verdict(*, is_patient: bool) -> Column:
    """Return the verdict on a row; null counts as unreadable."""
    return (
        when(col("view_version").isNull(), lit(PASSED_OVER))
        .when(~col("is_exact"), lit(DECODE_ERROR))
        .when(~col("has_whole_rows"), lit(COLUMNS_ERROR))
        .when(col("chain_version") > col("view_version"), lit(PREMATURE if is_patient else PREMATURE_ERROR))
        .when(col("object_id").isNull(), lit(EMPTY))
        .when(col("chain_version") <= col("view_version"), verdict())
    )


_RESULTS = (
    *("entries", "reclaimable_rows", "reclaimable_directories", "held"),
    *("barriers", "premature", "passed_first", "passed_last", "oldest_ms"),
)
"""The columns of a group that the driver collects."""


def _collected() -> list[Column]:
    """Return the aggregates of a group: rows to be purged, directories, dead letters, barriers and counts."""
    is_reclaimable, is_held = col("verdict") == RECLAIMABLE, col("verdict") == HELD
    is_directory = col("kind") == DeletedKind.DIRECTORY.value
    is_key, is_rename = (col("kind") == kind.value for kind in (DeletedKind.KEY, DeletedKind.RENAME_ENTRY))
    fields = ("bucket_id", "object_id", "birth", "death", "snapshots_before_death")
    row, directory = functions.struct(*fields), functions.struct(*fields, is_reclaimable.alias("is_reclaimable"))
    is_settled = col("verdict").isin(RECLAIMABLE, HELD, EMPTY, PREMATURE, PASSED_OVER)
    passed = when(col("verdict") == PASSED_OVER, col("offset"))
    premature = functions.struct("offset", "chain_version")
    is_judged = col("object_id").isNotNull()
    collected = {
        "keys": functions.collect_list(when(is_reclaimable & is_key, row)),
        "renames": functions.collect_list(when(is_reclaimable & is_rename, row)),
        "directories": functions.collect_list(when((is_reclaimable | is_held) & is_directory, directory)),
        "letters": functions.collect_list(when(is_settled, lit(None)).otherwise(_dead_letter())),
        "barriers": functions.collect_list(when(col("barrier").isNotNull(), functions.struct("offset", "barrier"))),
        "premature": functions.collect_list(when(col("verdict") == PREMATURE, premature)),
        "view_version": functions.max("view_version"),
        "parts": functions.collect_set(when(is_judged, functions.struct("sweep_txn", "sweep_part", "message_rows"))),
        "passed_first": functions.min(passed),
        "passed_last": functions.max(passed),
        "oldest_ms": functions.min(when(is_judged, col("published_ms"))),
        "entries": functions.count("object_id"),
        "reclaimable_rows": functions.count_if(is_reclaimable & ~is_directory),
        "reclaimable_directories": functions.count_if(is_reclaimable & is_directory),
        "held": functions.count_if(is_held),
    }
    return [column.alias(name) for name, column in collected.items()]


def _dead_letter() -> Column:
    """Return the dead letter of an unreadable message (unchanged) or of a row (as the only row of a message)."""
    error = when(col("verdict").isNull(), lit(DECODE_ERROR)).otherwise(col("verdict"))
    message = (
        when(
            error == UNKNOWN_DEATH_ERROR,
            functions.format_string(
                "a death after %d snapshots of bucket %d, which never had so many by chain version %d; keep the row",
                *("snapshots_before_death", "bucket_id", "view_version"),
            ),
        )
        .when(
            error == LIFETIME_ERROR,
            functions.format_string(
                "a version born at %d in bucket %d cannot die at %d after %d snapshots; keep the row",
                *("birth", "bucket_id", "death", "snapshots_before_death"),
            ),
        )
        .when(
            error == PREMATURE_ERROR,
            functions.format_string(
                "sent at chain version %d, which gc.snapshot-chain has not come to: it is at %d; keep the rows",
                *("chain_version", "view_version"),
            ),
        )
        .when(error == COLUMNS_ERROR, lit("not every row has its place in all lists; keep the rows"))
        .otherwise(lit("not a DeletedEntries of a schema that is known here or was published"))
    )
    is_row = error.isin(UNKNOWN_DEATH_ERROR, LIFETIME_ERROR)
    came, key = functions.coalesce(col("value"), lit(b"")), functions.coalesce(col("message_key"), lit(b""))
    headers = _letter_headers()
    is_cut = ~is_row & (functions.length(came) > DEAD_LETTER_BYTES)
    cut = functions.format_string("; only the first of its %d bytes are here", functions.length(came))
    is_bare = _size(headers) + functions.length(key) > SURROUNDING_BYTES
    bare = lit("; its key and headers are not here")
    value = when(is_row, _one_row()).otherwise(came)
    fields = {
        "service": lit("streaming"),
        "topic": lit(DELETED_ENTRIES.name),
        "partition": col("shard"),
        "offset": col("offset"),
        "error": error,
        "message": functions.concat(
            message, when(is_cut, cut).otherwise(lit("")), when(is_bare, bare).otherwise(lit(""))
        ),
        "value": when(is_cut, functions.substring(came, 1, DEAD_LETTER_BYTES)).otherwise(value),
        "size_bytes": functions.length(value).cast("long"),
        "key": when(is_bare, lit(b"")).otherwise(key),
        "headers": when(is_bare, functions.slice(headers, 1, 0)).otherwise(headers),
    }
    return _struct(fields)


def _letter_headers() -> Column:
    """Return the headers of a message in the format of a dead letter."""
    none = functions.array().cast("array<struct<key:string,value:binary>>")
    found = functions.coalesce(col("message_headers"), none)
    return functions.transform(
        found,
        lambda header: _struct({"name": header["key"], "value": functions.coalesce(header["value"], lit(b""))}),
    )


def _size(headers: Column) -> Column:
    """Return the size of headers in bytes."""
    return functions.aggregate(
        headers,
        lit(0),
        lambda total, header: total + functions.octet_length(header["name"]) + functions.length(header["value"]),
    )


def _one_row() -> Column:
    """Return a message that holds this row only."""
    rows = {"kind": col("kind"), **{many: functions.array(one) for many, one in _NAME_COLUMNS.items()}}
    fields = {
        "chain_version": col("chain_version"),
        "rows": _struct(rows),
        "snapshots_before_death": functions.array("snapshots_before_death"),
        "sweep_id": col("sweep_id"),
        "sweep_page": col("sweep_page"),
        "barrier": lit(None).cast(_BARRIER_TYPE),
        "sweep_txn": col("sweep_txn"),
        "sweep_part": col("sweep_part"),
    }
    return _encoded(DeletedEntries, _struct(fields))


def _messages() -> list[Column]:
    """Return arrays of the messages to send for a group, one array for each kind of message."""
    no_barrier = lit(None).cast(_BARRIER_TYPE)
    version = col("view_version")

    def purges(kind: DeletedKind, found: str) -> Column:
        def purge_keys(rows: Column) -> Column:
            columns = {"kind": lit(kind.value), **{many: rows[one] for many, one in _NAME_COLUMNS.items()}}
            fields = {"chain_version": version, "rows": _struct(columns)}
            fields |= {"snapshots_before_death": rows["snapshots_before_death"], "barrier": no_barrier}
            fields |= {"is_sweep": col("sweep_id") != 0}
            return _message(PURGE_KEYS, _struct(fields))

        return functions.transform(_slices(found), purge_keys)

    def directory_verdict(directories: Column) -> Column:
        fields = {"chain_version": version, "directories": directories, "barrier": no_barrier}
        return _message(PURGE_DIRECTORIES, _struct(fields))

    counts = ("reclaimable_rows", "reclaimable_directories")
    result = {name: col(name) for name in ("sweep_id", "sweep_page", *counts)}
    # No consumer reads these two fields: the parts identify the judged rows.
    result |= {name: lit(0).cast("long") for name in ("first_offset", "judged_rows")}
    result |= {"chain_version": version, "barrier": no_barrier}
    parts = {"txns": "sweep_txn", "numbers": "sweep_part", "rows": "message_rows"}
    result |= {"parts": _struct({name: col("parts")[column] for name, column in parts.items()})}
    is_swept = (col("sweep_id") != 0) & (col("entries") > 0)
    return [
        purges(DeletedKind.KEY, "keys"),
        purges(DeletedKind.RENAME_ENTRY, "renames"),
        functions.transform(_slices("directories"), directory_verdict),
        when(is_swept, functions.array(_message(SWEEP_RESULTS, _struct(result)))).otherwise(functions.array()),
        functions.transform(col("letters"), lambda letter: _message(DEAD_LETTERS, letter)),
    ]


def _slices(name: str) -> Column:
    """Cut an array into arrays of at most ``ROWS_PER_MESSAGE`` rows."""
    starts = functions.sequence(lit(1), functions.size(name), lit(ROWS_PER_MESSAGE))
    cut: Callable[[Column], Column] = lambda start: functions.slice(name, start, ROWS_PER_MESSAGE)  # noqa: E731
    return when(functions.size(name) > 0, functions.transform(starts, cut)).otherwise(functions.array())


def _message(topic: Topic, record: Column) -> Column:
    return _struct({"topic": lit(topic.name), "value": _encoded(topic.record, record)})


def _encoded(record_class: type[Any], record: Column) -> Column:
    """Return the message of a record: its frame and its body."""
    body = to_avro(record, as_text(resolved_schema(record_class.__name__)))
    return functions.concat(lit(codec(record_class).frame), body)


def _struct(fields: Mapping[str, Column]) -> Column:
    return functions.struct(*(column.alias(name) for name, column in fields.items()))
