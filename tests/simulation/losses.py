"""Messages that one reader never sees: a marker of the chain, an answer, a change of the collector."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from schemas import records
from schemas.codec import codec
from schemas.topics import METADATA_PROGRESS, SNAPSHOT_CHAIN
from tests.simulation.run_state import RunState, ShardRun

_ASKED_BY: Mapping[type[Any], str] = {
    records.RowsClaimed: "key_deletion",
    records.RowsFinished: "key_deletion",
    records.SweepPageSent: "key_deletion",
    records.DirectoryExpanded: "directory_deletion",
    records.DirectoriesRemoved: "directory_deletion",
}


class Losses:
    """Hides messages from their readers."""

    def __init__(self, state: RunState) -> None:
        self.state = state

    def hide_marker(self, shard: ShardRun) -> None:
        """The reader that has the hole never sees the newest marker, however often it is sent."""
        markers = self.state.plane.log.records(SNAPSHOT_CHAIN.name, shard.model.shard)
        marker = markers[-1]
        is_repeated = any(earlier.value == marker.value for earlier in markers[:-1])
        if shard.hidden_version or is_repeated or self.state.faults.random.random() < 0.7:
            return
        record = codec(SNAPSHOT_CHAIN.record).decode_message(marker.value)
        shard.hidden_version = record.version
        if self.state.mix.hole == "everyone":
            shard.hidden_version += 1
            noise = codec(SNAPSHOT_CHAIN.record).frame + b"\xff" * 20
            offset = self.state.plane.log.append(SNAPSHOT_CHAIN.name, shard.model.shard, noise)
            self.state.injected.add((SNAPSHOT_CHAIN.name, shard.model.shard, offset))
            return
        self.state.faults.holes.add((self.state.mix.hole, shard.model.shard, SNAPSHOT_CHAIN.name, marker.value))

    def lose_answer(self, shard: ShardRun, offset: int, body: Any) -> None:
        """One answer of metadata never reaches who asked: he has to ask again."""
        asked_by = _ASKED_BY.get(type(body))
        if (
            asked_by is None
            or shard.lost_answers
            or not self.state.faults.are_on
            or self.state.faults.random.random() < 0.8
        ):
            return
        shard.lost_answers += self._hide(shard, asked_by, offset)

    def lose_change(self, shard: ShardRun, offset: int, body: Any) -> None:
        """One service never hears of a change of the collector: metadata has to tell all of it again."""
        if not isinstance(body, records.CollectionChanged) or body.is_whole or self.state.operating.random() < 0.5:
            return
        self.state.lost_changes += self._hide(shard, self.state.loses_change, offset)

    def _hide(self, shard: ShardRun, reader: str, offset: int) -> bool:
        """Hide what metadata told at an offset from a reader, unless he was handed it, or the same, before."""
        place = (reader, shard.model.shard, METADATA_PROGRESS.name)
        records = self.state.plane.log.entries(METADATA_PROGRESS.name, shard.model.shard)
        value = records[offset].value
        if any(one.value == value for one in records[: self.state.faults.seen.get(place, 0)]):
            return False
        self.state.faults.holes.add((*place, value))
        return True
