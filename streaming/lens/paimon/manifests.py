"""Reads a table's manifests, each one once, and says which places hold each data file.

Only the columns that decide this are decoded, by Spark's Avro reader. A manifest that cannot be read does not stop the
others: the entries that were read are counted, and compared with what the manifest lists say.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping

import pyarrow as pa
from pyspark.sql import Column, DataFrame, DataFrameReader, SparkSession
from pyspark.sql import functions as f

from services.lens.paimon.holdings import Events, ManifestUse, events_of
from services.lens.paimon.metadata import SchemaFile
from services.lens.paimon.partitions import bucket_directory

_ENTRY = json.dumps(
    {
        "type": "record",
        "name": "record",
        "namespace": "org.apache.paimon.avro.generated",
        "fields": [
            {"name": "_KIND", "type": "int"},
            {"name": "_PARTITION", "type": "bytes"},
            {"name": "_BUCKET", "type": "int"},
            {
                "name": "_FILE",
                "type": {
                    "type": "record",
                    "name": "record__FILE",
                    "fields": [
                        {"name": "_FILE_NAME", "type": "string"},
                        {"name": "_FILE_SIZE", "type": "long"},
                        {"name": "_EXTRA_FILES", "type": {"type": "array", "items": "string"}},
                        {"name": "_FILE_SOURCE", "type": ["null", "int"], "default": None},
                        {"name": "_EXTERNAL_PATH", "type": ["null", "string"], "default": None},
                    ],
                },
            },
        ],
    }
)
"""What is read of a manifest's entries; the two last fields are not in manifests of older versions."""
_EVENTS = pa.list_(pa.struct([("place", pa.int32()), ("change", pa.int32())]))

# Folds the events of a file into its runs. At one place what begins comes before what ends, so that a file that one
# manifest hands over to another has no gap; and a run that ends where it began is none.
_RUNS = """
    aggregate(
        array_sort(transform(events, e -> struct(e.place as place, -e.change as loss))),
        struct(0 as held, 0 as first, cast(array() as array<struct<first: int, last: int>>) as runs),
        (a, e) -> struct(
            a.held - e.loss as held,
            if(a.held <= 0 and a.held - e.loss > 0, e.place, a.first) as first,
            if(a.held > 0 and a.held - e.loss <= 0 and e.place > a.first,
               concat(a.runs, array(struct(a.first as first, e.place - 1 as last))), a.runs) as runs
        ),
        a -> a.runs
    )
"""


def data_files(session: SparkSession, address: str, uses: Collection[ManifestUse]) -> DataFrame:
    """Return the data and changelog files of manifests: partition, bucket, file name, size, extra files, runs.

    Files that no place holds are left out; ``entries`` sums up to the number of entries that were read.
    """
    manifests = session.createDataFrame(
        pa.table(
            {
                "manifest": pa.array((use.manifest.name for use in uses), pa.string()),
                "kind": pa.array(("changelog" if use.changelog else "data" for use in uses), pa.string()),
                "counted": _arrow(events_of(use.data | use.changelog) for use in uses),
                "appended": _arrow(events_of(use.changelog_base) for use in uses),
                "added": _arrow(events_of(use.changelog_delta) for use in uses),
            }
        )
    )
    entries = (
        _reader(session)
        .load([f"{address}/manifest/{use.manifest.name}" for use in uses])
        .select("_KIND", "_PARTITION", "_BUCKET", "_FILE", f.col("_metadata.file_name").alias("manifest"))
        .join(f.broadcast(manifests), "manifest")
    )
    is_added, is_appended = f.col("_KIND") == 0, f.coalesce("_FILE._FILE_SOURCE", f.lit(0)) == 0
    nothing = f.expr("filter(counted, e -> false)")
    signed = f.expr("if(_KIND = 0, 1, -1)")
    of_changelogs = f.concat(_times("appended", signed), f.when(is_added, f.col("added")).otherwise(nothing))
    return (
        entries.select(
            f.col("_PARTITION").alias("partition"),
            f.col("_BUCKET").alias("number"),
            f.col("_FILE._FILE_NAME").alias("name"),
            "kind",
            f.col("_FILE._FILE_SIZE").alias("recorded_bytes"),
            f.col("_FILE._EXTERNAL_PATH").alias("external_path"),
            f.col("_FILE._EXTRA_FILES").alias("extra_files"),
            f.concat(_times("counted", signed), f.when(is_appended, of_changelogs).otherwise(nothing)).alias("events"),
        )
        .groupBy("partition", "number", "name")
        .agg(
            f.max("kind").alias("kind"),
            f.max("recorded_bytes").alias("recorded_bytes"),
            f.max("external_path").alias("external_path"),
            f.array_distinct(f.flatten(f.collect_list("extra_files"))).alias("extra_files"),
            f.flatten(f.collect_list("events")).alias("events"),
            f.count("*").alias("entries"),
        )
        .withColumn("runs", f.expr(_RUNS))
        .drop("events")
    )


def located(session: SparkSession, files: DataFrame, schema: SchemaFile) -> DataFrame:
    """Return the files with their paths in the table, and their extra files as rows of their own.

    Raises:
        PaimonError: the table is partitioned by a type whose directories are not known here.
    """
    buckets = [(bytes(row[0]), row[1]) for row in files.select("partition", "number").distinct().collect()]
    directories = session.createDataFrame(
        pa.table(
            {
                "partition": pa.array((partition for partition, _ in buckets), pa.binary()),
                "number": pa.array((number for _, number in buckets), pa.int32()),
                "directory": pa.array((bucket_directory(schema, *bucket) for bucket in buckets), pa.string()),
            }
        )
    )
    path = f.coalesce("external_path", f.concat_ws("/", "directory", "name"))
    held = files.filter("size(runs) > 0").join(f.broadcast(directories), ["partition", "number"])
    held = held.withColumn("path", path)
    extra = held.withColumn("extra_file", f.explode("extra_files"))
    parent = f.expr("left(path, length(path) - length(substring_index(path, '/', -1)))")
    return held.select("path", "kind", "recorded_bytes", "runs").unionByName(
        extra.select(
            f.concat(parent, "extra_file").alias("path"),
            f.lit("extra").alias("kind"),
            f.lit(None).cast("long").alias("recorded_bytes"),
            "runs",
        )
    )


def incomplete(files: DataFrame, session: SparkSession, address: str, uses: Mapping[str, ManifestUse]) -> list[str]:
    """Return the manifests of which fewer entries were read than the manifest lists say."""
    expected = sum(use.manifest.entries for use in uses.values())
    read = files.agg(f.sum("entries")).collect()[0][0] or 0
    if read == expected:
        return []
    counts = {name: _reader(session).load(f"{address}/manifest/{name}").count() for name in uses}
    return [name for name, use in uses.items() if counts[name] != use.manifest.entries]


def _reader(session: SparkSession) -> DataFrameReader:
    """Return a reader of entries that leaves out what is missing or damaged."""
    options = {"avroSchema": _ENTRY, "ignoreCorruptFiles": "true", "ignoreMissingFiles": "true"}
    options["__globPaths__"] = "false"
    return session.read.format("avro").options(**options)


def _times(column: str, factor: Column) -> Column:
    return f.transform(
        column, lambda event: f.struct(event.place.alias("place"), (event.change * factor).alias("change"))
    )


def _arrow(events: Iterable[Events]) -> pa.Array:
    rows_of_events = [[{"place": place, "change": change} for place, change in found] for found in events]
    return pa.array(rows_of_events, _EVENTS)
