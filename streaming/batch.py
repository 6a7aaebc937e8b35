"""What the job makes of one batch: columns that decode, judge and encode, made once and used for every plan.

A message holds many rows, by columns; it is read whole, then each row is judged. The batch is grouped by shard and by a
stretch of offsets, so that one shuffle of little more than the rows to be purged gives whole messages. A message that
could not be read is a dead letter as it came, a row that could not be judged one of its own: whatever is neither a
verdict nor a barrier counts as such, a null too.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import reduce
from operator import and_
from typing import Any

from pyspark.sql import Column, DataFrame, functions
from pyspark.sql.avro.functions import from_avro, to_avro
from pyspark.sql.functions import col, lit, when

from schemas.codec import FINGERPRINT_HEADER, JsonSchema, codec, released_schemas, resolved_schema, schema_fingerprint
from schemas.records import Barrier, DeletedEntries, DeletedKind
from schemas.topics import DEAD_LETTERS, DELETED_ENTRIES, PURGE_DIRECTORIES, PURGE_KEYS, SWEEP_RESULTS, Topic
from streaming.judging import ROWS_PER_MESSAGE
from streaming.rule import HELD, LIFETIME_ERROR, RECLAIMABLE, UNKNOWN_DEATH_ERROR, verdict

OFFSETS_PER_GROUP = 200
"""A message holds a thousand rows at most; a group's rows are held in memory together.

The messages of a group are full but for the last.
"""

DEAD_LETTER_BYTES = 900_000
"""A dead letter carries no more of a message: a broker takes a megabyte, and what frames the bytes has to fit, too."""
SURROUNDING_BYTES = 50_000
"""Nor of a key and headers."""

BARRIER = "barrier"
PREMATURE = "premature"
EMPTY = "empty"
COLUMNS_ERROR = "ColumnsError"
DECODE_ERROR = "DecodeError"
_BARRIER_TYPE = "struct<barrier_id:string,round:int,work:bigint,origin:string,collector_txn:bigint>"


@dataclass(frozen=True, slots=True)
class PlacedBarrier:
    """A barrier that was among the entries of a batch."""

    shard: int
    offset: int
    barrier: Barrier


@dataclass(frozen=True, slots=True)
class BatchOutcome:
    """What one batch held."""

    entries: int
    reclaimable: int
    held: int
    dead_letters: int
    premature: int
    """Entries that know of more chain than the view; nothing was sent about them."""
    barriers: tuple[PlacedBarrier, ...]


class BatchPlan:
    """Turns a batch of messages of gc.deleted-entries into the messages that it causes."""

    def __init__(self) -> None:
        schemas = _EntrySchemas()
        self._placed = [
            col("partition").alias("shard"),
            col("offset"),
            col("value"),
            _fingerprint().alias("fingerprint"),
            col("key").alias("message_key"),
            col("headers").alias("message_headers"),
        ]
        self._numbered = [col("*"), schemas.number(col("fingerprint")).alias("schema_number")]
        self._decoded = [col("*"), schemas.decode(col("value"), col("schema_number")).alias("entry")]
        self._checked = [col("*"), schemas.is_exact().alias("is_exact"), _has_whole_rows().alias("has_whole_rows")]
        self._exploded = [col("*"), functions.posexplode_outer(_object_ids()).alias("place", "object_id")]
        self._rows = [
            *(col(name) for name in ("shard", "offset", "value", "fingerprint", "is_exact", "has_whole_rows")),
            *(_unless_readable(name) for name in ("message_key", "message_headers")),
            *(col(f"entry.{name}") for name in ("chain_version", "sweep_id", "sweep_page", "barrier")),
            col("entry.rows.kind"),
            col("object_id"),
            *(_cell(place).alias(name) for name, place in _COLUMNS.items()),
        ]
        self._is_of_bucket = (col("entries.shard") == col("view.shard")) & (
            col("entries.bucket_id") == col("view.bucket_id")
        )
        self._judged = [col("*"), _verdict().alias("verdict")]
        self._stretch = functions.expr(f"offset div {OFFSETS_PER_GROUP}").alias("stretch")
        self._collected = _collected()
        self._observed = _observed()
        self._message = functions.explode(functions.concat(*_messages())).alias("message")
        self._sent = [
            col("shard").alias("partition"),
            col("message.topic").alias("topic"),
            col("message.value").alias("value"),
            functions.array(
                functions.struct(lit(FINGERPRINT_HEADER).alias("key"), col("message.fingerprint").alias("value"))
            ).alias("headers"),
        ]

    def messages(self, batch: DataFrame, view: DataFrame, versions: str) -> DataFrame:
        """All that is to be sent but for the barriers, as the Kafka sink wants it.

        ``versions`` is a Spark array with the chain version of each shard's view, as text. What is observed on the way
        is for ``batch_outcome``.
        """
        read = batch.select(*self._placed).select(*self._numbered).select(*self._decoded).select(*self._checked)
        entries = read.select(*self._exploded).select(*self._rows)
        joined = entries.alias("entries").join(functions.broadcast(view.alias("view")), self._is_of_bucket, "left")
        version = functions.get(functions.expr(versions), col("entries.shard"))
        judged = joined.select(
            col("entries.*"), col("previous_cells"), col("taken_cells"), version.alias("view_version")
        ).select(*self._judged)
        grouped = judged.groupBy("shard", self._stretch, "sweep_id", "sweep_page").agg(*self._collected)
        return grouped.observe("outcome", *self._observed).select("shard", self._message).select(*self._sent)


def batch_outcome(observed: Mapping[str, Any]) -> BatchOutcome:
    """What was counted while a batch was written."""
    placed = [
        PlacedBarrier(one["shard"], one["offset"], Barrier(**one["barrier"]))
        for one in json.loads(observed["barriers"] or "[]")
    ]
    return BatchOutcome(
        entries=observed["entries"] or 0,
        reclaimable=observed["reclaimable"] or 0,
        held=observed["held"] or 0,
        dead_letters=observed["dead_letters"] or 0,
        premature=observed["premature"] or 0,
        barriers=tuple(sorted(placed, key=lambda one: (one.shard, one.offset))),
    )


def _fingerprint() -> Column:
    """The header of the writer's schema; null without one, and empty for one without a value."""
    place = functions.array_position(col("headers.key"), FINGERPRINT_HEADER).cast("int")
    return when(place > 0, functions.coalesce(functions.get(col("headers.value"), place - 1), lit(b"")))


