"""A random Iceberg table, made through Iceberg's own Java library. Its data files have a size and nothing to read."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.errors.exceptions.captured import CapturedException
from pyspark.sql import SparkSession

from services.domain.durations import HOUR_MS
from services.lens.iceberg.location import find_table, version_of
from tests.table_formats.iceberg_sql_table import sizes

SCHEMA = {
    "type": "struct",
    "schema-id": 0,
    "fields": [
        {"id": 1, "name": "id", "required": False, "type": "long"},
        {"id": 2, "name": "part", "required": False, "type": "string"},
    ],
}


DAY_MS = 24 * HOUR_MS


def gunzipped(content: bytes) -> bytes:
    """Return the content of a file that may be compressed."""
    return gzip.decompress(content) if content.startswith(b"\x1f\x8b") else content


@dataclass(slots=True)
class Shown:
    """What a snapshot shows: Iceberg's objects of its files, by path."""

    data: dict[str, Any] = field(default_factory=dict)
    vectors: dict[str, Any] = field(default_factory=dict)
    """Deletion vectors by the path of their data file."""

    def copy(self) -> Shown:
        return Shown(dict(self.data), dict(self.vectors))


class RandomTable:
    """A table in a directory, and random changes of it."""

    def __init__(self, session: SparkSession, directory: Path, random: Random, format_version: int) -> None:
        self.session, self.directory, self.random, self.format_version = session, directory, random, format_version
        context: Any = session.sparkContext
        self.jvm, self.gateway = context._jvm, context._gateway
        iceberg = self.iceberg = self.jvm.org.apache.iceberg
        schema = iceberg.SchemaParser.fromJson(json.dumps(SCHEMA))
        builder = iceberg.PartitionSpec.builderFor(schema)
        self.is_partitioned = random.random() < 0.5
        self.spec = (builder.identity("part") if self.is_partitioned else builder).build()
        properties = {
            "format-version": str(format_version),
            "commit.manifest.min-count-to-merge": str(random.choice([2, 3, 100])),
            "write.metadata.compression-codec": random.choice(["none", "gzip"]),
            "write.metadata.previous-versions-max": str(random.choice([10, 100])),
        }
        location = f"{random.choice(['', 'file:'])}{directory}"
        tables = iceberg.hadoop.HadoopTables(context._jsc.hadoopConfiguration())
        self.table = tables.create(schema, self.spec, properties, location)
        self.location = location
        self.shown: dict[int | None, Shown] = {None: Shown()}
        self.staged: dict[int, list[Any]] = {}
        """Data files of snapshots that were written, and are in no branch."""
        self.refused: list[str] = []
        self.done: list[str] = []
        self._files = 0

    @property
    def name(self) -> str:
        return self.directory.name

    def play(self, steps: int) -> None:
        """Change the table at random."""
        for _ in range(steps):
            name, step = self.random.choices(*zip(*((one, weight) for *one, weight in self._steps()), strict=True))[0]
            try:
                step()
            except (Py4JJavaError, CapturedException) as error:
                self.refused.append(f"{name}: {str(error).partition('stack')[0]}")
            else:
                self.done.append(name)

    def _steps(self) -> list[tuple[str, Callable[[], None], float]]:
        steps: list[tuple[str, Callable[[], None], float]] = [
            ("append", self.append, 6),
            ("delete", self.delete, 2),
            ("overwrite", self.overwrite, 2),
            ("rewrite", self.rewrite, 2),
            ("rewrite manifests", self.rewrite_manifests, 1),
            ("create branch", self.create_branch, 1.5),
            ("create tag", self.create_tag, 1),
            ("remove reference", self.remove_reference, 0.5),
            ("roll back", self.roll_back, 0.7),
            ("set current", self.set_current, 0.3),
            ("fast forward", self.fast_forward, 0.3),
            ("stage", self.stage, 0.7),
            ("cherry-pick", self.cherry_pick, 0.7),
            ("statistics", self.statistics, 1),
            ("partition statistics", self.partition_statistics, 0.5),
            ("expire", self.expire_some, 0.4),
        ]
        if self.format_version > 1:
            steps.append(("equality deletes", self.equality_deletes, 1))
        if self.format_version == 2:
            steps.append(("position deletes", self.position_deletes, 2))
        if self.format_version == 3:
            steps.append(("deletion vectors", self.deletion_vectors, 3))
        return steps

    # what the table is now

    def snapshot_ids(self) -> list[int]:
        self.table.refresh()
        return [one.snapshotId() for one in self.table.snapshots()]

    def references(self) -> dict[str, int]:
        self.table.refresh()
        refs = self.table.refs()
        return {name: refs[name].snapshotId() for name in refs}

    def current(self) -> int | None:
        self.table.refresh()
        snapshot = self.table.currentSnapshot()
        return None if snapshot is None else int(snapshot.snapshotId())

    def _branch(self) -> str:
        self.table.refresh()
        refs = self.table.refs()
        return str(
            self.random.choice(
                ["main", "main", *sorted(name for name in refs if refs[name].isBranch() and name != "main")]
            )
        )

    def _head(self, branch: str) -> int | None:
        return self.references().get(branch)

    # files

    def _write(self, kind: str, ending: str) -> tuple[str, int]:
        self._files += 1
        part = f"part={self._files % 3}/" if self.is_partitioned else ""
        name = f"data/{part}{kind}-{self._files}.{ending}"
        size = self.random.randrange(1, 5_000)
        path = self.directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"x" * size)
        return f"{self.location}/{name}", size

    def _partition(self, builder: Any, path: str) -> Any:
        return builder.withPartitionPath(path.rpartition("/")[0].rpartition("/")[2]) if self.is_partitioned else builder

    def _data_file(self) -> Any:
        path, size = self._write("data", "parquet")
        builder = self.iceberg.DataFiles.builder(self.spec).withPath(path).withFileSizeInBytes(size)
        return self._partition(builder.withRecordCount(10), path).build()

    def _delete_file(self, kind: str) -> Any:
        path, size = self._write(kind, "parquet")
        builder = self.iceberg.FileMetadata.deleteFileBuilder(self.spec)
        if kind == "position":
            builder = builder.ofPositionDeletes()
        else:
            columns = self.gateway.new_array(self.jvm.int, 1)
            columns[0] = 1
            builder = builder.ofEqualityDeletes(columns)
        builder = builder.withPath(path).withFileSizeInBytes(size).withRecordCount(1)
        return self._partition(builder, path).build()

    def _some(self, found: list[str], most: int = 3) -> list[str]:
        return self.random.sample(found, min(len(found), self.random.randint(1, most)))

    # changes

    def _commit(self, change: Any, branch: str, added: list[Any], removed: list[str]) -> Shown:
        before = self.shown[self._head(branch)].copy()
        if branch != "main":
            change.toBranch(branch)
        change.commit()
        for one in added:
            before.data[one.location()] = one
        for path in removed:
            del before.data[path]
            before.vectors.pop(path, None)
        self.shown[self._head(branch)] = before
        return before

    def append(self) -> None:
        branch, files = self._branch(), [self._data_file() for _ in range(self.random.randint(1, 3))]
        change = self.table.newFastAppend() if self.random.random() < 0.5 else self.table.newAppend()
        for one in files:
            change.appendFile(one)
        self._commit(change, branch, files, [])

    def delete(self) -> None:
        branch = self._branch()
        shown = self.shown[self._head(branch)].data
        paths = self._some(sorted(shown))
        change = self.table.newDelete()
        for path in paths:
            change.deleteFile(shown[path])  # py4j takes a path for that of a file to be removed at once
        self._commit(change, branch, [], paths)

    def overwrite(self) -> None:
        branch = self._branch()
        shown = self.shown[self._head(branch)].data
        paths, file = self._some(sorted(shown)), self._data_file()
        change = self.table.newOverwrite().addFile(file)
        for path in paths:
            change.deleteFile(shown[path])
        self._commit(change, branch, [file], paths)

    def rewrite(self) -> None:
        branch = self._branch()
        head = self._head(branch)
        shown = self.shown[head]
        paths, file = self._some(sorted(shown.data), 5), self._data_file()
        if head is None or not paths:
            return
        change = self.table.newRewrite().validateFromSnapshot(head).addFile(file)
        for path in paths:
            change.deleteFile(shown.data[path])
            if path in shown.vectors:
                change.deleteFile(shown.vectors[path])
        self._commit(change, branch, [file], paths)

    def rewrite_manifests(self) -> None:
        if self.current() is None:
            return
        self._commit(
            self.table.rewriteManifests().clusterBy(self.jvm.java.util.function.Function.identity()), "main", [], []
        )

    def equality_deletes(self) -> None:
        self._commit(self.table.newRowDelta().addDeletes(self._delete_file("equality")), self._branch(), [], [])

    def position_deletes(self) -> None:
        self._commit(self.table.newRowDelta().addDeletes(self._delete_file("position")), self._branch(), [], [])

    def deletion_vectors(self) -> None:
        """One file with the deletion vectors of several data files."""
        branch = self._branch()
        head = self._head(branch)
        shown = self.shown[head]
        paths = self._some(sorted(shown.data))
        if head is None or not paths:
            return
        location, size = self._write("vectors", "puffin")
        change = self.table.newRowDelta().validateFromSnapshot(head)
        vectors = {}
        for index, path in enumerate(paths):
            builder = self.iceberg.FileMetadata.deleteFileBuilder(self.spec).ofPositionDeletes()
            builder = builder.withPath(location).withFileSizeInBytes(size).withFormat("puffin").withRecordCount(1)
            builder = self._partition(builder, path).withReferencedDataFile(path)
            vectors[path] = builder.withContentOffset(4 + index * 40).withContentSizeInBytes(40).build()
            change.addDeletes(vectors[path])
            if path in shown.vectors:
                change.removeDeletes(shown.vectors[path])
        self._commit(change, branch, [], []).vectors.update(vectors)

    def create_branch(self) -> None:
        snapshot = self._any_snapshot()
        self.table.manageSnapshots().createBranch(f"branch-{len(self.done)}", snapshot).commit()

    def create_tag(self) -> None:
        snapshot = self._any_snapshot()
        self.table.manageSnapshots().createTag(f"tag-{len(self.done)}", snapshot).commit()

    def _any_snapshot(self) -> int:
        if self.current() is None:
            self.append()
        return self.random.choice(self.snapshot_ids())

    def remove_reference(self) -> None:
        names = sorted(self.references().keys() - {"main"})
        if names:
            self.remove(self.random.choice(names))

    def remove(self, name: str) -> None:
        """Remove a branch or a tag."""
        change = self.table.manageSnapshots()
        (change.removeBranch(name) if name.startswith("branch") else change.removeTag(name)).commit()

    def roll_back(self) -> None:
        line, snapshot = [], self.table.currentSnapshot()
        while snapshot is not None:
            line.append(snapshot.snapshotId())
            parent = snapshot.parentId()
            snapshot = None if parent is None else self.table.snapshot(parent)
        if line:
            self.table.manageSnapshots().rollbackTo(self.random.choice(line)).commit()

    def set_current(self) -> None:
        snapshot = self._any_snapshot()
        self.table.manageSnapshots().setCurrentSnapshot(snapshot).commit()

    def fast_forward(self) -> None:
        self.table.manageSnapshots().fastForwardBranch(self._branch(), self._branch()).commit()

    def stage(self) -> None:
        files = [self._data_file()]
        before = set(self.snapshot_ids())
        self.table.newFastAppend().appendFile(files[0]).stageOnly().commit()
        (new,) = set(self.snapshot_ids()) - before
        self.staged[new] = files
        self.shown[new] = self.shown[self.current()].copy()
        self.shown[new].data[files[0].location()] = files[0]

    def cherry_pick(self) -> None:
        known = [one for one in self.snapshot_ids() if one in self.staged]
        if not known:
            return
        picked = self.random.choice(known)
        before = self.shown[self.current()].copy()
        self.table.manageSnapshots().cherrypick(picked).commit()
        before.data |= {one.location(): one for one in self.staged[picked]}
        self.shown[self.current()] = before

    def statistics(self) -> None:
        snapshot = self._any_snapshot()
        path, size = self._write("statistics", "stats")
        file = self.iceberg.GenericStatisticsFile(snapshot, path, size, 1, [])
        self.table.updateStatistics().setStatistics(file).commit()

    def partition_statistics(self) -> None:
        snapshot = self._any_snapshot()
        path, size = self._write("partition-statistics", "parquet")
        builder = self.iceberg.ImmutableGenericPartitionStatisticsFile.builder()
        file = builder.snapshotId(snapshot).path(path).fileSizeInBytes(size).build()
        self.table.updatePartitionStatistics().setPartitionStatistics(file).commit()

    def expire_some(self) -> None:
        """Expire a snapshot somewhere, so that lines of ancestors break."""
        held = set(self.references().values())
        free = [one for one in self.snapshot_ids() if one not in held]
        if free:
            self.expire([self.random.choice(free)])

    def expire(self, snapshots: list[int]) -> None:
        """Expire snapshots with Iceberg's own means, and remove the files that nobody holds any more."""
        change = self.table.expireSnapshots()
        for one in snapshots:
            change.expireSnapshotId(one)
        change.commit()

    def age(self, now_ms: int) -> None:
        """Make the snapshots days old, the last of them today's, and give the table and its references an expiry."""
        found = find_table(str(self.directory))
        metadata = json.loads(gunzipped(Path(found.metadata_file).read_bytes()))
        count = len(metadata["snapshots"])
        for index, one in enumerate(metadata["snapshots"]):
            one["timestamp-ms"] = now_ms - (count - index) * DAY_MS + DAY_MS // 2
        times_ms = {one["snapshot-id"]: one["timestamp-ms"] for one in metadata["snapshots"]}
        current = metadata["current-snapshot-id"]
        metadata["snapshot-log"] = [
            {"snapshot-id": one, "timestamp-ms": times_ms[one]} for one in [current] if one in times_ms
        ]
        metadata["properties"] |= {
            "history.expire.max-snapshot-age-ms": str(self.random.randrange(count + 1) * DAY_MS),
            "history.expire.min-snapshots-to-keep": str(self.random.randint(1, 3)),
        }
        for name, one in metadata.get("refs", {}).items():
            if self.random.random() < 0.3 and name != "main":
                one["max-ref-age-ms"] = (1 + self.random.randrange(count)) * DAY_MS
            if self.random.random() < 0.3 and one["type"] == "branch":
                one["min-snapshots-to-keep"] = self.random.randint(1, 4)
                one["max-snapshot-age-ms"] = (1 + self.random.randrange(count)) * DAY_MS
        version = (version_of(found.metadata_file) or 0) + 1
        (self.directory / "metadata" / f"v{version}.metadata.json").write_text(json.dumps(metadata))

    def expire_old(self) -> None:
        """Let Iceberg expire what its own rules say."""
        self.table.refresh()
        self.table.expireSnapshots().commit()

    def expire_all(self) -> None:
        """Expire every snapshot but the last, by age."""
        self.table.refresh()
        self.table.manageSnapshots().setMinSnapshotsToKeep("main", 1).setMaxSnapshotAgeMs("main", 1).commit()
        self.table.expireSnapshots().commit()

    def files(self) -> dict[str, int]:
        """Return the size of each file in the directory, by its path; without Hadoop's checksum files."""
        return sizes(self.directory)
