"""The job of ``deepclean import ozone``: reads the states of an Ozone Manager's buckets, one after the other.

``python -m streaming.lens.ozone.states LOCATION`` prints JSON objects, one a line: which buckets there are, and for
each state the commands that lead to it and its snapshot. It needs no Spark, and ends when its standard input ends.
"""

from __future__ import annotations

import argparse
import sqlite3
import tempfile
from base64 import b64encode
from collections.abc import Iterator, Mapping
from contextlib import closing
from itertools import islice
from pathlib import Path
from typing import Any

from schemas.codec import codec
from schemas.records import BucketLayout, MetadataCommand
from services.domain.errors import DeepcleanError
from services.lens.ozone import tables
from services.lens.ozone.differences import Row, differing_rows
from services.lens.ozone.figures import NOTHING, Amount
from services.lens.ozone.key_rows import blocks_of, sizes_of
from services.lens.ozone.layout import directories_at
from services.lens.ozone.left_out import sentences
from services.lens.ozone.messages import KeyInfo, RepeatedKeyInfo
from services.lens.ozone.tables import end_of
from streaming.lens.ozone.changes import BucketStates, Command
from streaming.lens.ozone.checkpoints import directory_of
from streaming.lens.ozone.plan import HEAD_TABLES, NO_PLACE, BucketPlan, read_chains
from streaming.lens.ozone.stores import ACTIVE_TABLES, OzoneRows, opened
from streaming.lens.ozone.uploads import parts_of
from streaming.spark.child_job import end_with_standard_input, say, saying_errors

COMMANDS_PER_LINE = 500
_OBJECT_STORE = 3
_LAYOUTS = {
    tables.FILE_SYSTEM_OPTIMIZED: BucketLayout.FILE_SYSTEM_OPTIMIZED,
    _OBJECT_STORE: BucketLayout.OBJECT_STORE,
}
"""By Ozone's numbers; a bucket from before there were layouts is a LEGACY one."""
_COMMAND = codec(MetadataCommand)


def main() -> None:
    """Print the states of the database that the command line names."""
    parser = argparse.ArgumentParser("streaming.lens.ozone.states", description=__doc__)
    parser.add_argument("location")
    parser.add_argument("--bucket", default="", metavar="VOLUME/BUCKET", help="this bucket alone")
    parser.add_argument("--volume", default="", help="name of the volume on the plane; by default Ozone's")
    options = parser.parse_args()
    end_with_standard_input()
    with saying_errors(), tempfile.TemporaryDirectory(prefix="deepclean-import-") as scratch:
        try:
            send(options.location, options.bucket, options.volume, Path(scratch))
        except sqlite3.OperationalError as error:
            raise DeepcleanError(
                f"The differences of two states cannot be written ({error}): they need room in the directory for "
                f"temporary files; TMPDIR names another one."
            ) from None


def send(location: str, only_bucket: str, volume: str, scratch: Path) -> None:
    """Say all buckets, and then the states of each.

    Raises:
        OzoneLocationError: a database cannot be read, or the bucket does not exist.
    """
    directories = directories_at(directory_of(location, scratch))
    with opened(directories.active, HEAD_TABLES, scratch) as active:
        plan = read_chains(active, directories, only_bucket)
    targets = [(volume or bucket.keys.volume.decode(), bucket.keys.bucket.decode()) for bucket in plan.buckets]
    say(
        buckets=[
            (*target, _LAYOUTS.get(bucket.layout, BucketLayout.LEGACY))
            for bucket, target in zip(plan.buckets, targets, strict=True)
        ],
        states=sum(len(_state_numbers(bucket)) for bucket in plan.buckets),
        notes=plan.notes,
    )
    for number, (bucket, target) in enumerate(zip(plan.buckets, targets, strict=True)):
        _send_bucket(bucket, target, scratch / f"states-{number}.sqlite")


def _state_numbers(bucket: BucketPlan) -> list[int]:
    """Return the numbers of the stores that are states: those of active snapshots, and the active one."""
    return [
        number for number, store in enumerate(bucket.stores) if store.place != NO_PLACE and store.directory is not None
    ]


