"""Rebuilds a large shard on a real broker and a real disk, and compares it with the one that was lost.

    python -m tests.rebuild_at_scale fill --home DIR --keys 1000000 --snapshots 100
    python -m tests.rebuild_at_scale rebuild --home DIR

``fill`` puts keys, overwrites, deletes and renames some, takes snapshots and drops every tenth of them; metadata
applies it all as it does in its process. ``rebuild`` moves the database away and calls ``deepclean rebuild``.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

from confluent_kafka import Producer

from schemas.codec import codec
from schemas.records import (
    BucketLayout,
    CaptureSnapshot,
    CreateBucket,
    CreateVolume,
    DeleteKey,
    DropSnapshot,
    MetadataCommand,
    PutKey,
    RenameKey,
)
from schemas.topics import METADATA_COMMANDS
from services.cli.main import app
from services.cli.session import Session
from services.log.clock import SystemClock
from services.log.kafka import KafkaLog, producer_configuration
from services.metadata.service import MetadataService
from services.plane.broker.topics import create_plane_topics
from services.plane.stack.plane_lock import log_of_stopped_plane
from services.plane.upkeep.shard_databases import database_directory, new_database
from services.runtime.loop.runner import Runner

CLIENT = "rebuild-at-scale"


def history(keys: int, snapshots: int) -> Iterator[MetadataCommand]:
    """Commands that end with so many live keys and live snapshots, half in a flat bucket and half in a tree."""
    number = 0

    def client(body: object) -> MetadataCommand:
        nonlocal number
        number += 1
        return MetadataCommand(0, CLIENT, number, body, wants_reply=False)  # type: ignore[arg-type]

    yield client(CreateVolume("vol"))
    yield client(CreateBucket("vol", "flat", BucketLayout.OBJECT_STORE))
    yield client(CreateBucket("vol", "tree", BucketLayout.FILE_SYSTEM_OPTIMIZED))
    taken = snapshots + snapshots // 10
    for part in range(taken):
        bucket = ("flat", "tree")[part % 2]
        first, end = keys * part // taken, keys * (part + 1) // taken
        for key in range(first, end):
            yield client(PutKey("vol", bucket, _name(key), 4_096))
        for key in range(first, end, 40):  # again, or gone and back, or elsewhere and back
            yield client(PutKey("vol", bucket, _name(key), 8_192))
            yield client(DeleteKey("vol", bucket, _name(key + 1)))
            yield client(PutKey("vol", bucket, _name(key + 1), 1))
            yield client(RenameKey("vol", bucket, _name(key), f"moved-{key}"))
        yield MetadataCommand(0, "", 0, CaptureSnapshot("vol", bucket, f"snapshot-{part:04}"), "snapshots")
        if part % 11 == 10:
            yield MetadataCommand(0, "", 0, DropSnapshot(f"snapshot-{part - 5:04}"), "snapshots")


def _name(key: int) -> str:
    return f"warehouse/table-{key % 16:02}/part-{key:09}.parquet"


def send(log: KafkaLog, commands: Iterator[MetadataCommand]) -> int:
    """Put commands into the log; says how many."""
    producer = Producer(producer_configuration(log.bootstrap_servers, CLIENT))
    encoder = codec(MetadataCommand)
    count = 0
    for count, command in enumerate(commands, start=1):  # noqa: B007  used behind the loop
        value = encoder.encode_message(command)
        while True:
            try:
                producer.produce(METADATA_COMMANDS.name, value, partition=0)
                break
            except BufferError:
                producer.poll(0.1)
    if producer.flush(120):
        raise SystemExit("the broker did not take the commands in time")
    return count


def fill(home: Path, keys: int, snapshots: int) -> None:
    """Make a log, and the database that metadata makes of it."""
    with log_of_stopped_plane(home) as log:
        create_plane_topics(log.bootstrap_servers, 1)
        started = time.monotonic()
        count = send(log, history(keys, snapshots))
        print(f"{count:,} commands in the log after {time.monotonic() - started:.1f} s", flush=True)
        started = time.monotonic()
        store = new_database(database_directory(home, "metadata", 0), "metadata")
        service = MetadataService()
        after_write = partial(service.remove_unneeded, store)
        runner = Runner(service, 0, store, log, SystemClock(), after_write=after_write)
        while runner.positions()[METADATA_COMMANDS.name] < count:
            runner.step(1.0)
        runner.close()
        checkpoints, size_bytes = store.checkpoint_sizes()
        print(f"applied in {time.monotonic() - started:.1f} s; {checkpoints} checkpoints keep {size_bytes:,} bytes")
        store.close()


def rebuild(home: Path) -> None:
    """Lose the database, make it again in batches of another size, and compare."""
    lost, directory = home / "lost", database_directory(home, "metadata", 0)
    directory.rename(lost)
    arguments = ["rebuild", "0", "--compare-with", str(lost), "--max-batch-messages", "777"]
    app(arguments, obj=Session(home), standalone_mode=True)


def main(arguments: Sequence[str] | None = None) -> int:
    """Do one of the two."""
    parser = argparse.ArgumentParser(prog="python -m tests.rebuild_at_scale", description=__doc__)
    parser.add_argument("step", choices=("fill", "rebuild"))
    parser.add_argument("--home", type=Path, required=True)
    parser.add_argument("--keys", type=int, default=1_000_000)
    parser.add_argument("--snapshots", type=int, default=100)
    options = parser.parse_args(arguments)
    if options.step == "fill":
        fill(options.home, options.keys, options.snapshots)
    else:
        rebuild(options.home)
    return 0


if __name__ == "__main__":
    sys.exit(main())
