"""Write the plane's Iceberg tables: let metadata copy its databases, run the job over the copies, delete them."""

from __future__ import annotations

import contextlib
import json
import tempfile
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from schemas.credentials import FILE_VARIABLE
from schemas.topics import CLIENTS
from services.client.kafka_plane import PlaneAddress
from services.client.wire.http_reads import HttpShard, http_client
from services.domain.errors import DeepcleanError
from services.plane.machine.home import jars_directory
from services.plane.machine.jars import ICEBERG, classpath, fetch_jars
from services.plane.machine.spark_jobs import SparkJobError, run_spark_job
from services.plane.stack.secrets import plane_security
from services.plane.upkeep.asked_copies import asked_copies
from streaming.tables.columns import FROM_COPIES, FROM_TOPICS, NAMESPACE

DEFAULT_NAMESPACE = NAMESPACE
TABLES = (*FROM_TOPICS, *FROM_COPIES)
"""The tables that a user may choose."""


class TableExportError(DeepcleanError):
    """The tables could not be written. What was written before the error stays, and the next run goes on."""


@dataclass(slots=True)
class WrittenTables:
    """What a run has written."""

    rows: dict[str, int] = field(default_factory=dict)
    """The number of rows that were written to each table; tables in which nothing has changed are not in it."""
    unreadable: int = 0
    maintained: list[str] = field(default_factory=list)
    """The tables that were compacted, and of which old states were removed."""


@dataclass(frozen=True, slots=True)
class TableExport:
    """A request to write tables."""

    warehouse: str
    tables: Sequence[str]
    keep_hours: float
    is_from_beginning: bool = False
    namespace: str = DEFAULT_NAMESPACE
    """The namespace of the tables in the catalog: planes that share a catalog have different ones."""
    conf: Sequence[str] = ()
    """Settings of Spark, each ``NAME=VALUE``; they override ours."""
    heap: str = "1g"

    def run(self, address: PlaneAddress, home: Path) -> WrittenTables:
        """Write the tables; raise TableExportError if that failed."""
        from_copies = any(name in FROM_COPIES for name in self.tables)
        if from_copies and not address.metadata_url:
            raise TableExportError(
                f"The hosts of this plane share its shards, and without the databases of all of them only "
                f"{' and '.join(FROM_TOPICS)} can be written: name these tables (--table)."
            )
        fetch_jars(jars_directory(), consumers=(ICEBERG,))
        with (
            tempfile.TemporaryDirectory(prefix="deepclean-export-") as scratch,
            _copies(address, range(address.shards) if from_copies else ()) as copies,
        ):
            return self._run(address, home, Path(scratch), copies)

    def _run(self, address: PlaneAddress, home: Path, scratch: Path, copies: Mapping[int, str]) -> WrittenTables:
        security = plane_security(home)
        credentials = {FILE_VARIABLE: str(security.credentials_file(CLIENTS))} if security else {}
        wanted = scratch / "wanted.json"
        wanted.write_text(
            json.dumps(
                {
                    "bootstrap_servers": address.bootstrap_servers,
                    "shards": address.shards,
                    "tables": list(self.tables),
                    "copies": copies,
                    "keep_hours": self.keep_hours,
                    "is_from_beginning": self.is_from_beginning,
                }
            )
        )
        written = WrittenTables()

        def on_line(line: Mapping[str, Any]) -> None:
            if line.get("rows"):
                written.rows[line["table"]] = written.rows.get(line["table"], 0) + int(line["rows"])
            written.unreadable += int(line.get("unreadable", 0))
            if "maintained" in line:
                written.maintained.append(line["maintained"])

        settings = [f"spark.jars={classpath(jars_directory(), ICEBERG)}", *self.conf]
        arguments = [word for setting in settings for word in ("--conf", setting)]
        try:
            run_spark_job(
                "streaming.tables",
                [*arguments, "--warehouse", self.warehouse, "--namespace", self.namespace, str(wanted)],
                on_line,
                scratch=scratch,
                java_directory=home,
                heap=self.heap,
                environment=credentials,
            )
        except SparkJobError as error:
            raise TableExportError(str(error)) from error
        return written


@contextlib.contextmanager
def _copies(address: PlaneAddress, numbers: Iterable[int]) -> Iterator[dict[int, str]]:
    """Let metadata copy the databases of shards, as for an audit; yield the directories, and delete them at the end."""
    with http_client(address.http_token) as http:
        shards = {number: HttpShard(http, "metadata", address.metadata_url, number) for number in numbers}
        with asked_copies(shards.values(), uuid.uuid4().hex) as copy:
            yield {number: copy(shard, "all").directory for number, shard in shards.items()}
