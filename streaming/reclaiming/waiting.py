"""What the job has taken in and could not judge yet: where it lies in gc.deleted-entries, and nothing of it.

Spark's own place in the topic is one for all shards and goes on. A shard whose chain cannot be followed is passed over
as a whole: the stretch from the first message that was passed over to the last one is judged, in its order, when the
chain is whole again, and until then nothing of the shard is. A message whose sender knew of more chain than there is
waits alone.

It is kept in one file of the checkpoint, which is replaced before Spark's place moves on. A batch that is repeated says
the same again.
"""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

from services.domain.errors import InvariantError
from streaming.reclaiming.outcome import PrematureMessage, Stretch

WAITING_FILE = "waiting.json"
MOST_PREMATURE = 1_000
"""So many messages wait for the chain to reach them; more are put aside at once."""


@dataclass(slots=True)
class Waiting:
    """Stretches that were passed over, by shard, and premature messages with the time at which each was met."""

    passed_over: dict[int, Stretch] = field(default_factory=dict)
    premature: dict[PrematureMessage, float] = field(default_factory=dict)
    _saved: str = field(default="", compare=False, repr=False)

    def __bool__(self) -> bool:
        return bool(self.passed_over or self.premature)

    @property
    def is_full(self) -> bool:
        """Whether no more premature messages may wait."""
        return len(self.premature) >= MOST_PREMATURE

    def add(self, passed_over: Iterable[Stretch], premature: Iterable[PrematureMessage], now_seconds: float) -> None:
        """Take in what a batch left; what is known already stays as it is."""
        for new in passed_over:
            old = self.passed_over.get(new.shard, new)
            joined = Stretch(new.shard, min(old.first, new.first), max(old.beyond, new.beyond))
            self.passed_over[new.shard] = joined
        for message in premature:
            self.premature.setdefault(message, now_seconds)

    def next_stretches(self, shards: Collection[int], most_messages: int) -> list[Stretch]:
        """The beginning of what was passed over of some shards."""
        found = [stretch for shard, stretch in sorted(self.passed_over.items()) if shard in shards]
        return [Stretch(one.shard, one.first, min(one.first + most_messages, one.beyond)) for one in found]

    def judged(self, stretches: Iterable[Stretch]) -> None:
        """Such beginnings are done."""
        for done in stretches:
            rest = self.passed_over[done.shard]
            if done.beyond >= rest.beyond:
                del self.passed_over[done.shard]
            else:
                self.passed_over[done.shard] = Stretch(done.shard, done.beyond, rest.beyond)

    def due(self, versions: Mapping[int, int], now_seconds: float, patience_seconds: float) -> list[PrematureMessage]:
        """Messages that the chain of their shard has reached, and those that have waited long enough.

        A shard without a version is passed over: nothing of it is due. A clock that was set back begins the wait anew.
        """
        for message, since in self.premature.items():
            self.premature[message] = min(since, now_seconds)
        return [
            message
            for message, since in sorted(self.premature.items(), key=lambda item: (item[0].shard, item[0].offset))
            if message.shard in versions
            and (message.chain_version <= versions[message.shard] or now_seconds - since >= patience_seconds)
        ]

    def settled(self, messages: Iterable[PrematureMessage]) -> None:
        """Such messages were judged, or put aside."""
        for message in messages:
            del self.premature[message]

    def count_of(self, shard: int) -> int:
        """How many premature messages of a shard wait."""
        return sum(message.shard == shard for message in self.premature)

    def first_offsets(self) -> dict[int, int]:
        """Of each shard the first message that is still wanted."""
        offsets = {shard: stretch.first for shard, stretch in self.passed_over.items()}
        for message in self.premature:
            offsets[message.shard] = min(message.offset, offsets.get(message.shard, message.offset))
        return offsets

    def save(self, checkpoint: Path) -> None:
        """Replace the file, for good, unless it says the same already."""
        premature = [{**asdict(message), "since_seconds": since} for message, since in self.premature.items()]
        stretches = [asdict(stretch) for stretch in self.passed_over.values()]
        text = json.dumps({"passed_over": stretches, "premature": premature})
        if text == self._saved or not (self or self._saved):
            return
        fresh = checkpoint / f"{WAITING_FILE}.new"
        with fresh.open("w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(checkpoint / WAITING_FILE)
        directory = os.open(checkpoint, os.O_RDONLY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)
        self._saved = text


def saved(checkpoint: Path) -> Waiting:
    """What the last run has left.

    Raises:
        InvariantError: the file cannot be read.
    """
    try:
        text = (checkpoint / WAITING_FILE).read_text("utf-8")
        said = json.loads(text)
        waiting = Waiting(_saved=text)
        waiting.add((Stretch(**one) for one in said["passed_over"]), (), 0)
        for one in said["premature"]:
            since = one.pop("since_seconds")
            waiting.add((), [PrematureMessage(**one)], since)
    except FileNotFoundError:
        return Waiting()
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InvariantError(
            f"{checkpoint / WAITING_FILE} cannot be read ({error}): remove the checkpoint {checkpoint}, after which "
            f"every entry is judged again."
        ) from error
    return waiting
