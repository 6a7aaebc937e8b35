"""Rebuild a shard of metadata from the log, and compare its digest with the lost database and the backups."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from schemas.topics import METADATA_COMMANDS
from services.log.kafka import KafkaLog
from services.metadata.recovery.digest import digest_shard
from services.metadata.recovery.rebuild import Rebuild
from services.metadata.recovery.start import FOLLOWED
from services.plane.machine.errors import StackError
from services.plane.stack.plane_file import read_plane_file, running_plane
from services.plane.stack.process_names import METADATA
from services.plane.upkeep.backups import copy_of_running, listed_backups
from services.plane.upkeep.shard_databases import (
    database_directory,
    new_database,
    open_copy,
    open_database,
    positions_of,
)
from services.storage.digest import ShardDigest
from services.storage.rocks_backups import has_database

Report = Callable[[str], None]
"""Called with one line for each comparison."""
Progress = Callable[[], AbstractContextManager[Callable[[int, int], None]]]
"""Opened while commands are applied; yields a function of the next command's offset and the offset to reach."""


@dataclass(frozen=True, slots=True)
class PlacedDigest:
    """A digest, and the position in the log at which it was computed."""

    digest: ShardDigest
    topic_id: str
    next_offset: int

    @classmethod
    def of(cls, store: Any) -> PlacedDigest:
        """Return the digest and position of a database or a copy."""
        position = positions_of(store, METADATA).get(METADATA_COMMANDS.name)
        return cls(digest_shard(store), position.topic_id if position else "", position.next_offset if position else 0)


@contextmanager
def readable_metadata(home: Path, shard: int, directory: Path | None = None) -> Iterator[Any]:
    """Open the database of a shard of metadata: a copy if the plane runs, else the database itself."""
    plane = read_plane_file(home)
    if directory is None and plane is not None and plane.is_up():
        with (
            copy_of_running(running_plane(home), METADATA, shard, f"digest-{time.time_ns()}") as made,
            closing(open_copy(made, METADATA)) as copy,
        ):
            yield copy
        return
    with closing(open_database(directory or database_directory(home, METADATA, shard), METADATA)) as store:
        yield store


@dataclass(frozen=True, slots=True)
class Expected:
    """A database that the rebuilt database must equal at the offset where the former ended."""

    name: str
    offset: int
    digest: ShardDigest
    is_required: bool
    """Whether the operator named this database. Then the rebuild fails if it cannot be compared."""


@dataclass(frozen=True, slots=True)
class RebuildRun:
    """A rebuild in progress. Call ``apply_and_compare``, then ``send``."""

    rebuild: Rebuild
    store: Any
    expected: list[Expected]
    published_below: int
    """The log has all that commands below this offset have caused."""

    def apply_and_compare(self, report: Report, progress: Progress) -> PlacedDigest:
        """Apply the whole log, compare at each expected offset, and return the digest of the new database.

        Raises:
            StackError: the new database differs from an expected one, or cannot be compared with the lost one.
            PositionError: the log no longer holds the required commands.
        """
        first, end = self.rebuild.position, self.rebuild.end
        applying_seconds, found = 0.0, None
        for one in self.expected:
            if not first <= one.offset <= end:
                _cannot_compare(one, first, end, report)
                continue
            applying_seconds += self._apply_below(one.offset, progress)
            found = PlacedDigest.of(self.store)
            if differing := found.digest.differences(one.digest):
                raise StackError(
                    f"The rebuilt database differs from {one.name} at offset {one.offset} "
                    f"({', '.join(differing[:5])}): keep both, start neither, and report it."
                )
            report(f"Equal to {one.name} at offset {one.offset}: {one.digest.digest}")
        applying_seconds += self._apply_below(end, progress)
        report(f"Commands {first:,} to {end:,} applied in {applying_seconds:.1f} s.")
        placed = found if found and found.next_offset == end else PlacedDigest.of(self.store)
        self.rebuild.check()
        for one in self.expected:
            if one.digest.txn > placed.digest.txn:
                raise StackError(
                    f"{one.name} is at txn {one.digest.txn}, and with all that {METADATA_COMMANDS.name} holds the "
                    f"database comes to {placed.digest.txn}: {_why_outside(end + 1, end)}."
                )
        return placed

    def send(self) -> int:
        """Publish messages that may not have been sent and return their number. Raise PositionError on a silent log."""
        return self.rebuild.send()

    def _apply_below(self, offset: int, progress: Progress) -> float:
        """Apply the commands below an offset; return the elapsed seconds."""
        started = time.monotonic()
        with progress() as report_progress:
            while (position := self.rebuild.position) < offset:
                report_progress(position, offset)
                self.rebuild.step(offset)
        return time.monotonic() - started


@contextmanager
def rebuilding(
    home: Path,
    shard: int,
    log: KafkaLog,
    *,
    lost: Path | None,
    backups: Path,
    resumes: bool,
    sends_all: bool,
    max_batch_messages: int,
) -> Iterator[RebuildRun]:
    """Open a rebuild of a shard of metadata in the database directory of the shard.

    ``lost`` is the lost database, moved away. Backups of this log in ``backups`` are compared, too. ``resumes`` allows
    to continue with an existing database, which was restored or partly rebuilt. ``sends_all`` publishes every message
    again, including those that were certainly sent.

    Raises:
        StackError: a database exists already, or the lost database has read another log.
    """
    target = database_directory(home, METADATA, shard)
    if has_database(target) and not resumes:
        raise StackError(
            f"{target} holds a database: move it away and name it with --compare-with, or --go-on with it."
        )
    expected = _expected(log, lost, backups, shard)
    published = 0 if sends_all else FOLLOWED.published_below(log, shard)
    with (
        closing(new_database(target, METADATA)) as store,
        closing(Rebuild(shard, store, log, published_below=published, max_batch_messages=max_batch_messages)) as run,
    ):
        yield RebuildRun(run, store, expected, published)


def _expected(log: KafkaLog, lost: Path | None, backups: Path, shard: int) -> list[Expected]:
    """Return the lost database and the backups of this log, ordered by offset."""
    topic = METADATA_COMMANDS.name
    topic_id = log.topic_ids([topic])[topic]
    found = []
    for one in [found.backup for found in listed_backups(backups)] if backups.exists() else ():
        copy = one.copy_of(METADATA, shard)
        position = copy.position(topic) if copy else None
        if copy and copy.digest and position and position.topic_id == topic_id:
            found.append(Expected(f"backup {one.name}", position.next_offset, copy.digest, is_required=False))
    if lost is not None:
        with closing(open_database(lost, METADATA)) as store:
            placed = PlacedDigest.of(store)
        if placed.topic_id != topic_id:
            raise StackError(f"{lost} has read another {topic} than this broker holds: compare with one of this log.")
        found.append(Expected(str(lost), placed.next_offset, placed.digest, is_required=True))
    return sorted(found, key=lambda one: one.offset)


def _cannot_compare(one: Expected, first: int, end: int, report: Report) -> None:
    if one.is_required:
        raise StackError(
            f"{one.name} is at offset {one.offset} of {METADATA_COMMANDS.name}, outside of {first} to {end}, so "
            f"nothing can be compared: {_why_outside(one.offset, end)}."
        )
    report(f"Not compared with {one.name}: it is at offset {one.offset}, outside of {first} to {end}.")


def _why_outside(offset: int, end: int) -> str:
    if offset > end:
        return (
            "the broker has lost its tail; restore the log, or put that database or a later backup in place "
            "and accept the loss (deepclean accept-lost-tail)"
        )
    return "the database with which --go-on continues is newer; leave --compare-with out"
