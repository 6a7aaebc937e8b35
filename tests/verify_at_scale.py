"""Verifies the ledger of a large shard on a real broker, and says how fast that was and how much memory it took.

    python -m tests.verify_at_scale fill --home DIR --keys 600000 --snapshots 100
    python -m tests.verify_at_scale verify --home DIR
    python -m tests.verify_at_scale verify-by-parts --home DIR

``fill`` puts keys, deletes two of three and brings some back, takes snapshots and drops every other one, and then
claims and finishes whatever nobody holds, as key_deletion would: metadata applies it all as it does in its process.
``verify`` replays the log in this process and compares, ``verify-by-parts`` does so on Spark. Both say the most memory
that all their processes, the broker excepted, have had at a time, and their processor time.
"""

from __future__ import annotations

import argparse
import os
import resource
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from schemas.codec import codec
from schemas.records import (
    BucketLayout,
    CaptureSnapshot,
    ClaimRows,
    CreateBucket,
    CreateVolume,
    DeletedEntries,
    DeletedKind,
    DeleteKey,
    DropSnapshot,
    FinishRows,
    MetadataCommand,
    MetadataProgress,
    PutKey,
    RowsClaimed,
    Undelete,
)
from schemas.topics import DELETED_ENTRIES, METADATA_COMMANDS, METADATA_PROGRESS, Topic
from services.domain.row_columns import names_of_groups
from services.domain.table_keys import object_txn
from services.log.clock import SystemClock
from services.log.kafka import KafkaLog
from services.log.reads import all_records
from services.metadata.service import MetadataService
from services.metadata.state.tables import ACCOUNT_TABLE
from services.plane.broker.topics import create_plane_topics
from services.plane.stack.plane_lock import log_of_stopped_plane
from services.plane.upkeep.shard_databases import database_directory, new_database, open_database
from services.plane.upkeep.verification import replay_by_parts
from services.runtime.loop.runner import Runner
from services.storage.tables import TablesReader
from services.verifier.report import VerifyReport
from services.verifier.run import compared_with_store, replay_shard
from tests.rebuild_at_scale import send

BACK_EVERY = 100


def history(keys: int, snapshots: int, buckets: int) -> Iterator[MetadataCommand]:
    """What clients and snapshots do: in flat buckets and trees, one after the other."""
    yield _client(CreateVolume("vol"))
    for number in range(buckets):
        layout = (BucketLayout.OBJECT_STORE, BucketLayout.FILE_SYSTEM_OPTIMIZED)[number % 2]
        yield _client(CreateBucket("vol", _bucket(number), layout))
    for part in range(snapshots):
        bucket = _bucket(part % buckets)
        first, end = keys * part // snapshots, keys * (part + 1) // snapshots
        for key in range(first, end):
            yield _client(PutKey("vol", bucket, _name(key), 4_096))
        for key in range(first, end, 3):
            yield _client(DeleteKey("vol", bucket, _name(key)))
        yield MetadataCommand(0, "", 0, CaptureSnapshot("vol", bucket, f"snapshot-{part:04}"), "snapshots")
        for key in range(first + 1, end, 3):
            yield _client(DeleteKey("vol", bucket, _name(key)))
        if part // buckets % 2:
            yield MetadataCommand(0, "", 0, DropSnapshot(f"snapshot-{part:04}"), "snapshots")


def _client(body: object) -> MetadataCommand:
    return MetadataCommand(0, "", 0, body, wants_reply=False)  # type: ignore[arg-type]


def _bucket(number: int) -> str:
    return f"bucket-{number:03}"


def _name(key: int) -> str:
    return f"warehouse/table-{key % 16:02}/part-{key:09}.parquet"


def _said(log: KafkaLog, topic: Topic) -> Iterator[Any]:
    for record in all_records(log, topic.name, 0):
        yield codec(topic.record).decode_message(record.value)


def claims(log: KafkaLog) -> Iterator[MetadataCommand]:
    """One of many deleted keys comes back; the rest is asked for."""
    for number, entries in enumerate(_said(log, DELETED_ENTRIES), start=1):
        assert isinstance(entries, DeletedEntries)
        rows = entries.rows
        if rows.kind is not DeletedKind.KEY or not rows.object_ids:
            continue
        for place in range(0, len(rows.object_ids), BACK_EVERY):
            bucket = _bucket(object_txn(rows.bucket_ids[place]) - 2)
            named = (rows.object_ids[place], rows.births[place], rows.deaths[place])
            yield _client(Undelete("vol", bucket, f"back/{named[0]}", DeletedKind.KEY, *named))
        yield MetadataCommand(
            0, "", 0, ClaimRows(number, entries.chain_version, (rows,)), "key_deletion", wants_reply=False
        )


def finishes(log: KafkaLog) -> Iterator[MetadataCommand]:
    """Whatever was claimed is finished."""
    for progress in _said(log, METADATA_PROGRESS):
        assert isinstance(progress, MetadataProgress)
        if isinstance(progress.body, RowsClaimed) and progress.body.groups.object_ids:
            finish = FinishRows(progress.body.task, (names_of_groups(progress.body.groups),))
            yield MetadataCommand(0, "", 0, finish, "key_deletion", wants_reply=False)


