"""An audit of many keys beside a running writer: ``python -m tests.audit_at_scale --keys 1000000``.

A real plane is filled, ten losses and ten orphans are planted through the block store's own topic, and while a writer
puts, overwrites, deletes and takes and drops snapshots, the audit has to find them, and nothing else.
"""

from __future__ import annotations

import argparse
import itertools
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random

from confluent_kafka import Producer

from schemas.audit_report import FindingKind
from schemas.codec import codec
from schemas.records import (
    BlockRun,
    BlocksWritten,
    BucketLayout,
    CreateBucket,
    CreateSnapshot,
    CreateVolume,
    DeleteBlocks,
    DeleteDirectory,
    DeleteKey,
    DeleteSnapshot,
    PutKey,
    RenameDirectory,
    ScmCommand,
    Settle,
)
from schemas.topics import SCM_COMMANDS
from services.client.kafka_plane import KafkaPlane
from services.client.plane import NamespaceCommand
from services.domain.row_columns import BlockGroup
from services.domain.table_keys import local_id
from services.plane.stack.stack import Stack
from services.plane.upkeep.audits import Auditor, FinishedAudit
from tests.block_groups import groups_by_columns

VOLUME, BUCKET, SHARD = "scale", "keys", 0
KEYS_PER_DIRECTORY = 1_000
PLANTED = 10
SNAPSHOTS = 3
SIZE_BYTES = 4_096
NO_TASK = 1 << 60
"""A task that key_deletion never has: it ignores what the block store answers."""


@dataclass(frozen=True, slots=True)
class Planted:
    """What an audit has to find."""

    lost: frozenset[int]
    orphaned: frozenset[int]
    """First local ids."""


def execute(plane: KafkaPlane, *commands: NamespaceCommand) -> list[tuple[int, BlockRun | None]]:
    """Carry commands out; their txns, and the blocks of those that are puts."""
    replies = [plane.answer(SHARD, number) for number in [plane.submit(SHARD, command) for command in commands]]
    assert not [reply.error for reply in replies if reply.error], [reply for reply in replies if reply.error][:1]
    return [(reply.txn, reply.committed.blocks if reply.committed else None) for reply in replies]


