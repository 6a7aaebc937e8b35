"""Audit a shard of a running plane: let the services copy their databases, compare the copies with Spark, delete them.

The copies are made in this order:

    inventory, then metadata with the checkpoints of its live snapshots, then the inventory again

The copies are directories on this machine, or on a disk that it shares with the services. Where hosts share the shards,
the topic of owners says which of them run a shard. The last result is stored in ``<home>/audits/<shard>.json``.
"""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
from pydantic import TypeAdapter, ValidationError

from schemas.audit_report import AuditReport
from services.client.kafka_plane import KafkaPlane, PlaneAddress
from services.client.wire.http_reads import HttpShard, http_client
from services.domain.errors import DeepcleanError
from services.plane.machine.errors import StackError
from services.plane.machine.spark_jobs import SparkJobError, run_spark_job
from services.plane.upkeep.asked_copies import asked_copies

DIRECTORY = "audits"
Progress = Callable[[int, str], None]
"""Called with the percentage that is done and the current step."""


class AuditError(DeepcleanError):
    """The audit could not be completed, so there is no report."""


@dataclass(frozen=True, slots=True)
class FinishedAudit:
    """The last audit of a shard."""

    audit_id: str
    started_ms: int
    seconds: float
    report: AuditReport


_FINISHED = TypeAdapter(FinishedAudit)
_REPORT = TypeAdapter(AuditReport)


@dataclass(frozen=True, slots=True)
class Auditor:
    """Audits the shards of one plane."""

    address: PlaneAddress
    home: Path
    heap: str = "1g"
    master: str = "local[2]"

    def audit(self, shard: int, bucket: str, progress: Progress) -> FinishedAudit:
        """Audit a shard, or one bucket (``volume/bucket``) of it. Raise AuditError if the copies or the job failed."""
        audit_id, started = uuid.uuid4().hex, time.time()
        with (
            http_client(self.address.http_token) as http,
            tempfile.TemporaryDirectory(prefix="deepclean-audit-") as scratch,
            self._copies(http, shard, audit_id, progress) as copies,
        ):
            output = Path(scratch) / "report.json"
            self._run({"copies": {**copies, "bucket": bucket}, "output": str(output)}, Path(scratch), progress)
            report = _REPORT.validate_json(output.read_bytes())
        finished = FinishedAudit(audit_id, int(started * 1000), round(time.time() - started, 1), report)
        if not bucket:
            write_last_audit(self.home, finished)
        return finished

    @contextlib.contextmanager
    def _copies(self, http: httpx.Client, shard: int, audit_id: str, progress: Progress) -> Iterator[dict[str, object]]:
        """Let the services make the copies, and yield the job's input. The copies are always deleted at the end."""
        places = self._places(shard)
        metadata, store = (HttpShard(http, name, url, shard) for name, url in places.items())
        with asked_copies((metadata, store), audit_id) as copy:
            _require_ready(http, places)
            progress(1, "copying the inventory")
            before = copy(store, "before")
            _require_here(before.directory, shard)
            progress(2, "copying metadata and its snapshots")
            namespace = copy(metadata, "all")
            progress(3, "copying the inventory again")
            after = copy(store, "after")
            _require_here(namespace.directory, shard)
            _require_ready(http, places)
            if self._places(shard) != places:  # a former owner may have copied what it has not caught up with
                raise AuditError(f"another host has taken shard {shard} over meanwhile: audit again")
            yield {
                "shard": shard,
                "inventory_before": before.directory,
                "namespace": namespace.directory,
                "snapshots": namespace.snapshots,
                "inventory_after": after.directory,
            }

    def _places(self, shard: int) -> dict[str, str]:
        """Return where metadata and the block store of a shard answer now.

        Raises:
            AuditError: nobody runs one of them.
            UnreachableError: the broker does not answer.
        """
        if self.address.metadata_url:
            return {"metadata": self.address.metadata_url, "mock_scm": self.address.scm_url}
        with KafkaPlane(self.address) as plane:
            places = {name: plane.owner_url(name, shard) for name in ("metadata", "mock_scm")}
        if missing := [name for name, url in places.items() if not url]:
            raise AuditError(f"no host runs {missing[0]} of shard {shard} yet: audit again when one does")
        return places

    def _run(self, audited: dict[str, object], scratch: Path, progress: Progress) -> None:
        question = scratch / "audited.json"  # thousands of snapshots do not fit into a command line
        question.write_text(json.dumps(audited))

        def on_line(line: Mapping[str, Any]) -> None:
            if "progress" in line:
                progress(int(line["progress"]), line["doing"])

        progress(4, "starting Spark")
        try:
            run_spark_job(
                "streaming.audit",
                [str(question)],
                on_line,
                scratch=scratch,
                java_directory=self.home,
                heap=self.heap,
                master=self.master,
            )
        except SparkJobError as error:
            raise AuditError(str(error)) from error


def _require_ready(http: httpx.Client, places: Mapping[str, str]) -> None:
    """Raise AuditError unless both services are ready.

    A service that is still catching up on an older database would look as if it had lost rows.
    """
    for name, url in places.items():
        try:
            answer = http.get(f"{url}/readyz")
        except httpx.HTTPError as error:
            raise AuditError(f"{name} at {url} cannot be reached ({error}): see deepclean status") from error
        if not answer.is_success:
            raise AuditError(f"{name} is not ready ({answer.text.strip()[:300]}): audit again when it is")


def _require_here(directory: str, shard: int) -> None:
    """Raise AuditError unless a copy can be read on this machine."""
    if not os.path.isdir(directory):  # noqa: PTH112  Path.is_dir raises where one may not look
        raise AuditError(
            f"a copy of shard {shard} cannot be read here ({directory}): audit on the host that runs metadata and "
            f"mock_scm of the shard, or that shares its disk, as a user who may read their directories"
        )


def write_last_audit(home: Path, finished: FinishedAudit) -> None:
    """Store an audit as the last one of its shard."""
    file = home / DIRECTORY / f"{finished.report.shard}.json"
    written = file.with_suffix(f".{threading.get_ident()}")
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        written.write_bytes(_FINISHED.dump_json(finished))
        written.replace(file)
    except OSError as error:
        raise StackError(f"{file} cannot be written: free some space there or repair the disk ({error})") from error


def last_audits(home: Path) -> list[FinishedAudit]:
    """Return the last full audit of each shard. Files of another version are skipped."""
    found = []
    for file in sorted((home / DIRECTORY).glob("*.json")):
        with contextlib.suppress(OSError, ValidationError):
            found.append(_FINISHED.validate_json(file.read_bytes()))
    return sorted(found, key=lambda one: one.report.shard)
