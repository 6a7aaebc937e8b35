"""Manifest lists and manifests as DataFrames: Spark's Avro reader decodes no more than the columns that the lens needs.

Writers name the fields of these files alike, while the order and the number of fields differ between format versions.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from pyspark.sql import Column, DataFrame, SparkSession, functions

from services.lens.iceberg.location import LOCAL, SCHEME, SLASHES

FILE = "read_from"
"""Column with the path of the Avro file that a row is from."""

_MANIFEST_FILE = {
    "type": "record",
    "name": "manifest_file",
    "fields": [{"name": "manifest_path", "type": "string"}, {"name": "manifest_length", "type": "long"}],
}
_MANIFEST_ENTRY = {
    "type": "record",
    "name": "manifest_entry",
    "fields": [
        {"name": "status", "type": "int"},
        {
            "name": "data_file",
            "type": {
                "type": "record",
                "name": "r2",
                "fields": [
                    {"name": "content", "type": "int", "default": 0},
                    {"name": "file_path", "type": "string"},
                    {"name": "file_format", "type": "string"},
                    {"name": "file_size_in_bytes", "type": "long"},
                ],
            },
        },
    ],
}
_DELETED = 2
"""Status of an entry that says that a file went: whoever has such a manifest does not hold the file."""


def manifest_lists(session: SparkSession, paths: Sequence[str]) -> DataFrame:
    """Return the manifests of manifest lists: ``read_from``, ``manifest_path``, ``manifest_length``."""
    return _read(session, _MANIFEST_FILE, paths)


def manifest_entries(session: SparkSession, paths: Sequence[str]) -> DataFrame:
    """Return the files that manifests hold: ``read_from``, ``file_path``, ``kind``, ``bytes``."""
    kind = functions.expr(
        "case when data_file.content = 0 then 'data' when data_file.content = 2 then 'equality-deletes' "
        "when upper(data_file.file_format) = 'PUFFIN' then 'deletion-vector' else 'position-deletes' end"
    )
    return (
        _read(session, _MANIFEST_ENTRY, paths)
        .where(f"status <> {_DELETED}")
        .select(
            FILE,
            functions.col("data_file.file_path"),
            kind.alias("kind"),
            functions.col("data_file.file_size_in_bytes").alias("bytes"),
        )
    )


def _read(session: SparkSession, schema: object, paths: Sequence[str]) -> DataFrame:
    reader = session.read.format("avro").option("avroSchema", json.dumps(schema)).option("__globPaths__", "false")
    # The path is that of a URI: its escapes have to go, and a plus sign is none.
    path = plain_column(functions.expr("url_decode(replace(_metadata.file_path, '+', '%2B'))"))
    return reader.load(list(paths)).select("*", path.alias(FILE))


def plain_column(address: Column) -> Column:
    """Return ``plain_path`` of a column of addresses."""
    local = functions.regexp_replace(address, LOCAL, "/")
    return functions.when(local.rlike(SCHEME), functions.regexp_replace(local, SCHEME, "")).otherwise(
        functions.regexp_replace(local, SLASHES, "/")
    )