def fill(plane: KafkaPlane, keys: int) -> None:
    """Make a tree of so many keys, with snapshots along the way and deletions between them."""
    execute(plane, CreateVolume(VOLUME), CreateBucket(VOLUME, BUCKET, BucketLayout.FILE_SYSTEM_OPTIMIZED))
    per_snapshot = max(1, keys // SNAPSHOTS)
    for start in range(0, keys, 10_000):
        numbers = range(start, min(start + 10_000, keys))
        execute(plane, *(PutKey(VOLUME, BUCKET, path_of(number), SIZE_BYTES) for number in numbers))
        if start // per_snapshot != (start + 10_000) // per_snapshot:
            assert not plane.request(SHARD, CreateSnapshot(VOLUME, BUCKET, f"fill-{start}")).error
            execute(plane, *(PutKey(VOLUME, BUCKET, path_of(number), SIZE_BYTES) for number in numbers[:2_000:4]))


def path_of(number: int) -> str:
    return f"{number // KEYS_PER_DIRECTORY}/{number}"


def plant(plane: KafkaPlane) -> Planted:
    """Have the block store delete what is needed, and take in what nobody has written, by its own topic."""
    kept = execute(plane, *(PutKey(VOLUME, BUCKET, f"planted/lost-{number}", SIZE_BYTES) for number in range(PLANTED)))
    lost = [blocks for _, blocks in kept if blocks is not None]
    bucket_id = plane.metadata(SHARD).bucket(VOLUME, BUCKET).object_id
    execute(plane, *(PutKey(VOLUME, BUCKET, f"planted/gone-{number}", 0) for number in range(PLANTED)))
    deaths = execute(plane, *(DeleteKey(VOLUME, BUCKET, f"planted/gone-{number}") for number in range(PLANTED)))
    # A txn that has written no blocks, later than all that have: its ids are above the block store's mark.
    orphans = [local_id(SHARD, txn, 0) for txn, _ in deaths]
    groups = groups_by_columns(BlockGroup(bucket_id, 1, 1, 2, blocks) for blocks in lost)
    ones = (1,) * PLANTED
    written = BlocksWritten(
        bucket_id, 0, tuple(orphans), ones, (SIZE_BYTES,) * PLANTED, tuple(100 + number for number in range(PLANTED))
    )
    producer = Producer({"bootstrap.servers": plane.address.bootstrap_servers})
    encoder = codec(ScmCommand)
    for body in (written, DeleteBlocks(NO_TASK, 1, groups)):
        producer.produce(SCM_COMMANDS.name, encoder.encode_message(ScmCommand(body)), partition=SHARD)
    assert not producer.flush(30)
    producer.close()
    plane.request(SHARD, Settle("planted"))
    assert plane.scm(SHARD).exist(lost) == [False] * PLANTED
    return Planted(frozenset(run.first_local_id for run in lost), frozenset(orphans))


SNAPSHOTS_BEFORE = 2
"""So many has the writer taken when the audit begins."""


@contextmanager
def writing(stack: Stack, keys: int) -> Iterator[list[int]]:
    """A client that goes on with everything there is; the list has how many of its commands were answered, and how
    many snapshots it has taken.
    """
    stop, answered, failures = threading.Event(), [0, 0], list[BaseException]()

    def write() -> None:
        random, names = Random(1), itertools.count()
        created: list[str] = []
        with stack.client() as plane:
            while not stop.is_set():
                number = next(names)
                commands: list[NamespaceCommand] = [
                    *(PutKey(VOLUME, BUCKET, path_of(random.randrange(keys)), SIZE_BYTES) for _ in range(50)),
                    *(PutKey(VOLUME, BUCKET, f"fresh-{number}/{key}", SIZE_BYTES) for key in range(50)),
                    RenameDirectory(VOLUME, BUCKET, f"fresh-{number}", f"moved-{number}"),
                    *(DeleteKey(VOLUME, BUCKET, f"moved-{number}/{key}") for key in range(20)),
                    *([DeleteDirectory(VOLUME, BUCKET, f"moved-{number - 3}")] if number >= 3 else []),
                ]
                answered[0] += len(execute(plane, *commands))
                if number % 5 == 0:
                    created.append(f"beside-{number}")
                    plane.request(SHARD, CreateSnapshot(VOLUME, BUCKET, created[-1]))
                    answered[1] += 1
                if len(created) > 2:
                    plane.request(SHARD, DeleteSnapshot(VOLUME, BUCKET, created.pop(0)))

    def run() -> None:
        try:
            write()
        except BaseException as error:  # told by the thread that waits
            failures.append(error)
            answered[1] = SNAPSHOTS_BEFORE  # nobody waits for it any more

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield answered
    finally:
        stop.set()
        thread.join()
    assert not failures, failures


def audit_beside_a_writer(stack: Stack, keys: int, home: Path) -> tuple[FinishedAudit, Planted, int]:
    """Fill, plant, and audit while a writer goes on; says how many commands were answered meanwhile."""
    with stack.client() as plane:
        fill(plane, keys)
        planted = plant(plane)
    with writing(stack, keys) as answered:
        pause = threading.Event()
        while answered[1] < SNAPSHOTS_BEFORE:
            pause.wait(0.01)
        before = answered[0]
        finished = Auditor(stack.address, home).audit(SHARD, "", lambda _percent, _doing: None)
        return finished, planted, answered[0] - before


def check(finished: FinishedAudit, planted: Planted) -> None:
    """What was planted was found, and nothing else."""
    report = finished.report
    assert {one.first_local_id for one in report.examples if one.kind is FindingKind.DANGLING} == planted.lost
    assert {one.first_local_id for one in report.examples if one.kind is FindingKind.ORPHANED} == planted.orphaned
    assert {kind: amount.versions for kind, amount in report.findings.items()} == {
        FindingKind.DANGLING: PLANTED,
        FindingKind.ORPHANED: PLANTED,
    }, report.examples
    assert report.difference_count == 0, report.differences


def main() -> int:
    """Run it once, and print the figures."""
    parser = argparse.ArgumentParser(prog="python -m tests.audit_at_scale", description=__doc__)
    parser.add_argument("--keys", type=int, default=1_000_000)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="deepclean-audit-") as directory, Stack(Path(directory)) as stack:
        started = time.perf_counter()
        finished, planted, answered = audit_beside_a_writer(stack, options.keys, Path(directory))
        report = finished.report
        print(
            f"{options.keys:,} keys, {report.snapshots} live snapshots, {report.inventory.versions:,} runs of blocks: "
            f"audited in {finished.seconds:.1f} s beside a writer with {answered:,} answered commands; "
            f"{report.too_young.versions:,} not judged; all in {time.perf_counter() - started:.0f} s"
        )
        print({kind.value: amount.versions for kind, amount in report.findings.items()}, report.difference_count)
        check(finished, planted)
    return 0


if __name__ == "__main__":
    sys.exit(main())
