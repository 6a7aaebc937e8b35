"""What a metadata that was started from an older copy says again: nothing new."""

from __future__ import annotations

from typing import Any

from schemas import records
from schemas.codec import DecodeError, codec
from schemas.topics import DELETED_ENTRIES, METADATA_PROGRESS, METADATA_REPLIES, SNAPSHOT_CHAIN
from services.domain.row_columns import ColumnsError, deleted_entries
from services.log.port import LogRecord
from tests.simulation.errors import DefectError
from tests.simulation.run_state import RunState, ShardRun

REPLAYED_TOPICS = frozenset(
    topic.name for topic in (METADATA_REPLIES, METADATA_PROGRESS, DELETED_ENTRIES, SNAPSHOT_CHAIN)
)
"""What metadata sends again when it starts from an older copy; figures are coalesced by batch."""


class RepeatWatch:
    """Compares what is sent while metadata catches up with all that was sent before."""

    def __init__(self, state: RunState) -> None:
        self.state = state

    def repeats(self, shard: ShardRun, position: int) -> None:
        """What a restored metadata sends while it catches up was sent before, byte for byte or entry for entry."""
        for topic in REPLAYED_TOPICS:
            records = self.state.plane.log.records(topic, shard.model.shard)
            for record in records[shard.read_to.get(f"repeats/{topic}", 0) :]:
                # What is sent at the end of a batch is cut into messages by the batches.
                if topic == METADATA_PROGRESS.name and _is_sent_again(record):
                    continue
                news = _entries(record) if topic == DELETED_ENTRIES.name else [record.value]
                place = (topic, record.partition, record.offset)
                is_own = place not in self.state.injected and place not in shard.forger.places
                is_new = not shard.sent_before.issuperset((topic, one) for one in news)
                if position <= shard.replayed_until and is_own and is_new:
                    raise DefectError(f"metadata, started from an older copy, says something new on {topic}: {record}")
                shard.sent_before.update((topic, one) for one in news)
            shard.read_to[f"repeats/{topic}"] = len(records)


def _is_sent_again(record: LogRecord) -> bool:
    """Whether a message tells all that the collector does: each start sends one, whatever was sent before."""
    try:
        body = codec(records.MetadataProgress).decode_message(record.value).body
    except DecodeError:
        return False
    return isinstance(body, records.CollectionChanged) and body.is_whole


def _entries(record: LogRecord) -> list[Any]:
    """What a message about deleted entries says, whatever else is in it; its bytes when it says nothing."""
    try:
        message = codec(records.DeletedEntries).decode_message(record.value)
        return [*deleted_entries(message), message.barrier]
    except (DecodeError, ColumnsError):
        return [record.value]