def fill(home: Path, keys: int, snapshots: int, buckets: int) -> None:
    """Make a log, and the ledger that metadata makes of it."""
    with log_of_stopped_plane(home) as log:
        create_plane_topics(log.bootstrap_servers, 1)
        store = new_database(database_directory(home, "metadata", 0), "metadata")
        runner = Runner(MetadataService(), 0, store, log, SystemClock())
        steps: dict[str, Callable[[], Iterator[MetadataCommand]]] = {
            "done": lambda: history(keys, snapshots, buckets),
            "claimed": lambda: claims(log),
            "finished": lambda: finishes(log),
        }
        for what, commands in steps.items():
            started = time.monotonic()
            send(log, commands())
            while runner.positions().get(METADATA_COMMANDS.name, 0) < log.end_offset(METADATA_COMMANDS.name, 0):
                runner.step(1.0)
            print(f"{what} after {time.monotonic() - started:.1f} s", flush=True)
        runner.close()
        store.close()


def verify(home: Path, *, by_parts: bool) -> VerifyReport:
    """Replay and compare."""
    store = open_database(database_directory(home, "metadata", 0), "metadata")
    accounts = TablesReader(store).table(ACCOUNT_TABLE)
    freed_bytes = sum(account.freed_bytes for _, account in accounts.scan(b"", b"\xff"))
    store.close()
    with log_of_stopped_plane(home) as log:

        def replay() -> VerifyReport:
            if not by_parts:
                return replay_shard(log, 0, home)
            return replay_by_parts(log.bootstrap_servers, home, 0, home, say_how=print)

        before_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        use = _Use()
        started = time.monotonic()
        report = compared_with_store(replay, lambda: freed_bytes)
        seconds = time.monotonic() - started
        peak_kib, processor_seconds = use.end()
    print(
        f"{report.commands:,} commands, {report.rows:,} freed versions and {report.undeletes:,} undeletes verified in "
        f"{seconds:.1f} s, {report.commands / seconds:,.0f} commands/s, {processor_seconds:.1f} s of processors; "
        f"{peak_kib // 1024} MiB at most, "
        f"{before_kib // 1024} before; findings: {dict(report.findings) or 'none'}"
    )
    return report


class _Use:
    """Looks every second at the memory and the processor time of this process and of all that it starts, the broker
    excepted.
    """

    def __init__(self) -> None:
        self._broker = _tree(os.getpid()) - {os.getpid()}
        self._peak_kib = 0
        self._seconds: dict[int, float] = {}
        self._before_seconds = _processor_seconds(os.getpid())
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)
        self._thread.start()

    def _look(self) -> None:
        while not self._ends.wait(1.0):
            self._look_once()

    def _look_once(self) -> None:
        processes = _tree(os.getpid()) - self._broker
        self._peak_kib = max(self._peak_kib, sum(map(_resident_kib, processes)))
        for process in processes:
            self._seconds[process] = max(self._seconds.get(process, 0.0), _processor_seconds(process))

    def end(self) -> tuple[int, float]:
        """Stop, and return the most memory at a time in KiB and the processor time in seconds."""
        self._ends.set()
        self._thread.join()
        self._look_once()
        return self._peak_kib, sum(self._seconds.values()) - self._before_seconds


def _tree(process: int) -> set[int]:
    """A process and all that it has started, directly or not."""
    try:
        tasks = list(Path(f"/proc/{process}/task").glob("*/children"))
        children = [child for file in tasks for child in file.read_text("ascii").split()]
    except OSError:  # it has ended
        return {process}
    return {process}.union(*(_tree(int(child)) for child in children))


def _resident_kib(process: int) -> int:
    """Memory of a process; what processes share counts in equal parts."""
    try:
        text = Path(f"/proc/{process}/smaps_rollup").read_text("ascii")
    except OSError:  # it has ended
        return 0
    return next((int(line.split()[1]) for line in text.splitlines() if line.startswith("Pss:")), 0)


def _processor_seconds(process: int) -> float:
    try:
        fields = Path(f"/proc/{process}/stat").read_text("ascii").rpartition(")")[2].split()
    except OSError:  # it has ended
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def main(arguments: Sequence[str] | None = None) -> int:
    """Do one of the two."""
    parser = argparse.ArgumentParser(prog="python -m tests.verify_at_scale", description=__doc__)
    parser.add_argument("step", choices=("fill", "verify", "verify-by-parts"))
    parser.add_argument("--home", type=Path, required=True)
    parser.add_argument("--keys", type=int, default=600_000)
    parser.add_argument("--snapshots", type=int, default=100)
    parser.add_argument("--buckets", type=int, default=16)
    options = parser.parse_args(arguments)
    if options.step != "fill":
        return 0 if verify(options.home, by_parts=options.step == "verify-by-parts").is_clean else 1
    fill(options.home, options.keys, options.snapshots, options.buckets)
    return 0


if __name__ == "__main__":
    sys.exit(main())
