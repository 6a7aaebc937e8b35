"""Apache Paimon's own runtime, in a JVM of its own: it writes tables for tests, and its expiry judges the lens."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyspark
from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway

from services.plane.machine.home import jars_directory
from services.plane.machine.jars import TESTS, classpath
from services.plane.machine.java import find_java

Row = tuple[object, ...]
FOREVER = 2**31 - 1
INSERT, DELETE = "+I", "-D"


@contextlib.contextmanager
def paimon(warehouse: Path) -> Iterator[Paimon]:
    """Start Paimon on a warehouse, and stop it when the context ends."""
    shipped = Path(pyspark.__file__).parent / "jars"
    port, process = launch_gateway(
        jarpath=str(next(shipped.glob("py4j-*.jar"))),
        classpath=os.pathsep.join([classpath(jars_directory(), TESTS), str(shipped / "*")]),
        javaopts=["-Xmx512m", "-XX:TieredStopAtLevel=1", "-Dlog4j2.level=ERROR"],
        java_path=str(find_java().executable),
        die_on_exit=True,
        return_proc=True,
    )
    gateway = JavaGateway(gateway_parameters=GatewayParameters(port=port, auto_convert=True))
    try:
        yield Paimon(gateway, warehouse)
    finally:
        gateway.shutdown()
        process.stdin.close()
        process.wait(30)


class Paimon:
    """A catalog of tables in the database ``db``."""

    def __init__(self, gateway: JavaGateway, warehouse: Path) -> None:
        self.gateway, self.warehouse = gateway, warehouse
        self.java = gateway.jvm.java
        self.classes = gateway.jvm.org.apache.paimon
        options = self.classes.options.Options()
        options.set("warehouse", str(warehouse))
        options.set("cache-enabled", "false")  # tests change snapshot files
        context = self.classes.catalog.CatalogContext.create(options)
        self.catalog = self.classes.catalog.CatalogFactory.createCatalog(context)
        self.catalog.createDatabase("db", True)

    def create(
        self,
        name: str,
        columns: Mapping[str, Any],
        options: Mapping[str, str],
        *,
        partition: Sequence[str] = (),
        primary: Sequence[str] = (),
    ) -> PaimonTable:
        """Create a table; a column has the name of a type, or its arguments in a tuple: ``("DECIMAL", 10, 2)``."""
        schema = self.classes.schema.Schema.newBuilder()
        for column, kind in columns.items():
            type_name, *arguments = kind if isinstance(kind, tuple) else (kind,)
            schema.column(column, getattr(self.classes.types.DataTypes, type_name)(*arguments))
        schema.partitionKeys(list(partition))
        schema.primaryKey(list(primary))
        for option, value in options.items():
            schema.option(option, value)
        self.catalog.createTable(self.classes.catalog.Identifier.create("db", name), schema.build(), False)
        return PaimonTable(self, name)

    def array(self, kind: Any, values: Sequence[object]) -> Any:
        """Return a Java array."""
        made = self.gateway.new_array(kind, len(values))
        for index, value in enumerate(values):
            made[index] = value
        return made

    def row(self, values: Row, kind: str) -> Any:
        """Return a row; texts become Paimon's."""
        texts = self.classes.data.BinaryString
        held = [texts.fromString(value) if isinstance(value, str) else value for value in values]
        row = self.classes.data.GenericRow.of(self.array(self.java.lang.Object, held))
        row.setRowKind(self.classes.types.RowKind.fromShortString(kind))
        return row