def _send_bucket(bucket: BucketPlan, target: tuple[str, str], file: Path) -> None:
    say(bucket=target)
    stores: dict[int, OzoneRows] = {}
    with closing(BucketStates(bucket.keys, target, file)) as states:
        try:
            _send_states(bucket, states, stores, file.parent)
        finally:
            for store in stores.values():
                store.close()
        say(complete=[*_chain_notes(bucket), *sentences(states.sums)])


def _send_states(bucket: BucketPlan, states: BucketStates, stores: dict[int, OzoneRows], scratch: Path) -> None:
    """Say the commands and snapshots; ``stores`` are those that are open, by their numbers."""
    before = -1
    for number in _state_numbers(bucket):
        for one in range(before + 1, number + 1):
            directory = bucket.stores[one].directory
            if directory is not None:
                stores[one] = opened(Path(directory), ACTIVE_TABLES, scratch)
        for some in _commands(bucket, states, stores, before, number):
            say(commands=[b64encode(_COMMAND.encode(MetadataCommand(0, "", 0, one))).decode() for one in some])
        snapshot = bucket.stores[number].snapshot
        if snapshot is not None:
            say(snapshot=snapshot.name, at_ms=snapshot.creation_time_ms or -1)
        before = number
        for one in [one for one in stores if one < number]:
            stores.pop(one).close()
    states.sums["written"] = _being_written(stores[before], bucket)


def _commands(
    bucket: BucketPlan, states: BucketStates, stores: Mapping[int, OzoneRows], before: int, number: int
) -> Iterator[list[Command]]:
    """Yield the commands that lead from one store to another in lists; -1 is the empty state before the first."""
    prefix = bucket.keys.live_prefix
    commands = states.commands_to(
        stores[number].scan(tables.DIRECTORY, prefix, end_of(prefix)) if bucket.keys.is_file_system else (),
        differing_rows(
            _live_rows(stores[before], bucket) if before >= 0 else iter(()), _live_rows(stores[number], bucket)
        ),
        (info for one, store in stores.items() if one > before for info in _deleted(store, bucket)),
    )
    while some := list(islice(commands, COMMANDS_PER_LINE)):
        yield some


def _live_rows(store: OzoneRows, bucket: BucketPlan) -> Iterator[list[Row]]:
    prefix = bucket.keys.live_prefix
    return store.chunks(bucket.keys.key_table, prefix, end_of(prefix))


def _of_bucket(store: OzoneRows, table: str, bucket: BucketPlan) -> Iterator[Row]:
    """Yield the bucket's rows of a table in which some keys have names, and others ids."""
    for prefix in (bucket.keys.by_name, bucket.keys.by_id):
        yield from store.scan(table, prefix, end_of(prefix))


def _deleted(store: OzoneRows, bucket: BucketPlan) -> Iterator[Any]:
    for _, value in _of_bucket(store, tables.DELETED, bucket):
        yield from RepeatedKeyInfo.FromString(value).infos


def _being_written(store: OzoneRows, bucket: BucketPlan) -> Amount:
    """Return what the blocks of open keys and parts of uploads take, without those that their key has already."""
    found = NOTHING
    for table in (tables.OPEN_KEY, tables.OPEN_FILE):
        for key, value in _of_bucket(store, table, bucket):
            row = KeyInfo.FromString(value)
            (live,) = store.get(bucket.keys.key_table, [key.rpartition(b"/")[0]])
            known = blocks_of(KeyInfo.FromString(live).versions) if live else {}
            blocks = blocks_of(row.versions)
            found += Amount(*sizes_of([blocks[one] for one in blocks.keys() - known.keys()], row), rows=1)
    for _, value in _of_bucket(store, tables.MULTIPART, bucket):
        for row in parts_of(value, store):
            found += Amount(*sizes_of(blocks_of(row.versions).values(), row), rows=1)
    return found


def _chain_notes(bucket: BucketPlan) -> Iterator[str]:
    for problem in bucket.chain_problems:
        yield f"The chain of snapshots does not fit: {problem}. The snapshots are imported in the order of the lens."
    for store in bucket.stores:
        if store.snapshot is not None and store.place == NO_PLACE:
            yield f"Snapshot {store.snapshot.name} is left out: it is deleted, and waits to be purged."
        elif store.snapshot is not None and store.directory is None:
            yield f"Snapshot {store.snapshot.name} is left out: its database is missing."


if __name__ == "__main__":
    main()
