"""A Spark data source that reads an Ozone Manager's databases: each partition is a list of ranges of keys."""

from __future__ import annotations

import gc
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from services.lens.ozone import tables
from services.lens.ozone.key_rows import blocks_of, sizes_of
from services.lens.ozone.messages import DirectoryInfo, KeyInfo, RepeatedKeyInfo
from services.lens.ozone.tables import end_of
from streaming.lens.ozone.index import Index
from streaming.lens.ozone.judged_rows import JudgedRows
from streaming.lens.ozone.plan import INDEX_DIRECTORY, Plan
from streaming.lens.ozone.searches import Searches
from streaming.lens.ozone.stores import ACTIVE_TABLES, OpenStores, opened
from streaming.lens.ozone.things import BATCH_ROWS, SCHEMA, ThingRows
from streaming.lens.ozone.uploads import parts_of
from streaming.rocksdb.checkpoint_rows import WHOLE, ReadOnlyRows, Row, ranges

FORMAT = "deepclean-ozone"
PARTS_PER_TABLE = 64
ALL_BUCKETS = -1
ACTIVE = -1
ROW_BITS = 40
GARBAGE_OBJECTS = 100_000
Buckets = dict[tuple[bytes, bytes], JudgedRows]


@dataclass(frozen=True, slots=True)
class Unit:
    """A range of keys of one table in one store."""

    family: str
    bucket: int
    """Number of the bucket in the plan; ``ALL_BUCKETS``: each row names its own."""
    store: int
    """Number of the store in the bucket's chain, or ``ACTIVE``."""
    start: bytes
    end: bytes


@dataclass
class UnitsPartition(InputPartition):
    """What one task reads."""

    number: int
    units: list[Unit]


class OzoneDataSource(DataSource):
    """Things of an Ozone Manager.

    The option ``scratch`` names the directory of the plan and the index, ``partitions`` how many tasks read.
    """

    @classmethod
    def name(cls) -> str:
        """Return the name for ``spark.read.format``."""
        return FORMAT

    def schema(self) -> StructType:
        """Return the columns."""
        return from_arrow_schema(SCHEMA)

    def reader(self, schema: object) -> DataSourceReader:  # noqa: ARG002 - Spark passes it
        """Return the reader of a job."""
        return OzoneReader(Path(self.options["scratch"]), int(self.options["partitions"]))


class OzoneReader(DataSourceReader):
    """Cuts the tables into partitions, and reads one."""

    def __init__(self, scratch: Path, partitions: int) -> None:
        self._scratch = scratch
        self._partitions = partitions

    def partitions(self) -> Sequence[InputPartition]:
        """Return partitions of about the same size.

        Each has every n-th range of the active store, and the garbage tables of some neighbouring snapshots, whose
        look-ups go to the same databases. Partitions are few, since each opens its databases anew.
        """
        plan = Plan.load(self._scratch)
        with opened(Path(plan.active), ACTIVE_TABLES, self._scratch) as active:
            units = list(_active_units(plan, active))
        groups = [units[number :: self._partitions] for number in range(self._partitions)]
        for number, of_neighbours in enumerate(_garbage_groups(plan, self._partitions)):
            groups[number % self._partitions] += of_neighbours
        return [UnitsPartition(number, group) for number, group in enumerate(groups) if group]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the things of a partition."""
        assert isinstance(partition, UnitsPartition)  # noqa: S101
        worker = _worker(self._scratch)
        things = ThingRows(partition.number << ROW_BITS)
        searches = Searches(worker.stores)
        judged = [JudgedRows(bucket, searches, worker.index, things) for bucket in worker.plan.buckets]
        buckets = {(one.keys.volume, one.keys.bucket): one for one in judged}
        for directory, units in groupby(partition.units, worker.directory_of):
            with opened(Path(directory), ACTIVE_TABLES, self._scratch, worker.stores.cache) as store:
                for unit in units:
                    for _ in _read_unit(worker, unit, store, judged, buckets, things):
                        yield things.take()
        searches.finish()
        for bucket in judged:
            bucket.add_sums()
        if len(things):
            yield things.take()


class Worker:
    """What a process of Spark keeps from one task to the next: open databases and their cache."""

    def __init__(self, scratch: Path) -> None:
        # Python looks for circles after every 700 new objects. The waiting searches are many objects without circles:
        # with a larger number, reading takes three quarters of the time.
        gc.set_threshold(GARBAGE_OBJECTS, 20, 20)
        self.plan = Plan.load(scratch)
        self.other_buckets = frozenset(self.plan.other_buckets)
        self.stores = OpenStores(scratch)
        self.index = Index(scratch / INDEX_DIRECTORY, scratch)

    def directory_of(self, unit: Unit) -> str:
        """Return the directory of a range's store."""
        is_active = unit.store == ACTIVE
        return self.plan.active if is_active else self.plan.buckets[unit.bucket].directory_of(unit.store)


_workers: dict[Path, Worker] = {}