class PaimonTable:
    """A table, as Paimon sees it."""

    def __init__(self, runtime: Paimon, name: str, branch: str = "") -> None:
        self.runtime, self.name, self.branch = runtime, name, branch
        self.directory = runtime.warehouse / "db.db" / name

    @property
    def java(self) -> Any:
        """The table in its present state."""
        identifier = self.runtime.classes.catalog.Identifier("db", self.name)
        table = self.runtime.catalog.getTable(identifier)
        return table.switchToBranch(self.branch) if self.branch else table

    def on_branch(self, branch: str) -> PaimonTable:
        """Return the table as a branch sees it."""
        return PaimonTable(self.runtime, self.name, branch)

    def write(
        self,
        rows: Sequence[tuple[str, Row]],
        *,
        overwrite: Mapping[str, str] | None = None,
        bucket_of: Any = None,
        compact: Sequence[tuple[Row, int]] = (),
    ) -> None:
        """Commit rows with their kinds; ``compact``: whole buckets to compact, each by a row of its partition."""
        runtime = self.runtime
        builder = runtime.classes.table.sink.BatchWriteBuilderImpl(self.java)
        if overwrite is not None:
            builder = builder.withOverwrite(dict(overwrite))
        write, commit = builder.newWrite(), builder.newCommit()
        write.withIOManager(runtime.classes.disk.IOManager.create(str(runtime.warehouse / "spill")))
        try:
            for kind, values in rows:
                row = runtime.row(values, kind)
                if bucket_of is None:
                    write.write(row)
                else:
                    write.write(row, bucket_of(values))
            for values, bucket in compact:
                write.compact(write.getPartition(runtime.row(values, INSERT)), bucket, True)
            commit.commit(write.prepareCommit())
        finally:
            write.close()
            commit.close()

    def analyze(self, records: int) -> None:
        """Commit statistics of the newest snapshot."""
        statistics = self.runtime.classes.stats.Statistics(self.latest(), 0, records, records * 100)
        commit = self.runtime.classes.table.sink.BatchWriteBuilderImpl(self.java).newCommit()
        commit.updateStatistics(statistics)
        commit.close()

    def truncate(self) -> None:
        """Commit a snapshot without data."""
        commit = self.runtime.classes.table.sink.BatchWriteBuilderImpl(self.java).newCommit()
        commit.truncateTable()
        commit.close()

    def consume(self, name: str, following: int) -> None:
        """Let a consumer have ``following`` as the snapshot that it reads next."""
        table, consumer = self.java, self.runtime.classes.consumer
        manager = consumer.ConsumerManager(table.fileIO(), table.location(), self.branch or "main")
        manager.resetConsumer(name, consumer.Consumer(following))

    def latest(self) -> int:
        """Return the id of the newest snapshot."""
        return int(self.java.snapshotManager().latestSnapshotId())

    def snapshots(self) -> list[int]:
        """Return the ids of the snapshots that exist."""
        directory = self.directory / f"branch/branch-{self.branch}" if self.branch else self.directory
        return sorted(int(path.name[9:]) for path in (directory / "snapshot").glob("snapshot-*"))

    def set_time(self, snapshot: int, time_ms: int) -> None:
        """Give a snapshot another time, so that a test need not wait until it is old."""
        path = self.directory / "snapshot" / f"snapshot-{snapshot}"
        path.write_text(json.dumps({**json.loads(path.read_text()), "timeMillis": time_ms}, indent=2))

    def expire(self, options: Mapping[str, str]) -> None:
        """Expire snapshots by options of the table."""
        self.java.newExpireSnapshots().config(self._expiry(options)).expire()

    def expire_changelogs(self, options: Mapping[str, str]) -> None:
        """Expire changelogs that have outlived their snapshots."""
        self.java.newExpireChangelog().config(self._expiry(options)).expire()

    def _expiry(self, options: Mapping[str, str]) -> Any:
        return self.runtime.classes.CoreOptions({**self.java.options(), **options}).expireConfig()

    def changelogs(self) -> list[int]:
        """Return the ids of the changelogs that have outlived their snapshots."""
        return sorted(int(path.name[10:]) for path in (self.directory / "changelog").glob("changelog-*"))

    def files(self) -> dict[str, int]:
        """Return all files in the table's directory with their sizes."""
        found = (path for path in self.directory.rglob("*") if path.is_file())
        return {str(path.relative_to(self.directory)): path.stat().st_size for path in found}
