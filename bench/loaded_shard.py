"""Runs metadata's own loop with a database on disk and a log in memory, so that a shard is filled quickly.

Its writes are as durable as in production (write-ahead log, synced). Kafka and all other services are left out: rows
about metadata's own tables and rules would otherwise wait for a broker ten million times.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from io import RawIOBase
from itertools import islice
from pathlib import Path
from typing import Any, cast

from bench.bulk import VOLUME, CommandMaker, made_places
from bench.passing_log import PassingLog
from schemas.codec import codec
from schemas.records import BucketLayout, CaptureSnapshot, DropSnapshot, MetadataCommand, MetadataReply
from schemas.topics import METADATA_COMMANDS, METADATA_REPLIES, Topic
from services.client.plane import NamespaceCommand
from services.log.clock import Clock, VirtualClock
from services.metadata.service import MetadataService
from services.metadata.state.tables import CHECKPOINTED
from services.runtime.loop.runner import RUNTIME_TABLES, Runner
from services.storage.rocks import RocksStore
from services.storage.rocks_options import RocksOptions
from services.storage.tables import TablesReader

COMMANDS_AT_ONCE = 20_000
READ_BYTES = 1 << 20


@dataclass(slots=True)
class LoadedShard:
    """One shard of metadata in this process. Its published messages are kept until the next step.

    It does its look-ups in the calling thread, so that this thread's processor time is the whole cost.
    """

    directory: Path
    clock: Clock = field(default_factory=VirtualClock)
    """The time of the commands."""
    store: RocksStore = field(init=False)
    _service: MetadataService = field(init=False, default_factory=MetadataService)
    _log: PassingLog = field(init=False)
    _runner: Runner = field(init=False)
    _maker: CommandMaker = field(init=False, default_factory=CommandMaker)

    def __post_init__(self) -> None:
        self._log = PassingLog(METADATA_COMMANDS.name, 0, self.clock)
        tables, options = (*MetadataService.tables, *RUNTIME_TABLES), RocksOptions(is_looking_up_beside=False)
        self.store = RocksStore(self.directory / "db", tables, CHECKPOINTED, options)
        after_write = partial(self._service.remove_unneeded, self.store)
        self._runner = Runner(self._service, 0, self.store, self._log, self.clock, after_write=after_write)

    @property
    def tables(self) -> TablesReader:
        """Return a reader of the written tables."""
        return TablesReader(self.store)

    def make_bucket(self, bucket: str, layout: BucketLayout) -> None:
        """Make a bucket, and the volume of the measurements unless it exists."""
        self.apply(iter(made_places({bucket: layout})))

    def load(self, commands: Iterator[NamespaceCommand]) -> Iterator[int]:
        """Apply very many commands; yield from time to time how many are done."""
        done = 0
        while chunk := list(islice(commands, COMMANDS_AT_ONCE)):
            self.apply(iter(chunk))
            done += len(chunk)
            yield done

    def apply(self, commands: Iterator[NamespaceCommand]) -> None:
        """Apply commands of a client."""
        self.append(commands)
        self.step()

    def append(self, commands: Iterator[NamespaceCommand]) -> None:
        """Append commands of a client to the log, so that a timed ``step`` does nothing but apply them."""
        for body in self._maker.encoded(commands):
            self._log.append(body)

    def answer(self, command: NamespaceCommand) -> MetadataReply:
        """Apply a command of a client, and return the reply."""
        self._log.append(self._maker.asking(command))
        self.step()
        (reply,) = self.said(METADATA_REPLIES)
        return cast(MetadataReply, reply)

    def append_from(self, sender: str, bodies: Sequence[Any]) -> None:
        """Append commands of a service to the log."""
        encoder = codec(MetadataCommand)
        for body in bodies:
            command = MetadataCommand(0, "", 0, body, sender, wants_reply=False)
            self._log.append(encoder.encode_message(command))

    def snapshot(self, snapshot_id: str, bucket: str) -> None:
        """Create a snapshot."""
        self.append_from("snapshots", [CaptureSnapshot(VOLUME, bucket, snapshot_id)])
        self.step()

    def drop(self, snapshot_id: str) -> None:
        """Drop a snapshot."""
        self.append_from("snapshots", [DropSnapshot(snapshot_id)])
        self.step()

    def step(self) -> None:
        """Apply all messages in the log; discard the messages that earlier steps have published."""
        self._log.said.partitions.clear()
        while self._runner.step():
            pass

    def read_files(self) -> None:
        """Read the database's files once, so that the machine has them in memory."""
        for file in self._open_files():
            while file.read(READ_BYTES):
                pass

    def forget_files(self) -> None:
        """Drop the database's files from the machine's memory: a miss in RocksDB's own cache then reads the disk.

        A file system without a disk (tmpfs) keeps the files; other file systems keep bytes that are not synced yet.
        """
        for file in self._open_files():
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)

    def _open_files(self) -> Iterator[RawIOBase]:
        """Yield its open SST files, without those that compaction removes meanwhile."""
        for path in sorted((self.directory / "db").glob("*.sst")):
            with contextlib.suppress(FileNotFoundError), path.open("rb", buffering=0) as file:
                yield file

    def said(self, topic: Topic) -> Iterator[Any]:
        """Yield the messages that the last step has published on a topic."""
        for record in self._log.said.records(topic.name, 0):
            yield codec(topic.record).decode_message(record.value)

    def close(self) -> None:
        """Close the database."""
        self._runner.close()
        self.store.close()
