"""The metadata of a large Iceberg table, written directly, and what it must answer.

``python -m tests.iceberg_at_scale DIR --snapshots 1000 --files 500000`` makes the table in DIR. Each snapshot appends
a manifest with as many new files, and rewrites an older manifest without a tenth of its files, as a merge-append and a
deletion do. Entries have bounds and counts for eight columns. The data files are there and empty, unless
``--metadata-only``.
"""

from __future__ import annotations

import argparse
import json
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import fastavro

from services.domain.run_space import Runs

EXISTING, ADDED, DELETED = 0, 1, 2
COLUMNS = 8


def _map(key: str, value: str, name: str) -> dict[str, Any]:
    fields = [{"name": "key", "type": key}, {"name": "value", "type": value}]
    return {"type": "array", "logicalType": "map", "items": {"type": "record", "name": name, "fields": fields}}


MANIFEST = fastavro.parse_schema(
    {
        "type": "record",
        "name": "manifest_entry",
        "fields": [
            {"name": "status", "type": "int", "field-id": 0},
            {"name": "snapshot_id", "type": ["null", "long"], "field-id": 1},
            {"name": "sequence_number", "type": ["null", "long"], "field-id": 3},
            {"name": "file_sequence_number", "type": ["null", "long"], "field-id": 4},
            {
                "name": "data_file",
                "field-id": 2,
                "type": {
                    "type": "record",
                    "name": "r2",
                    "fields": [
                        {"name": "content", "type": "int", "field-id": 134},
                        {"name": "file_path", "type": "string", "field-id": 100},
                        {"name": "file_format", "type": "string", "field-id": 101},
                        {"name": "partition", "type": {"type": "record", "name": "r102", "fields": []}},
                        {"name": "record_count", "type": "long", "field-id": 103},
                        {"name": "file_size_in_bytes", "type": "long", "field-id": 104},
                        {"name": "value_counts", "type": ["null", _map("int", "long", "k119_v120")]},
                        {"name": "lower_bounds", "type": ["null", _map("int", "bytes", "k126_v127")]},
                        {"name": "upper_bounds", "type": ["null", _map("int", "bytes", "k129_v130")]},
                    ],
                },
            },
        ],
    }
)
MANIFEST_LIST = fastavro.parse_schema(
    {
        "type": "record",
        "name": "manifest_file",
        "fields": [
            {"name": "manifest_path", "type": "string", "field-id": 500},
            {"name": "manifest_length", "type": "long", "field-id": 501},
            {"name": "partition_spec_id", "type": "int", "field-id": 502},
            {"name": "content", "type": "int", "field-id": 517},
            {"name": "sequence_number", "type": "long", "field-id": 515},
            {"name": "added_snapshot_id", "type": "long", "field-id": 503},
        ],
    }
)


