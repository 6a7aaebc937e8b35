"""A rebuild: what it sends, what it refuses, and that its digest sees every difference."""

from __future__ import annotations

from pathlib import Path

import pytest

from schemas.codec import codec
from schemas.records import (
    BucketLayout,
    CaptureSnapshot,
    CreateBucket,
    CreateVolume,
    DropSnapshot,
    MetadataCommand,
    PutKey,
)
from schemas.topics import METADATA_COMMANDS, METADATA_PROGRESS, METADATA_REPLIES, SNAPSHOT_CHAIN
from services.domain.errors import InvariantError, PositionError
from services.log.clock import VirtualClock
from services.log.memory import MemoryLog
from services.log.port import LogRecord
from services.log.published import published_below_header
from services.metadata.recovery.digest import digest_shard
from services.metadata.recovery.rebuild import Rebuild
from services.metadata.service import MetadataService
from services.metadata.state.tables import CHECKPOINTED
from services.runtime.loop.runner import RUNTIME_TABLES, Runner
from services.storage.memory import MemoryStore
from services.storage.rocks import RocksStore
from services.storage.rocks_backups import RocksCopy
from tests.shard_copies import rebuilt_digest, same_commands


class Shard:
    """Metadata with a bucket, keys and snapshots, and the log that made it so."""

    def __init__(self) -> None:
        self.log = MemoryLog(VirtualClock())
        self.store = MemoryStore(CHECKPOINTED)
        self.runner = Runner(MetadataService(), 0, self.store, self.log, self.log.clock)
        self.number = 0
        self.send(CreateVolume("vol"), CreateBucket("vol", "bucket", BucketLayout.OBJECT_STORE))
        for number in range(4):
            self.put(f"k{number}", f"k{number % 2}")
            self.send(CaptureSnapshot("vol", "bucket", f"s{number}"))
        self.send(DropSnapshot("s1"))
        self.put("last")

    def put(self, *names: str) -> None:
        self.send(*(PutKey("vol", "bucket", name, 5) for name in names))

    def send(self, *bodies: object) -> None:
        for body in bodies:
            is_internal = isinstance(body, CaptureSnapshot | DropSnapshot)
            self.number += not is_internal
            command = MetadataCommand(
                *(0, "" if is_internal else "me", 0 if is_internal else self.number, body),  # type: ignore[arg-type]
                sender="snapshots" if is_internal else "",
            )
            encoder = codec(MetadataCommand)
            self.log.append(METADATA_COMMANDS.name, 0, encoder.encode_message(command))
            self.runner.step()


@pytest.fixture
def shard() -> Shard:
    return Shard()


def test_what_was_published_is_not_sent_again(shard: Shard) -> None:
    end = shard.log.end_offset(METADATA_COMMANDS.name, 0)
    for below in (0, end // 2, end):
        log = same_commands(shard.log)
        rebuild = Rebuild(0, MemoryStore(CHECKPOINTED), log, published_below=below, max_batch_messages=1)
        rebuild.run_to(rebuild.end)
        assert not any(name != METADATA_COMMANDS.name for name, _ in log.partitions), "nothing before it is compared"
        rebuild.send()
        for topic in (METADATA_REPLIES.name, METADATA_PROGRESS.name, SNAPSHOT_CHAIN.name):
            assert values(log, topic) == [
                record.value for record in shard.log.records(topic, 0) if offset_that_caused(shard, record) >= below
            ]


def offset_that_caused(shard: Shard, record: LogRecord) -> int:
    """The offset of the command of a message: each command is a unit of work here, which says where it begins."""
    (header,) = record.headers or published_below_header(0)
    return int(header[1] or b"0")


def values(log: MemoryLog, topic: str) -> list[bytes]:
    return [record.value for record in log.records(topic, 0)]


def test_a_rebuild_can_stop_at_an_offset_and_go_on(shard: Shard) -> None:
    store = MemoryStore(CHECKPOINTED)
    rebuild = Rebuild(0, store, same_commands(shard.log), max_batch_messages=4)
    for offset in range(rebuild.end + 1):
        rebuild.run_to(offset)
        assert rebuild.position == offset
        assert digest_shard(store) == rebuilt_digest(shard.log, 100, end=offset)
    assert digest_shard(store) == digest_shard(shard.store)


def test_a_trimmed_log_asks_for_a_backup(shard: Shard) -> None:
    copy, position = shard.store.clone(), shard.runner.positions()[METADATA_COMMANDS.name]
    shard.put("more")
    shard.log.trim(METADATA_COMMANDS.name, 0, position)
    with pytest.raises(
        PositionError, match=r"begins at offset \d+, .*\(deepclean restore-backup\); then rebuild the rest"
    ):
        Rebuild(0, MemoryStore(CHECKPOINTED), shard.log)
    rebuild = Rebuild(0, copy, shard.log)
    rebuild.run_to(rebuild.end)
    assert digest_shard(copy) == digest_shard(shard.store)


ROW = b"\x01ow"
"""Any row of the first version of its schema."""


@pytest.mark.parametrize("family", sorted(table.name for table in MetadataService.tables))
def test_the_digest_sees_a_row_of_any_table(shard: Shard, family: str) -> None:
    before = digest_shard(shard.store)
    shard.store.write({family: {b"/vol/bucket/zzz": ROW} if family == "keyTable" else {b"zzz": ROW}})
    after = digest_shard(shard.store)
    assert after.differences(before) == [family]
    assert after.digest != before.digest


def test_the_digest_sees_a_row_of_a_checkpoint(shard: Shard) -> None:
    before = digest_shard(shard.store)
    shard.store._checkpoints["s3"]["keyTable"].put(b"/vol/bucket/zzz", ROW)
    assert digest_shard(shard.store).differences(before) == ["checkpoint s3"]
    shard.store.remove_checkpoint("s3")
    with pytest.raises(InvariantError, match="s3 is live but has no checkpoint"):
        digest_shard(shard.store)


def test_a_rebuild_on_disk_and_a_copy_of_it_have_the_same_digest(shard: Shard, tmp_path: Path) -> None:
    families = (*MetadataService.tables, *RUNTIME_TABLES)
    store = RocksStore(tmp_path / "shard" / "db", families, CHECKPOINTED)
    rebuild = Rebuild(0, store, same_commands(shard.log), max_batch_messages=3)
    rebuild.run_to(rebuild.end)
    store.back_up_to(tmp_path / "copy")
    found = digest_shard(store)
    assert found.digest == digest_shard(shard.store).digest
    store.write({"keyTable": {b"/vol/bucket/zzz": b"row"}})
    store.remove_checkpoint("s3")
    copy = RocksCopy(tmp_path / "copy", families, CHECKPOINTED)
    assert digest_shard(copy) == found
    copy.close()
    rebuild.close()
    store.close()


def test_a_log_that_gives_nothing_ends_in_a_sentence(shard: Shard) -> None:
    rebuild = Rebuild(0, MemoryStore(CHECKPOINTED), same_commands(shard.log))
    rebuild.run_to(rebuild.end)
    with pytest.raises(PositionError, match=r"cannot be read \(no answer from the log\).*\(--go-on\)"):
        rebuild.run_to(rebuild.end + 1)