class _EntrySchemas:
    """The schemas of an entry that are known here, the newest one first."""

    def __init__(self) -> None:
        name = DeletedEntries.__name__
        newest = resolved_schema(name)
        released = list(released_schemas(name))
        self._first_fingerprint = schema_fingerprint(released[0] if released else newest)
        by_fingerprint = {schema_fingerprint(schema): schema for schema in (newest, *released)}
        self._fingerprints = list(by_fingerprint)
        self._schemas = [_as_text(schema) for schema in by_fingerprint.values()]

    def number(self, fingerprint: Column) -> Column:
        """Which schema wrote a message; null for one that is unknown."""
        first = self._fingerprints.index(self._first_fingerprint)
        choice = when(fingerprint.isNull(), lit(first))
        for number, known in enumerate(self._fingerprints):
            choice = choice.when(fingerprint == lit(known), lit(number))
        return choice

    def decode(self, value: Column, number: Column) -> Column:
        """The entry, as the newest schema has it; a null, or a struct of nulls, for what cannot be read."""
        options = {"mode": "PERMISSIVE", "avroSchema": self._schemas[0]}
        return _by_number(number, [from_avro(value, schema, options) for schema in self._schemas])

    def is_exact(self) -> Column:
        """Whether the entry was read, and its bytes are what its schema would write: nothing follows them."""
        value, number = col("value"), col("schema_number")
        newest, *older = self._schemas
        written = [to_avro(col("entry"), newest)]
        written += [to_avro(from_avro(value, schema, {"mode": "PERMISSIVE"}), schema) for schema in older]
        same = _by_number(number, [again == value for again in written])
        return functions.coalesce(when(col("entry.rows.object_ids").isNotNull(), same), lit(False))


def _by_number(number: Column, columns: list[Column]) -> Column:
    first, *others = columns
    choice = when(number == 0, first)
    for place, column in enumerate(others, start=1):
        choice = choice.when(number == place, column)
    return choice


_COLUMNS = {
    "bucket_id": "rows.bucket_ids",
    "birth": "rows.births",
    "death": "rows.deaths",
    "snapshots_before_death": "snapshots_before_death",
}
"""What a row has beside its objectID, and where its message has it."""
_NAME_COLUMNS = {"bucket_ids": "bucket_id", "object_ids": "object_id", "births": "birth", "deaths": "death"}
"""The lists of a RowNames, and what each holds of a row."""


