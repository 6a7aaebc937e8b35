"""Makes an Ozone Manager's database of any size, and measures the lens on it: ``python -m bench.ozone_database DIR``.

The rows are those that Ozone 2.2 would have written, put into RocksDB directly. Half of the keys are in an OBS bucket,
half in an FSO bucket with 1,000 files a directory. Before each snapshot some keys, chosen at random, are overwritten,
deleted and created anew, touched (only the row changes) or renamed. A snapshot is a checkpoint with hard links; then
the bucket's garbage tables are cleared, as Ozone does. The same arguments make the same rows.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from array import array
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from random import Random
from select import select
from typing import Any, cast
from uuid import UUID

from rocksdict import Checkpoint, Options, Rdict, WriteBatch

from bench.process_figures import session_cpu_seconds, session_peak_bytes
from services.lens.ozone import tables
from services.lens.ozone.messages import (
    BucketInfo,
    DirectoryInfo,
    KeyInfo,
    RepeatedKeyInfo,
    SnapshotInfo,
    VolumeInfo,
)
from services.lens.ozone.tables import BucketKeys

FILES_PER_DIRECTORY = 1_000
BATCH_ROWS = 10_000
OBJECT_STORE = 3
PAUSE_SECONDS = 1.0
_RATIS_EPOCH = 2 << 62
_SIGN = 1 << 63


def object_id(transaction: int, counter: int = 0) -> int:
    """Return the id, signed as in Java, of an object that a transaction creates."""
    unsigned = _RATIS_EPOCH | transaction << 8 | counter
    return unsigned - (_SIGN << 1) if unsigned & _SIGN else unsigned


class RawTables:
    """The tables of a database in the making."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        directory.mkdir(parents=True)
        options = Options(raw_mode=True)
        options.create_if_missing(True)
        options.set_write_buffer_size(64 << 20)
        options.set_max_background_jobs(2)
        self._database = Rdict(str(directory), options)
        names = sorted(tables.WITH_BLOCKS | {"metaTable"})
        self._families = {name: self._database.create_column_family(name, options) for name in names}
        self._handles = {name: self._database.get_column_family_handle(name) for name in names}
        self._batch = WriteBatch(raw_mode=True)

    def put(self, table: str, key: bytes, row: Any) -> None:
        """Put a row; a message is serialised."""
        value = row if isinstance(row, bytes) else row.SerializeToString()
        self._batch.put(key, value, self._handles[table])
        self._write_if(BATCH_ROWS)

    def delete(self, table: str, key: bytes) -> None:
        """Delete a row."""
        self._batch.delete(key, self._handles[table])
        self._write_if(BATCH_ROWS)

    def clear(self, table: str, prefix: bytes) -> None:
        """Delete all rows whose keys begin with ``prefix``."""
        self._write_if(0)
        for key in list(takewhile(lambda key: key.startswith(prefix), self._keys(table, prefix))):
            self.delete(table, key)

    def _keys(self, table: str, start: bytes) -> Iterator[bytes]:
        for key in self._families[table].keys(from_key=start):
            yield cast(bytes, key)  # the tables are raw

    def _write_if(self, rows: int) -> None:
        if len(self._batch) >= rows:
            self._database.write(self._batch)
            self._batch = WriteBatch(raw_mode=True)

    def add_table(self, name: str) -> None:
        """Add a table that no release knows."""
        self._families[name] = self._database.create_column_family(name, Options(raw_mode=True))

    def checkpoint(self, directory: Path) -> None:
        """Take a checkpoint with hard links."""
        self._write_if(0)
        directory.parent.mkdir(parents=True, exist_ok=True)
        Checkpoint(self._database).create_checkpoint(str(directory))

    def close(self) -> None:
        """Write everything and close the database."""
        self._write_if(0)
        self._handles.clear()  # or the database stays open, and removes files while others read them
        for family in self._families.values():
            family.close()
        self._database.close()


@dataclass
class GeneratedBucket:
    """A bucket and the present state of its keys, in arrays: the key's number is the index."""

    keys: BucketKeys
    birth: array[int]
    written: array[int]
    block: array[int]
    renamed: dict[int, int]
    """How often a key was renamed."""
    directories: list[int]
    previous: UUID | None = None
    garbage_bytes: int = 0


