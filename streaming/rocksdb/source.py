"""The data source ``deepclean``: the rows of any table of a RocksDB store or checkpoint, ours or another program's.

``register(session)``, then ``session.read.format("deepclean").options(path=..., table=...).load()``. The columns are
``row_key``, and those of the table's decoder (``streaming.rocksdb.decoders``).

| option | means |
| --- | --- |
| `path` | the directory, on a disk that all tasks can read; its files must not change meanwhile |
| `table` | the column family |
| `start`, `end` | hexadecimal: only keys from ``start`` on and below ``end``; default: all |
| `parts` | about how many ranges of keys are read in parallel; default: 8 |
| `decoder` | the module that decodes the tables of this kind of database; default: ours, or the bare ``value`` |
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType
from rocksdict import Options, Rdict

from schemas.formats import FAMILY as FORMAT_FAMILY
from services.domain.errors import DeepcleanError
from streaming.rocksdb.checkpoint_rows import WHOLE, CheckpointRows, Range, ranges
from streaming.rocksdb.decoders import KEY, Decoder, find_decoder

FORMAT = "deepclean"
DEFAULT_PARTS = 8


class TableError(DeepcleanError):
    """There is no such table; the message says what there is."""


def register(session: SparkSession) -> None:
    """Make the source known to a session."""
    session.dataSource.register(RocksDbSource)


class KeyRange(InputPartition):
    """The rows that one task reads."""

    def __init__(self, part: Range) -> None:
        super().__init__(part)


@dataclass(frozen=True, slots=True)
class ReadTable:
    """The options of a read."""

    path: str
    table: str
    part: Range
    parts: int
    decoder: str

    def open(self) -> CheckpointRows:
        """Open the table.

        Raises:
            TableError: there is no database, or no such table.
        """
        if not Path(self.path, "CURRENT").is_file():
            raise TableError(f"{self.path} holds no RocksDB database: name the directory that has the file CURRENT.")
        families = Rdict.list_cf(self.path, Options(raw_mode=True))
        if self.table not in families:
            raise TableError(f"{self.path} has no table {self.table}: it has {', '.join(sorted(families))}.")
        return CheckpointRows(self.path, (self.table,), is_own=FORMAT_FAMILY in families)


class RocksDbSource(DataSource):
    """One table of one directory."""

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return FORMAT

    def schema(self) -> StructType:
        """Return the columns of the table."""
        return from_arrow_schema(_schema_of(self._reader.decoder))

    def reader(self, schema: StructType) -> DataSourceReader:  # noqa: ARG002  it is the one above
        """Return the reader of the table."""
        return self._reader

    @cached_property
    def _reader(self) -> TableReader:
        missing = [name for name in ("path", "table") if name not in self.options]
        if missing:
            raise TableError(f"the format {FORMAT} needs the option {missing[0]}.")
        part = bytes.fromhex(self.options.get("start", "")), bytes.fromhex(self.options.get("end", "")) or WHOLE[1]
        read = ReadTable(
            path=self.options["path"],
            table=self.options["table"],
            part=part,
            parts=int(self.options.get("parts", DEFAULT_PARTS)),
            decoder=self.options.get("decoder", ""),
        )
        with read.open() as rows:
            return TableReader(read, find_decoder(rows, read.table, read.decoder))


class TableReader(DataSourceReader):
    """Reads a table in ranges of keys."""

    def __init__(self, read: ReadTable, decoder: Decoder) -> None:
        self._read = read
        self.decoder = decoder

    def partitions(self) -> Sequence[InputPartition]:
        """Return the ranges, which cover each key once."""
        with self._read.open() as rows:
            cuts = rows.boundaries(self._read.table, *self._read.part, self._read.parts)
        return [KeyRange(part) for part in ranges(cuts, *self._read.part)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a range in batches."""
        schema = _schema_of(self.decoder)
        with self._read.open() as rows:
            for chunk in rows.chunks(self._read.table, *partition.value):
                keys = pa.array([key for key, _ in chunk], pa.binary())
                yield pa.record_batch([keys, *self.decoder.columns(chunk)], schema)


def _schema_of(decoder: Decoder) -> pa.Schema:
    return pa.schema([pa.field(KEY, pa.binary()), *decoder.fields])
