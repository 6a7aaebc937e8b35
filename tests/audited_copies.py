"""Copies of a large shard for an audit, without a broker: ``python -m tests.audited_copies DIRECTORY --keys 1000000``.

metadata and the block store run in this process, each on a database of its own. The command writes ``audited.json``,
the input of ``python -m streaming.audit``.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from random import Random
from typing import Any

from bench.bulk import VOLUME
from bench.loaded_shard import LoadedShard
from bench.passing_log import PassingLog
from schemas.codec import codec
from schemas.records import BucketLayout, Committed, DeleteDirectory, DeleteKey, PutKey, RenameDirectory, ScmCommand
from schemas.topics import DEAD_LETTERS, SCM_COMMANDS
from services.client.plane import NamespaceCommand
from services.metadata.recovery.audit_copy import make_copy
from services.mock_scm.service import MockScmService
from services.runtime.loop.runner import RUNTIME_TABLES, Runner
from services.storage.rocks import RocksStore
from streaming.audit.shard import AuditedCopies

BUCKET = "keys"
KEYS_PER_DIRECTORY = 1_000
SIZE_BYTES = 4_096
COMMANDS_AT_ONCE = 10_000
SNAPSHOTS = 4
FIRST_PERCENT = 40
"""Percentage of the keys that are there when the first snapshot is created; with the last one all are."""
CHANGED_PERCENT = 1
"""Percentage of the keys that are overwritten after each snapshot; a fifth as many are deleted."""


class AuditedStores:
    """A shard of metadata and its block store, and the copies that an audit reads."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.metadata = LoadedShard(directory / "metadata")
        self._to_scm = PassingLog(SCM_COMMANDS.name, 0, self.metadata.clock)
        tables = (*MockScmService.tables, *RUNTIME_TABLES)
        self.block_store = RocksStore(directory / "mock_scm" / "db", tables)
        self._scm = Runner(MockScmService(), 0, self.block_store, self._to_scm, self.metadata.clock)

    def do(self, commands: Sequence[Any]) -> None:
        """Apply commands of a client or an operator, and have the block store apply what metadata sends it."""
        for start in range(0, len(commands), COMMANDS_AT_ONCE):
            self.metadata.apply(iter(commands[start : start + COMMANDS_AT_ONCE]))
            assert not list(self.metadata.said(DEAD_LETTERS))
            self.pass_on()

    def answer(self, command: NamespaceCommand) -> Committed:
        """Apply a command of a client, and return its answer."""
        reply = self.metadata.answer(command)
        assert reply.error == "", (command, reply.message)
        self.pass_on()
        return reply.committed or Committed(0)

    def pass_on(self) -> None:
        """Have the block store apply what the last step of metadata has sent."""
        encode = codec(ScmCommand).encode_message
        for command in self.metadata.said(SCM_COMMANDS):
            self._to_scm.append(encode(command))
        while self._scm.step():
            self._to_scm.said.partitions.clear()

    def copies(self, name: str = "copies") -> AuditedCopies:
        """Make the copies in the audit's order."""
        place = self.directory / name
        self.block_store.copy_to(place / "before").close()
        copied = make_copy(self.metadata.store, place)
        self.block_store.copy_to(place / "after").close()
        return AuditedCopies(0, str(place / "before"), copied.directory, copied.snapshots, str(place / "after"))

    def close(self) -> None:
        """Close both databases."""
        self._scm.close()
        self.block_store.close()
        self.metadata.close()


def path_of(number: int) -> str:
    """Return the path of a key."""
    return f"{number // KEYS_PER_DIRECTORY}/{number}"


def changes(random: Random, keys: int, moment: int, changed_percent: float) -> Iterator[NamespaceCommand]:
    """Yield what happens between two snapshots."""
    changed = random.sample(range(keys), int(keys * changed_percent / 100))
    yield from (PutKey(VOLUME, BUCKET, path_of(number), SIZE_BYTES) for number in changed)
    yield from (DeleteKey(VOLUME, BUCKET, path_of(number)) for number in changed[::5])
    directories = keys // KEYS_PER_DIRECTORY
    if directories > 2 * moment + 1:
        yield RenameDirectory(VOLUME, BUCKET, str(2 * moment), f"moved-{moment}")
        yield DeleteDirectory(VOLUME, BUCKET, str(2 * moment + 1))


def fill(
    stores: AuditedStores, keys: int, snapshots: int = SNAPSHOTS, changed_percent: float = CHANGED_PERCENT
) -> Iterator[int]:
    """Write the keys and the snapshots; yield the number of keys so far."""
    random, done = Random(1), 0
    stores.metadata.make_bucket(BUCKET, BucketLayout.FILE_SYSTEM_OPTIMIZED)
    for moment in range(snapshots):
        end = keys * (FIRST_PERCENT + (100 - FIRST_PERCENT) * moment // (snapshots - 1)) // 100
        stores.do([PutKey(VOLUME, BUCKET, path_of(number), SIZE_BYTES) for number in range(done, end)])
        done = end
        stores.metadata.snapshot(f"snapshot-{moment}", BUCKET)
        stores.do(list(changes(random, done, moment, changed_percent)))
        yield done


def main() -> int:
    """Make the copies and the input of the job."""
    parser = argparse.ArgumentParser(prog="python -m tests.audited_copies", description=__doc__)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--keys", type=int, default=1_000_000)
    parser.add_argument("--snapshots", type=int, default=SNAPSHOTS, help="at least 2")
    parser.add_argument(
        "--changed-percent", type=float, default=CHANGED_PERCENT, help="of the keys, overwritten after each snapshot"
    )
    options = parser.parse_args()
    stores = AuditedStores(options.directory)
    for done in fill(stores, options.keys, options.snapshots, options.changed_percent):
        print(f"{done:,} keys", flush=True)
    copies = stores.copies()
    stores.close()
    audited = {"copies": asdict(copies), "output": str(options.directory / "report.json")}
    (options.directory / "audited.json").write_text(json.dumps(audited))
    return 0


if __name__ == "__main__":
    sys.exit(main())