def _has_whole_rows() -> Column:
    """Whether each row has its place in all columns; null for a message that cannot be read."""
    size = functions.size("entry.rows.object_ids")
    same = [functions.size(f"entry.{place}") == size for place in _COLUMNS.values()]
    return reduce(and_, same)


def _unless_readable(name: str) -> Column:
    """What only a letter about the whole message has: the rows of a good one do without."""
    return when(col("is_exact") & col("has_whole_rows"), lit(None)).otherwise(col(name)).alias(name)


def _object_ids() -> Column:
    """The column that makes the rows; null, which makes one row without any, where nothing can be judged."""
    return when(col("is_exact") & col("has_whole_rows"), col("entry.rows.object_ids"))


def _cell(column: str) -> Column:
    return functions.get(col(f"entry.{column}"), col("place"))


def _verdict() -> Column:
    """What is to become of a row; null counts as unreadable."""
    names = ("birth", "death", "snapshots_before_death", "previous_cells", "taken_cells")
    judged = verdict(*(col(name) for name in names))
    return (
        when(~col("is_exact"), lit(DECODE_ERROR))
        .when(~col("has_whole_rows"), lit(COLUMNS_ERROR))
        .when(col("barrier").isNotNull(), lit(BARRIER))
        .when(col("object_id").isNull(), lit(EMPTY))
        .when(col("chain_version") <= col("view_version"), judged)
        .when(col("chain_version") > col("view_version"), lit(PREMATURE))
    )


def _collected() -> list[Column]:
    """What a group holds: rows to be purged, directories, dead letters, barriers and counts."""
    is_reclaimable, is_held = col("verdict") == RECLAIMABLE, col("verdict") == HELD
    is_directory = col("kind") == DeletedKind.DIRECTORY.value
    is_key, is_rename = (col("kind") == kind.value for kind in (DeletedKind.KEY, DeletedKind.RENAME_ENTRY))
    row = functions.struct("bucket_id", "object_id", "birth", "death", "snapshots_before_death")
    directory = functions.struct(
        *("bucket_id", "object_id", "birth", "death", "snapshots_before_death"),
        is_reclaimable.alias("is_reclaimable"),
    )
    barrier = functions.struct("shard", "offset", "barrier")
    is_settled = col("verdict").isin(RECLAIMABLE, HELD, BARRIER, EMPTY, PREMATURE)
    collected = {
        "keys": functions.collect_list(when(is_reclaimable & is_key, row)),
        "renames": functions.collect_list(when(is_reclaimable & is_rename, row)),
        "directories": functions.collect_list(when((is_reclaimable | is_held) & is_directory, directory)),
        "letters": functions.collect_list(when(is_settled, lit(None)).otherwise(_dead_letter())),
        "barriers": functions.collect_list(when(col("verdict") == BARRIER, barrier)),
        "view_version": functions.max("view_version"),
        "first_offset": functions.min("offset"),
        "entries": functions.count("object_id"),
        "reclaimable_rows": functions.count_if(is_reclaimable & ~is_directory),
        "reclaimable_directories": functions.count_if(is_reclaimable & is_directory),
        "held": functions.count_if(is_held),
        "premature": functions.count_if(col("verdict") == PREMATURE),
    }
    return [column.alias(name) for name, column in collected.items()]


def _dead_letter() -> Column:
    """A message that cannot be read, as it came; a row that cannot be judged, as a message of its own."""
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
        .when(error == COLUMNS_ERROR, lit("not every row has its place in all lists; keep the rows"))
        .otherwise(lit("not a DeletedEntries of a schema that is known here; is the producer newer?"))
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
        "fingerprint": when(is_row, lit(codec(DeletedEntries).fingerprint)).otherwise(
            functions.coalesce(col("fingerprint"), lit(b""))
        ),
        "value": when(is_cut, functions.substring(came, 1, DEAD_LETTER_BYTES)).otherwise(value),
        "size_bytes": functions.length(value).cast("long"),
        "key": when(is_bare, lit(b"")).otherwise(key),
        "headers": when(is_bare, functions.slice(headers, 1, 0)).otherwise(headers),
    }
    return _struct(fields)


def _letter_headers() -> Column:
    """The headers of a message as a letter has them."""
    none = functions.array().cast("array<struct<key:string,value:binary>>")
    found = functions.coalesce(col("message_headers"), none)
    return functions.transform(
        found,
        lambda header: _struct({"name": header["key"], "value": functions.coalesce(header["value"], lit(b""))}),
    )