class Generator:
    """Writes the rows that a history of a few operations leaves behind."""

    def __init__(self, directory: Path, keys: int, seed: int) -> None:
        self.directory = directory
        self.rows = RawTables(directory / "om.db")
        self.random = Random(seed)  # noqa: S311 - the rows only have to look real
        self._transaction = 10
        self._block = 0
        self._info = KeyInfo(type=1, factor=3, data_bytes=0)
        version = self._info.versions.add(version=0)
        self._location = version.locations.add(offset=0, create_version=0)
        self.buckets = [
            self._bucket(b"obs", keys // 2, is_file_system=False),
            self._bucket(b"fso", keys // 2, is_file_system=True),
        ]

    def _next(self) -> int:
        self._transaction += 1
        return self._transaction

    def _bucket(self, name: bytes, keys: int, *, is_file_system: bool) -> GeneratedBucket:
        volume_id = object_id(1)
        self.rows.put(tables.VOLUME, b"/vol", VolumeInfo(name=b"vol", object_id=volume_id))
        bucket_keys = BucketKeys(b"vol", name, volume_id, object_id(self._next()), is_file_system)
        empty = array("q", bytes(8 * keys))
        bucket = GeneratedBucket(bucket_keys, empty, array("q", empty), array("q", empty), {}, [])
        if is_file_system:
            for number in range((keys + FILES_PER_DIRECTORY - 1) // FILES_PER_DIRECTORY):
                directory_id = object_id(self._next())
                bucket.directories.append(directory_id)
                leaf = b"d%05d" % number
                self.rows.put(
                    tables.DIRECTORY,
                    bucket_keys.key_of(leaf, bucket_keys.bucket_id),
                    DirectoryInfo(name=leaf, object_id=directory_id, parent_id=bucket_keys.bucket_id),
                )
        for number in range(keys):
            self._create(bucket, number)
        return bucket

    def _create(self, bucket: GeneratedBucket, number: int) -> None:
        transaction = self._next()
        bucket.birth[number] = transaction
        bucket.renamed.pop(number, None)
        self._write(bucket, number, transaction, is_new_block=True)

    def _write(self, bucket: GeneratedBucket, number: int, transaction: int, *, is_new_block: bool) -> None:
        bucket.written[number] = transaction
        if is_new_block:
            self._block += 1
            bucket.block[number] = self._block
        info = self._fill(bucket, number)
        self.rows.put(bucket.keys.key_table, bucket.keys.key_of(info.name, info.parent_id), info)

    def _fill(self, bucket: GeneratedBucket, number: int) -> Any:
        """Return the present row of a key, in a message that the next call changes."""
        info, block = self._info, bucket.block[number]
        info.volume, info.bucket = bucket.keys.volume, bucket.keys.bucket
        info.name = b"k%08d" % number + b".r" * bucket.renamed.get(number, 0)
        info.parent_id = bucket.directories[number // FILES_PER_DIRECTORY] if bucket.directories else 0
        info.object_id, info.update_id = object_id(bucket.birth[number]), bucket.written[number]
        self._location.block.id.container, self._location.block.id.local = 1 + block // 5_000, 1 << 56 | block
        info.data_bytes = self._location.length = 1 + block * 2_654_435_761 % 4_194_304
        return info

    def _bury(self, bucket: GeneratedBucket, number: int, transaction: int, suffix: int) -> None:
        """Put the present row of a key into ``deletedTable``."""
        info = self._fill(bucket, number)
        info.update_id = transaction
        path = info.name
        if bucket.directories:
            path = b"d%05d/%b" % (number // FILES_PER_DIRECTORY, info.name)
        row = RepeatedKeyInfo(bucket_id=bucket.keys.bucket_id)
        row.infos.add().CopyFrom(info)
        row.infos[0].metadata.add(key="CKDEL", value="true")
        row.infos[0].name = path
        bucket.garbage_bytes += 3 * info.data_bytes
        self.rows.put(tables.DELETED, bucket.keys.by_name + b"%b/%d" % (path, suffix), row)

    def change(self, bucket: GeneratedBucket, deleted: int) -> None:
        """Make ``deleted`` versions, and touch and rename a tenth as many keys."""
        count = len(bucket.birth)
        for number in self.random.sample(range(count), deleted):
            transaction = self._next()
            if self.random.random() < 0.5:  # an overwrite keeps the object
                self._bury(bucket, number, transaction, object_id(transaction))
                self._write(bucket, number, transaction, is_new_block=True)
            else:
                info = self._fill(bucket, number)
                self.rows.delete(bucket.keys.key_table, bucket.keys.key_of(info.name, info.parent_id))
                self._bury(bucket, number, transaction, info.object_id)
                self._create(bucket, number)
        for number in self.random.sample(range(count), deleted // 10):
            self._write(bucket, number, self._next(), is_new_block=False)
        for number in {*self.random.sample(range(count), deleted // 50)}:
            info = self._fill(bucket, number)
            old_key = bucket.keys.key_of(info.name, info.parent_id)
            self.rows.put(tables.RENAMED, bucket.keys.by_name + b"%d" % info.object_id, old_key)
            self.rows.delete(bucket.keys.key_table, old_key)
            bucket.renamed[number] = bucket.renamed.get(number, 0) + 1
            self._write(bucket, number, self._next(), is_new_block=False)

    def snapshot(self, bucket: GeneratedBucket, name: str) -> None:
        """Create a snapshot as Ozone does: the garbage tables go with it."""
        snapshot_id = UUID(int=self.random.getrandbits(128))
        seen = self._transaction
        self.rows.put(tables.TRANSACTION_INFO, tables.TRANSACTION_KEY, b"1#%d" % seen)
        self.rows.checkpoint(self.directory / "db.snapshots" / "checkpointState" / f"om.db-{snapshot_id}")
        row = SnapshotInfo(
            name=name,
            volume=bucket.keys.volume,
            bucket=bucket.keys.bucket,
            status=1,
            creation_time_ms=seen,
            create_transaction=b"1#%d" % self._next(),
        )
        _set(row.id, snapshot_id)
        if bucket.previous is not None:
            _set(row.previous, bucket.previous)
        bucket.previous = snapshot_id
        self.rows.put(tables.SNAPSHOT_INFO, bucket.keys.by_name + name.encode(), row)
        for table in (tables.DELETED, tables.RENAMED):
            self.rows.clear(table, bucket.keys.by_name)

    def finish(self) -> None:
        """Write the rows of the buckets, and close the database."""
        for bucket in self.buckets:
            sizes = (1 + block * 2_654_435_761 % 4_194_304 for block in bucket.block)
            keys = bucket.keys
            row = BucketInfo(
                volume=keys.volume,
                bucket=keys.bucket,
                object_id=keys.bucket_id,
                layout=tables.FILE_SYSTEM_OPTIMIZED if keys.is_file_system else OBJECT_STORE,
                used_bytes=3 * sum(sizes),
                used_namespace=len(bucket.block) + len(bucket.directories),
                snapshot_used_bytes=bucket.garbage_bytes,
            )
            self.rows.put(tables.BUCKET, b"/%b/%b" % (keys.volume, keys.bucket), row)
        self.rows.put(tables.TRANSACTION_INFO, tables.TRANSACTION_KEY, b"1#%d" % self._transaction)
        self.rows.close()


def _set(field: Any, value: UUID) -> None:
    for name, bits in (("most", value.int >> 64), ("least", value.int & (1 << 64) - 1)):
        setattr(field, name, bits - (1 << 64) if bits & _SIGN else bits)


def generate(directory: Path, keys: int, snapshots: int, deleted: int, seed: int = 1) -> Iterator[int]:
    """Make a database in a directory that does not exist; yields the number of snapshots that are done."""
    generator = Generator(directory, keys, seed)
    for number in range(snapshots):
        bucket = generator.buckets[number % 2]
        generator.change(bucket, deleted // (snapshots + 2))
        generator.snapshot(bucket, f"snap-{number:03d}")
        yield number + 1
    for bucket in generator.buckets:
        generator.change(bucket, deleted // (snapshots + 2))
    generator.finish()


def measure(directory: Path, report: Path, jars: Path) -> None:
    """Write the report of the database, and print how long it took and how much memory all of its processes had."""
    started = time.perf_counter()
    command = [sys.executable, "-m", "streaming.lens", "ozone", str(directory), "--report", str(report)]
    peak_bytes, cpu_seconds = 0, 0.0
    job = subprocess.Popen(
        [*command, "--jars-directory", str(jars)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
    )
    assert job.stdout is not None  # noqa: S101 - it is a pipe
    while job.poll() is None:
        peak_bytes = max(peak_bytes, session_peak_bytes(job.pid))
        cpu_seconds = max(cpu_seconds, session_cpu_seconds(job.pid))
        while select([job.stdout], [], [], PAUSE_SECONDS)[0] and (line := job.stdout.readline()):
            print(
                f"{time.perf_counter() - started:6.1f} s, {cpu_seconds:6.1f} s of CPU: {line.decode().strip()}",
                flush=True,
            )
    print(
        f"{time.perf_counter() - started:.1f} s, {cpu_seconds:.0f} s of CPU, "
        f"{peak_bytes / (1 << 20):,.0f} MiB at most, status {job.returncode}"
    )


def main() -> None:
    """Make a database unless there is one, and measure."""
    parser = argparse.ArgumentParser(prog="python -m bench.ozone_database", description=__doc__)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--keys", type=int, default=5_000_000)
    parser.add_argument("--snapshots", type=int, default=100)
    parser.add_argument("--deleted", type=int, default=2_000_000)
    parser.add_argument("--report", type=Path, help="measure the lens, and write its report here")
    parser.add_argument("--jars-directory", type=Path, default=Path(".deepclean/jars/spark"))
    options = parser.parse_args()
    if not options.directory.exists():
        started = time.perf_counter()
        for done in generate(options.directory, options.keys, options.snapshots, options.deleted):
            print(f"\r{done} of {options.snapshots} snapshots", end="", flush=True)
        print(f"\nmade in {time.perf_counter() - started:.0f} s")
    if options.report is not None:
        measure(options.directory, options.report, options.jars_directory)


if __name__ == "__main__":
    main()