def _worker(scratch: Path) -> Worker:
    if scratch not in _workers:
        _workers[scratch] = Worker(scratch)
    return _workers[scratch]


def _active_units(plan: Plan, active: ReadOnlyRows) -> Iterator[Unit]:
    for number, bucket in enumerate(plan.buckets):
        prefix = bucket.keys.live_prefix
        yield from _cut(active, Unit(bucket.keys.key_table, number, ACTIVE, prefix, end_of(prefix)))
        if bucket.keys.is_file_system:
            yield from _cut(active, Unit(tables.DIRECTORY, number, ACTIVE, prefix, end_of(prefix)))
    if not plan.other_buckets:  # rows of expired open files have ids in their keys, all others names
        everything = [WHOLE]
    else:
        everything = [
            (prefix, end_of(prefix)) for bucket in plan.buckets for prefix in (bucket.keys.by_name, bucket.keys.by_id)
        ]
    for family in (tables.DELETED, tables.OPEN_KEY, tables.OPEN_FILE, tables.MULTIPART):
        for start, end in everything:
            yield from _cut(active, Unit(family, ALL_BUCKETS, ACTIVE, start, end))


def _cut(active: ReadOnlyRows, unit: Unit) -> Iterator[Unit]:
    for start, end in ranges(
        active.boundaries(unit.family, unit.start, unit.end, PARTS_PER_TABLE), unit.start, unit.end
    ):
        yield Unit(unit.family, unit.bucket, unit.store, start, end)


def _garbage_groups(plan: Plan, count: int) -> Iterator[list[Unit]]:
    """Yield the garbage tables of the snapshots, neighbours together: they look into the same databases."""
    found = [
        (store.garbage_rows, Unit(tables.DELETED, number, place, bucket.keys.by_name, end_of(bucket.keys.by_name)))
        for number, bucket in enumerate(plan.buckets)
        for place, store in enumerate(bucket.stores[:-1])
        if store.directory is not None
    ]
    limit = sum(rows for rows, _ in found) // count
    group: list[Unit] = []
    group_rows = 0
    for rows, unit in found:
        group.append(unit)
        group_rows += rows
        if group_rows > limit:
            yield group
            group, group_rows = [], 0
    if group:
        yield group


def _read_unit(
    worker: Worker,
    unit: Unit,
    store: ReadOnlyRows,
    judged: Sequence[JudgedRows],
    buckets: Buckets,
    things: ThingRows,
) -> Iterator[None]:
    """Read a range; yields whenever a batch is full."""
    rows = store.scan(unit.family, unit.start, unit.end)
    if unit.family in (tables.KEY, tables.FILE):
        adding = _add_live(rows, judged[unit.bucket])
    elif unit.family == tables.DIRECTORY:
        adding = _add_directories(rows, judged[unit.bucket])
    elif unit.family == tables.DELETED:
        adding = _add_garbage(rows, unit, buckets, worker.other_buckets, things)
    elif unit.family == tables.MULTIPART:
        adding = _add_uploads(rows, store, buckets)
    else:
        adding = _add_open(rows, buckets)
    for _ in adding:
        if len(things) >= BATCH_ROWS:
            yield


def _add_live(rows: Iterator[Row], bucket: JudgedRows) -> Iterator[None]:
    for key, value in rows:
        bucket.add_live(key, KeyInfo.FromString(value))
        yield


def _add_directories(rows: Iterator[Row], bucket: JudgedRows) -> Iterator[None]:
    for _, value in rows:
        bucket.add_directory(DirectoryInfo.FromString(value))
        yield


def _add_garbage(
    rows: Iterator[Row], unit: Unit, buckets: Buckets, others: frozenset[str], things: ThingRows
) -> Iterator[None]:
    for _, value in rows:
        row = RepeatedKeyInfo.FromString(value)
        for info in row.infos:
            bucket = buckets.get((info.volume, info.bucket))
            if bucket is not None:
                bucket.add_garbage(info, row.bucket_id, unit.store)
            elif f"{info.volume.decode()}/{info.bucket.decode()}" not in others:
                things.add_fact("without-bucket", "", *sizes_of(blocks_of(info.versions).values(), info))
        yield


def _add_open(rows: Iterator[Row], buckets: Buckets) -> Iterator[None]:
    for _, value in rows:
        info = KeyInfo.FromString(value)
        bucket = buckets.get((info.volume, info.bucket))
        if bucket is not None:
            bucket.add_open(info, "open-key", info.name.decode(errors="replace"))
        yield


def _add_uploads(rows: Iterator[Row], store: ReadOnlyRows, buckets: Buckets) -> Iterator[None]:
    """Add the committed parts of uploads."""
    for key, value in rows:
        _, volume, name, path = key.split(b"/", 3)
        bucket = buckets.get((volume, name))
        if bucket is None:
            continue
        for info in parts_of(value, store):
            bucket.add_part(info, path.rpartition(b"/")[0].decode(errors="replace"))
            yield
