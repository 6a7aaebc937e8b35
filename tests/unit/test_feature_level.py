"""The feature level of a shard: it is raised on purpose, never lowered, and unknown ones are refused."""

from __future__ import annotations

from typing import Any

import pytest

from schemas import records
from schemas.feature_level import FEATURE_LEVEL, confirmation
from schemas.records import MetadataCommand, MetadataProgress, SetFeatureLevel, ShardState
from schemas.topics import DEAD_LETTERS, METADATA_PROGRESS
from services.directory_deletion.service import DirectoryDeletionService
from services.domain.errors import InvalidMessageError, InvariantError
from services.key_deletion.service import KeyDeletionService
from services.metadata.reads.queries import shard_state
from services.metadata.state import upgrades
from services.runtime.loop.service import Message, Work
from services.snapshots.service import SnapshotsService
from services.storage.memory import MemoryStore
from services.storage.tables import RowCache, TablesReader
from tests.unit.test_metadata import Shard

NEWER = FEATURE_LEVEL + 1


def send(shard: Shard, level: int, said: str, sender: str = "") -> None:
    shard.send(MetadataCommand(0, "", 0, SetFeatureLevel(level, said), sender, wants_reply=False))
    shard.runner.step()


def state_of(shard: Shard) -> ShardState:
    return shard_state(TablesReader(shard.store))


@pytest.fixture
def knows_newer(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """metadata is of the newer program."""
    monkeypatch.setattr(upgrades, "FEATURE_LEVEL", NEWER)
    return monkeypatch


def test_a_new_shard_has_the_first_level_and_says_so() -> None:
    shard = Shard()
    shard.internal(records.CaptureSnapshot("vol", "flat", "s1"))
    assert state_of(shard).feature_level == 1
    assert [progress.feature_level for progress in shard.sent(METADATA_PROGRESS)] == [1]


@pytest.mark.parametrize(
    ("level", "said", "sender"),
    [
        (1, "", ""),
        (NEWER, confirmation(1), ""),
        (0, confirmation(0), ""),
        (1, confirmation(1), "key_deletion"),
    ],
)
def test_what_is_not_meant_is_dead_lettered(level: int, said: str, sender: str) -> None:
    shard = Shard()
    send(shard, level, said, sender)
    assert [letter.error for letter in shard.sent(DEAD_LETTERS)] == ["InvalidMessageError"]
    assert state_of(shard).feature_level == 1


def test_a_level_that_is_raised_stays_and_is_in_all_progress(knows_newer: pytest.MonkeyPatch) -> None:
    shard = Shard()
    send(shard, NEWER, confirmation(NEWER))
    send(shard, NEWER, confirmation(NEWER))
    assert not shard.sent(DEAD_LETTERS)
    shard.start()
    shard.internal(records.CaptureSnapshot("vol", "flat", "s1"))
    assert state_of(shard).feature_level == NEWER
    assert [progress.feature_level for progress in shard.sent(METADATA_PROGRESS)] == [NEWER]
    send(shard, 1, confirmation(1))
    assert len(shard.sent(DEAD_LETTERS)) == 1


def test_an_older_program_stops_at_the_command_and_does_not_start_behind_it(knows_newer: pytest.MonkeyPatch) -> None:
    shard = Shard()
    with knows_newer.context() as older:
        older.setattr(upgrades, "FEATURE_LEVEL", FEATURE_LEVEL)
        with pytest.raises(
            InvariantError, match=f"level {NEWER} is final here, and this program knows levels up to {FEATURE_LEVEL}"
        ):
            send(shard, NEWER, confirmation(NEWER))
    shard.start()
    shard.runner.step()
    assert state_of(shard).feature_level == NEWER, "the newer program goes on at the same command"
    knows_newer.setattr(upgrades, "FEATURE_LEVEL", FEATURE_LEVEL)
    with pytest.raises(InvariantError, match="start the newer deepclean"):
        shard.start()


@pytest.mark.parametrize("service_class", [SnapshotsService, KeyDeletionService, DirectoryDeletionService])
def test_services_put_progress_of_a_level_aside_that_they_do_not_know(service_class: Any) -> None:
    progress = MetadataProgress(7, records.RowsFinished(1), NEWER)
    service, store = service_class(), MemoryStore()
    service.restore(TablesReader(store))
    message = Message(METADATA_PROGRESS, 0, 1, progress, b"")
    with pytest.raises(InvalidMessageError, match="start the newer deepclean"):
        service.apply(message, Work(0, store, RowCache()))
