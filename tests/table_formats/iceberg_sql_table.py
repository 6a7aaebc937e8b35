"""A random Iceberg table with rows, changed by Spark SQL: inserts, deletions, updates, compactions, statistics."""

from __future__ import annotations

from pathlib import Path
from random import Random

from py4j.protocol import Py4JJavaError
from pyspark.errors.exceptions.captured import CapturedException
from pyspark.sql import SparkSession

CATALOG = "judged"


def add_catalog(session: SparkSession, warehouse: Path) -> None:
    """Give the session a catalog of tables in a directory."""
    session.conf.set(f"spark.sql.catalog.{CATALOG}", "org.apache.iceberg.spark.SparkCatalog")
    session.conf.set(f"spark.sql.catalog.{CATALOG}.type", "hadoop")
    session.conf.set(f"spark.sql.catalog.{CATALOG}.warehouse", str(warehouse))


class SqlTable:
    """A table in the catalog."""

    def __init__(self, session: SparkSession, warehouse: Path, random: Random, format_version: int) -> None:
        self.session, self.random, self.format_version = session, random, format_version
        self._table = f"db.t{random.getrandbits(32)}"
        self.directory = warehouse / self._table.replace(".", "/")
        self.done: list[str] = []
        self.refused: list[str] = []
        mode = random.choice(["copy-on-write", "merge-on-read"]) if format_version > 1 else "copy-on-write"
        self._is_partitioned = random.random() < 0.5
        parts = "partitioned by (part)" if self._is_partitioned else ""
        self._sql(
            f"create table {self.name} (id long, part long) using iceberg {parts} tblproperties("
            f"'format-version'='{format_version}', 'write.delete.mode'='{mode}', 'write.update.mode'='{mode}', "
            f"'write.merge.mode'='{mode}')"
        )

    @property
    def name(self) -> str:
        return f"{CATALOG}.{self._table}"

    def play(self, steps: int) -> None:
        """Change the table at random."""
        for step in range(steps):
            row = self.random.randrange(40)
            wanted = [
                f"insert into {self.name} select id, id % 2 from range({step * 10}, {step * 10 + 10})",
                f"delete from {self.name} where id between {row} and {row + 2}",
                f"update {self.name} set part = 1 - part where id = {row}",
                f"insert overwrite {self.name} select id, id % 2 from range({row}, {row + 5})",
                self._call("rewrite_data_files", "options => map('rewrite-all', 'true')"),
                self._call("rewrite_manifests"),
                self._call("rewrite_position_delete_files", "options => map('rewrite-all', 'true')"),
                self._call("compute_table_stats"),
                *([self._call("compute_partition_stats")] if self._is_partitioned else []),
            ]
            statement = wanted[0] if step < 2 else self.random.choice(wanted)
            shown = statement.replace(self._table, "t")
            try:
                self._sql(statement)
            except (Py4JJavaError, CapturedException) as error:
                self.refused.append(f"{shown}: {error}")
            else:
                self.done.append(shown)

    def _call(self, procedure: str, more: str = "") -> str:
        return f"call {CATALOG}.system.{procedure}(table => '{self._table}'{', ' + more if more else ''})"

    def _sql(self, statement: str) -> list[tuple[object, ...]]:
        return list(self.session.sql(statement).collect())

    def snapshot_ids(self) -> list[int]:
        rows = self._sql(f"select snapshot_id from {self.name}.snapshots order by committed_at")
        return [int(str(row[0])) for row in rows]

    def references(self) -> dict[str, int]:
        return {str(row[0]): int(str(row[1])) for row in self._sql(f"select name, snapshot_id from {self.name}.refs")}

    def current(self) -> int:
        return self.references()["main"]

    def remove(self, name: str) -> None:
        """Remove a reference: this table has none but main, which stays."""
        raise AssertionError(name)

    def expire(self, snapshots: list[int]) -> None:
        """Expire snapshots by Iceberg's procedure."""
        self._sql(self._call("expire_snapshots", f"snapshot_ids => array({', '.join(f'{one}L' for one in snapshots)})"))

    def files(self) -> dict[str, int]:
        """Return the size of each file in the directory, by its path; without Hadoop's checksum files."""
        return sizes(self.directory)


def sizes(directory: Path) -> dict[str, int]:
    """Return the size of each file in a directory, without Hadoop's checksum files."""
    found = (path for path in directory.rglob("*") if path.is_file() and path.suffix != ".crc")
    return {str(path): path.stat().st_size for path in found}
