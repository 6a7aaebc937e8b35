"""A shard of metadata on a real database, driven by short words, whose snapshots can be compared."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from random import Random

from schemas.codec import codec
from schemas.records import (
    BucketLayout,
    CaptureSnapshot,
    CreateBucket,
    CreateVolume,
    DeleteDirectory,
    DeleteKey,
    MakeDirectory,
    MetadataCommand,
    PutKey,
    RenameDirectory,
    RenameKey,
)
from schemas.topics import METADATA_COMMANDS
from services.client.plane import NamespaceCommand
from services.domain.snapshot_diff import DiffEntry
from services.log.clock import VirtualClock
from services.log.memory import MemoryLog
from services.metadata.diffs.differences import compare_all, opened_states
from services.metadata.reads.queries import get_bucket
from services.metadata.service import MetadataService
from services.metadata.state.tables import CHECKPOINTED
from services.runtime.loop.runner import RUNTIME_TABLES, Runner
from services.storage.rocks import RocksStore
from services.storage.rocks_options import RocksOptions
from services.storage.tables import TablesReader
from streaming.diff.rows import ComparedBucket


class DiffedShard:
    """One bucket ``vol/bucket`` and its snapshots."""

    def __init__(self, directory: Path, layout: BucketLayout, options: RocksOptions | None = None) -> None:
        clock = VirtualClock()
        self.log = MemoryLog(clock)
        tables = (*MetadataService.tables, *RUNTIME_TABLES)
        self.store = RocksStore(directory / "db", tables, CHECKPOINTED, options)
        self.runner = Runner(MetadataService(), 0, self.store, self.log, clock)
        self.number = 0
        self.do(CreateVolume("vol"), CreateBucket("vol", "bucket", layout))

    def do(self, *commands: NamespaceCommand) -> None:
        for command in commands:
            self.number += 1
            self._append(MetadataCommand(0, "me", self.number, command))
        self.step()

    def snapshot(self, snapshot_id: str) -> None:
        self._append(MetadataCommand(0, "", 0, CaptureSnapshot("vol", "bucket", snapshot_id), "snapshots"))
        self.step()

    def _append(self, command: MetadataCommand) -> None:
        encoder = codec(MetadataCommand)
        self.log.append(METADATA_COMMANDS.name, 0, encoder.encode_message(command))

    def step(self) -> None:
        while self.runner.step():
            pass

    def random_steps(self, random: Random, count: int, names: str = "abcd") -> None:
        """Commands of all kinds on few paths; many are refused."""

        def path() -> str:
            return "/".join(random.choices(names, k=random.randrange(1, 4)))

        makers: list[Callable[[], NamespaceCommand]] = [
            lambda: PutKey("vol", "bucket", path(), random.randrange(3)),
            lambda: PutKey("vol", "bucket", path(), random.randrange(3)),
            lambda: DeleteKey("vol", "bucket", path()),
            lambda: RenameKey("vol", "bucket", path(), path()),
            lambda: MakeDirectory("vol", "bucket", path()),
            lambda: DeleteDirectory("vol", "bucket", path()),
            lambda: RenameDirectory("vol", "bucket", path(), path()),
        ]
        self.do(*(random.choice(makers)() for _ in range(count)))

    def compared(self, before: str, after: str) -> ComparedBucket:
        """What the diff job is told of two snapshots."""
        row = get_bucket(TablesReader(self.store), "vol", "bucket")
        directories = self.store.path.parent / "checkpoints"
        return ComparedBucket(
            (str(directories / before), str(directories / after)),
            row.volume,
            row.bucket,
            row.volume_id,
            row.object_id,
            row.layout is BucketLayout.FILE_SYSTEM_OPTIMIZED,
        )

    def expected(self, before: str, after: str) -> list[DiffEntry]:
        """The truth: every row of both is looked at."""
        with opened_states(self.store, "vol", "bucket", before, after) as states:
            return compare_all(states.before, states.after)
