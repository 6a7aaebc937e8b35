"""Offsets in gc.deleted-entries of the messages that the job has read but could not judge yet.

Spark's own position in the topic covers all shards and keeps moving. A shard whose chain is broken is passed over as a
whole: no message of it is judged until the chain is whole again. Then the job judges the stretch from the first to the
last passed-over message, in the order of the offsets. A premature message, whose chain version is above the view's,
waits alone.

One file in Spark's checkpoint directory stores these offsets. The job replaces the file before Spark's position moves.
A repeated batch adds the same offsets again.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import asdict, dataclass, field

from services.domain.errors import InvariantError
from streaming.reclaiming.checkpoint import Checkpoint
from streaming.reclaiming.outcome import PrematureMessage, Stretch

WAITING_FILE = "waiting.json"
MOST_PREMATURE = 1_000
"""Most premature messages that wait for the chain; further ones are dead-lettered at once."""


@dataclass(slots=True)
class Waiting:
    """Passed-over stretches, by shard, and premature messages with the time at which each one was first read."""

    passed_over: dict[int, Stretch] = field(default_factory=dict)
    premature: dict[PrematureMessage, float] = field(default_factory=dict)
    _saved: str = field(default="", compare=False, repr=False)

    def __bool__(self) -> bool:
        return bool(self.passed_over or self.premature)

    @property
    def is_full(self) -> bool:
        """Return whether at least ``MOST_PREMATURE`` premature messages wait."""
        return len(self.premature) >= MOST_PREMATURE

    def add(self, passed_over: Iterable[Stretch], premature: Iterable[PrematureMessage], now_seconds: float) -> None:
        """Add the unjudged messages of a batch; a premature message that already waits keeps its time."""
        for new in passed_over:
            old = self.passed_over.get(new.shard, new)
            joined = Stretch(new.shard, min(old.first, new.first), max(old.beyond, new.beyond))
            self.passed_over[new.shard] = joined
        for message in premature:
            self.premature.setdefault(message, now_seconds)

    def next_stretches(self, shards: Collection[int], most_messages: int) -> list[Stretch]:
        """Return the first messages, at most ``most_messages`` a shard, of the passed-over stretches of some shards."""
        found = [stretch for shard, stretch in sorted(self.passed_over.items()) if shard in shards]
        return [Stretch(one.shard, one.first, min(one.first + most_messages, one.beyond)) for one in found]

    def judged(self, stretches: Iterable[Stretch]) -> None:
        """Remove stretches that were judged, from the beginning of their shards' passed-over stretches."""
        for done in stretches:
            rest = self.passed_over[done.shard]
            if done.beyond >= rest.beyond:
                del self.passed_over[done.shard]
            else:
                self.passed_over[done.shard] = Stretch(done.shard, done.beyond, rest.beyond)

    def due(self, versions: Mapping[int, int], now_seconds: float, patience_seconds: float) -> list[PrematureMessage]:
        """Return the premature messages that the chain has reached or that have waited ``patience_seconds``.

        No message of a shard without a version is due. If the clock was set back, the wait restarts.
        """
        for message, since in self.premature.items():
            self.premature[message] = min(since, now_seconds)
        return [
            message
            for message, since in sorted(self.premature.items())
            if message.shard in versions
            and (message.chain_version <= versions[message.shard] or now_seconds - since >= patience_seconds)
        ]

    def settled(self, messages: Iterable[PrematureMessage]) -> None:
        """Remove premature messages that were judged or dead-lettered."""
        for message in messages:
            del self.premature[message]

    def count_of(self, shard: int) -> int:
        """Return the number of premature messages of a shard."""
        return sum(message.shard == shard for message in self.premature)

    def first_offsets(self) -> dict[int, int]:
        """Return the offset of the first waiting message of each shard that has one."""
        offsets = {shard: stretch.first for shard, stretch in self.passed_over.items()}
        for message in self.premature:
            offsets[message.shard] = min(message.offset, offsets.get(message.shard, message.offset))
        return offsets

    def save(self, checkpoint: Checkpoint) -> None:
        """Replace the file durably, unless its content is the same."""
        premature = [{**asdict(message), "since_seconds": since} for message, since in self.premature.items()]
        stretches = [asdict(stretch) for stretch in self.passed_over.values()]
        text = json.dumps({"passed_over": stretches, "premature": premature})
        if text == self._saved or not (self or self._saved):
            return
        checkpoint.replace(WAITING_FILE, text)
        self._saved = text


def saved(checkpoint: Checkpoint) -> Waiting:
    """Return the waiting messages that the last run has saved.

    Raises:
        InvariantError: the file cannot be read.
    """
    try:
        text = checkpoint.read(WAITING_FILE)
        if text is None:
            return Waiting()
        said = json.loads(text)
        waiting = Waiting(_saved=text)
        waiting.add((Stretch(**one) for one in said["passed_over"]), (), 0)
        for one in said["premature"]:
            since = one.pop("since_seconds")
            waiting.add((), [PrematureMessage(**one)], since)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InvariantError(
            f"{checkpoint}/{WAITING_FILE} cannot be read ({error}): remove the checkpoint {checkpoint}, after which "
            f"every entry is judged again."
        ) from error
    return waiting
