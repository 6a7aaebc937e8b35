"""What metadata has told of rows that are gone, and when: of versions whose blocks are deleted, and of directories.

When the services come for a row is theirs to say, so the model takes it from here. That they may, others look at.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from schemas import records
from schemas.codec import DecodeError, codec
from schemas.records import DeletedKind, RemovalOutcome
from schemas.topics import LEDGER, METADATA_PROGRESS, Topic
from services.domain.reclaimability import Txn
from services.domain.row_columns import row_names
from services.runtime.loop.outbox import OUTBOX
from tests.simulation.plane import SimulatedPlane

_TOPICS = (LEDGER, METADATA_PROGRESS)


@dataclass(slots=True)
class Told:
    """What one shard has said so far, sent or still to be sent."""

    plane: SimulatedPlane
    shard: int
    finished: dict[int, Txn] = field(default_factory=dict)
    """By the first local id of blocks that are deleted the txn since which their row is gone."""
    removed: dict[int, Txn] = field(default_factory=dict)
    """By objectID of a deleted directory the same."""
    _read_to: dict[str, int] = field(default_factory=dict)

    def look(self) -> None:
        """Take in what is new."""
        for topic in _TOPICS:
            sent = self.plane.log.records(topic.name, self.shard)
            values = [record.value for record in sent[self._read_to.get(topic.name, 0) :]]
            self._read_to[topic.name] = len(sent)
            for record in _readable(topic, (*values, *self._unsent(topic))):
                self._take_in(record)

    def _unsent(self, topic: Topic) -> Iterator[bytes]:
        for _, row in self.plane.tables("metadata", self.shard).table(OUTBOX).scan():
            for run in row.runs:
                if run.topic == topic.name:
                    yield from run.values

    def _take_in(self, record: Any) -> None:
        if isinstance(record, records.LedgerRows):
            self.finished |= dict.fromkeys(record.groups.first_local_ids, record.finish_txn)
        elif isinstance(record.body, records.DirectoriesRemoved):
            gone = [row.object_id for row in record.body.rows if row.outcome is RemovalOutcome.REMOVED]
            self.removed |= dict.fromkeys(gone, record.txn)
        elif isinstance(record.body, records.RowsClaimed):
            names = row_names(record.body.removed)
            gone = [name.object_id for name in names if name.kind is DeletedKind.DIRECTORY]
            self.removed |= dict.fromkeys(gone, record.txn)


def _readable(topic: Topic, values: Iterable[bytes]) -> Iterator[Any]:
    for value in values:
        try:
            yield codec(topic.record).decode_message(value)
        except DecodeError:
            continue  # noise that a run has added