def _size(headers: Column) -> Column:
    """Bytes of headers."""
    return functions.aggregate(
        headers,
        lit(0),
        lambda total, header: total + functions.octet_length(header["name"]) + functions.length(header["value"]),
    )


def _one_row() -> Column:
    """The row as the only one of a message."""
    rows = {"kind": col("kind"), **{many: functions.array(one) for many, one in _NAME_COLUMNS.items()}}
    fields = {
        "chain_version": col("chain_version"),
        "rows": _struct(rows),
        "snapshots_before_death": functions.array("snapshots_before_death"),
        "sweep_id": col("sweep_id"),
        "sweep_page": col("sweep_page"),
        "barrier": lit(None).cast(_BARRIER_TYPE),
    }
    return to_avro(_struct(fields), _as_text(resolved_schema(DeletedEntries.__name__)))


def _observed() -> list[Column]:
    """Counts of the whole batch, and its barriers."""
    counts = {
        "entries": col("entries"),
        "reclaimable": col("reclaimable_rows") + col("reclaimable_directories"),
        "held": col("held"),
        "dead_letters": functions.size("letters").cast("long"),
        "premature": col("premature"),
    }
    barriers = functions.to_json(functions.flatten(functions.collect_list("barriers")))
    return [*(functions.sum(column).alias(name) for name, column in counts.items()), barriers.alias("barriers")]


def _messages() -> list[Column]:
    """Arrays of the messages that a group causes, one for each topic."""
    no_barrier = lit(None).cast(_BARRIER_TYPE)
    version = col("view_version")

    def purges(kind: DeletedKind, found: str) -> Column:
        def purge_keys(rows: Column) -> Column:
            columns = {"kind": lit(kind.value), **{many: rows[one] for many, one in _NAME_COLUMNS.items()}}
            fields = {"chain_version": version, "rows": _struct(columns)}
            fields |= {"snapshots_before_death": rows["snapshots_before_death"], "barrier": no_barrier}
            return _message(PURGE_KEYS, _struct(fields))

        return functions.transform(_slices(found), purge_keys)

    def purge_directory(directories: Column) -> Column:
        fields = {"chain_version": version, "directories": directories, "barrier": no_barrier}
        return _message(PURGE_DIRECTORIES, _struct(fields))

    counts = ("first_offset", "reclaimable_rows", "reclaimable_directories")
    result = {name: col(name) for name in ("sweep_id", "sweep_page", *counts)}
    result |= {"judged_rows": col("entries"), "chain_version": version, "barrier": no_barrier}
    is_swept = (col("sweep_id") != 0) & (col("premature") == 0)
    return [
        purges(DeletedKind.KEY, "keys"),
        purges(DeletedKind.RENAME_ENTRY, "renames"),
        functions.transform(_slices("directories"), purge_directory),
        when(is_swept, functions.array(_message(SWEEP_RESULTS, _struct(result)))).otherwise(functions.array()),
        functions.transform(col("letters"), lambda letter: _message(DEAD_LETTERS, letter)),
    ]


def _slices(name: str) -> Column:
    """An array cut into arrays of no more rows than a message carries."""
    starts = functions.sequence(lit(1), functions.size(name), lit(ROWS_PER_MESSAGE))
    cut: Callable[[Column], Column] = lambda start: functions.slice(name, start, ROWS_PER_MESSAGE)  # noqa: E731
    return when(functions.size(name) > 0, functions.transform(starts, cut)).otherwise(functions.array())


def _message(topic: Topic, record: Column) -> Column:
    encoder = codec(topic.record)
    body = to_avro(record, _as_text(resolved_schema(topic.record.__name__)))
    return _struct({"topic": lit(topic.name), "value": body, "fingerprint": lit(encoder.fingerprint)})


def _struct(fields: Mapping[str, Column]) -> Column:
    return functions.struct(*(column.alias(name) for name, column in fields.items()))


def _as_text(schema: JsonSchema) -> str:
    """A schema without its docs: Spark writes the text into every plan."""
    return json.dumps(_without_docs(schema), separators=(",", ":"))


def _without_docs(node: Any) -> Any:
    if isinstance(node, list):
        return [_without_docs(branch) for branch in node]
    if isinstance(node, dict):
        return {name: _without_docs(value) for name, value in node.items() if name != "doc"}
    return node