@dataclass(slots=True)
class LargeTable:
    """A table in the making, and what a report of it must say."""

    directory: Path
    snapshots: int
    files_a_snapshot: int
    random: Random
    address: str = ""
    """How the metadata calls the directory, if not by its path."""
    lists: list[list[str]] = field(default_factory=list)
    """The names of the manifests of each snapshot."""
    entries: dict[str, list[int]] = field(default_factory=dict)
    """The files that each manifest holds."""
    lengths: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.address = self.address or str(self.directory)

    def write(self) -> None:
        """Write all metadata: manifests, manifest lists, and the metadata file."""
        (self.directory / "metadata").mkdir(parents=True)
        manifests: list[str] = []
        for snapshot in range(self.snapshots):
            first = snapshot * self.files_a_snapshot
            new = self._manifest(snapshot, [(ADDED, file) for file in range(first, first + self.files_a_snapshot)])
            manifests = manifests.copy()
            if manifests:
                place = self.random.randrange(len(manifests))
                manifests[place] = self._without_a_tenth(snapshot, manifests[place])
            manifests.append(new)
            self.lists.append(manifests)
            rows = [self._listed(name, snapshot) for name in manifests]
            self._avro(f"snap-{snapshot + 1}.avro", MANIFEST_LIST, rows)
        self._metadata()

    def _without_a_tenth(self, snapshot: int, manifest: str) -> str:
        files = self.entries[manifest]
        gone = set(self.random.sample(files, len(files) // 10))
        return self._manifest(snapshot, [(DELETED if file in gone else EXISTING, file) for file in files])

    def _manifest(self, snapshot: int, entries: list[tuple[int, int]]) -> str:
        name = f"{uuid.UUID(int=self.random.getrandbits(128))}-m0.avro"
        self.entries[name] = [file for status, file in entries if status != DELETED]
        self.lengths[name] = self._avro(name, MANIFEST, (self._entry(snapshot, *one) for one in entries))
        return name

    def _entry(self, snapshot: int, status: int, file: int) -> dict[str, Any]:
        bound = [{"key": column, "value": (file * column).to_bytes(8, "little")} for column in range(COLUMNS)]
        return {
            "status": status,
            "snapshot_id": snapshot + 1,
            "sequence_number": snapshot + 1,
            "file_sequence_number": snapshot + 1,
            "data_file": {
                "content": 0,
                "file_path": self.path_of(file),
                "file_format": "PARQUET",
                "partition": {},
                "record_count": 1000,
                "file_size_in_bytes": self.size_of(file),
                "value_counts": [{"key": column, "value": 1000} for column in range(COLUMNS)],
                "lower_bounds": bound,
                "upper_bounds": bound,
            },
        }

    def _listed(self, name: str, snapshot: int) -> dict[str, Any]:
        return {
            "manifest_path": f"{self.address}/metadata/{name}",
            "manifest_length": self.lengths[name],
            "partition_spec_id": 0,
            "content": 0,
            "sequence_number": snapshot + 1,
            "added_snapshot_id": snapshot + 1,
        }

    def _avro(self, name: str, schema: Any, rows: Any) -> int:
        path = self.directory / "metadata" / name
        with path.open("wb") as file:
            fastavro.writer(file, schema, rows, codec="deflate")
        return path.stat().st_size

    def _metadata(self) -> None:
        snapshots = [
            {
                "snapshot-id": number,
                **({"parent-snapshot-id": number - 1} if number > 1 else {}),
                "sequence-number": number,
                "timestamp-ms": 1_700_000_000_000 + number,
                "manifest-list": f"{self.address}/metadata/snap-{number}.avro",
                "summary": {"operation": "append"},
            }
            for number in range(1, self.snapshots + 1)
        ]
        content = {
            "format-version": 2,
            "location": self.address,
            "current-snapshot-id": self.snapshots,
            "snapshots": snapshots,
            "refs": {"main": {"snapshot-id": self.snapshots, "type": "branch"}},
        }
        (self.directory / "metadata" / "v1.metadata.json").write_text(json.dumps(content))
        (self.directory / "metadata" / "version-hint.text").write_text("1")

    def path_of(self, file: int) -> str:
        """Return the address of a data file."""
        return f"{self.address}/{self._name_of(file)}"

    def _name_of(self, file: int) -> str:
        return f"data/{file % 100:02}/{file:08}.parquet"

    def size_of(self, file: int) -> int:
        """Return the size of a data file."""
        return 1_000_000 + file

    def runs(self) -> Iterator[tuple[int, Runs]]:
        """Yield each data file with its holders: recounted by what each snapshot's manifests hold."""
        last: dict[int, list[tuple[int, int]]] = {}
        seen: dict[int, frozenset[str]] = {place: frozenset(names) for place, names in enumerate(self.lists)}
        for place in range(self.snapshots):
            for name in seen[place]:
                for file in self.entries[name]:
                    runs = last.setdefault(file, [])
                    if runs and runs[-1][1] >= place - 1:
                        runs[-1] = (runs[-1][0], place)
                    else:
                        runs.append((place, place))
        for file, runs in last.items():
            yield file, tuple(runs)

    def write_empty_data(self) -> None:
        """Make the data files, empty, so that none is missing."""
        for part in range(100):
            (self.directory / "data" / f"{part:02}").mkdir(parents=True)
        for file in range(self.snapshots * self.files_a_snapshot):
            (self.directory / self._name_of(file)).touch()


def main() -> None:
    """Make a large table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--snapshots", type=int, default=1_000)
    parser.add_argument("--files", type=int, default=500_000)
    parser.add_argument("--metadata-only", action="store_true")
    options = parser.parse_args()
    table = LargeTable(options.directory, options.snapshots, options.files // options.snapshots, Random(1))
    table.write()
    if not options.metadata_only:
        table.write_empty_data()
    live = {file for name in table.lists[-1] for file in table.entries[name]}
    print(json.dumps({"live_files": len(live), "live_data_bytes": sum(map(table.size_of, live))}))


if __name__ == "__main__":
    main()
