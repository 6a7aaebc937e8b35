"""Replays on a plane what the job that reads a database says: buckets, commands, snapshots."""

from __future__ import annotations

from base64 import b64decode
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from schemas.codec import codec
from schemas.records import BucketLayout, CreateBucket, CreateSnapshot, CreateVolume, MetadataCommand, MetadataReply
from services.client.errors import PlaneError
from services.client.plane import Plane, accepted
from services.client.tasks.links import MISSING
from services.client.tasks.volume_shards import VolumeShards
from services.domain.errors import DeepcleanError

MAX_OUTSTANDING = 5_000
MAX_EXAMPLES = 10
_COMMAND = codec(MetadataCommand)


class ImportingError(DeepcleanError):
    """Nothing was imported; the message says why, and what to do."""


@dataclass(slots=True)
class ImportedBucket:
    """What has been done for a bucket."""

    bucket: str
    commands: int = 0
    snapshots: list[str] = field(default_factory=list)
    is_complete: bool = False
    """Whether the active namespace has been imported, too."""
    notes: list[str] = field(default_factory=list)
    """What the plane has otherwise, as sentences."""


@dataclass(slots=True)
class Importer:
    """One import on one plane."""

    plane: Plane
    volumes: VolumeShards
    shard: int | None = None
    """Shard of new volumes; None: derived from their names."""
    states: int = 0
    """How many states there are, of all buckets."""
    done: list[ImportedBucket] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    refused: int = 0
    examples: list[str] = field(default_factory=list)
    _layouts: dict[tuple[str, str], BucketLayout] = field(default_factory=dict)
    _place: tuple[str, str] = ("", "")
    _place_shard: int = 0
    _sent: deque[tuple[int, Any]] = field(default_factory=deque)
    """Commands whose answers were not read yet, with their numbers."""

    @property
    def commands(self) -> int:
        """Return the number of commands so far."""
        return sum(one.commands for one in self.done)

    @property
    def states_done(self) -> int:
        """Return how many states are complete."""
        return sum(len(one.snapshots) + one.is_complete for one in self.done)

    def hear(self, line: Mapping[str, Any]) -> None:
        """Do what a line says.

        Raises:
            ImportingError: a bucket exists already.
            PlaneError: the plane refuses a bucket or a snapshot. Refusals of other commands are counted.
        """
        if "buckets" in line:
            self.states, self.notes = line["states"], line["notes"]
            self._layouts = {(volume, name): BucketLayout(layout) for volume, name, layout in line["buckets"]}
            self._check(len(line["buckets"]))
        elif "bucket" in line:
            self._begin(*line["bucket"])
        elif "commands" in line:
            self._send(line["commands"])
        elif "snapshot" in line:
            self._collect(0)
            request = CreateSnapshot(*self._place, line["snapshot"], line["at_ms"])
            accepted(self.plane.request(self._place_shard, request))
            self.done[-1].snapshots.append(line["snapshot"])
        elif "complete" in line:
            self._collect(0)
            self.done[-1].is_complete = True
            self.done[-1].notes += line["complete"]

    def _check(self, count: int) -> None:
        if len(self._layouts) < count:
            raise ImportingError("Two buckets have the same name in different volumes: import one of them (--bucket).")
        existing = [f"{volume}/{bucket}" for volume, bucket in self._layouts if self._exists(volume, bucket)]
        if existing:
            raise ImportingError(
                f"The plane has {', '.join(existing)} already: import into a volume of another name (--volume), or "
                f"delete what is there. Nothing was imported."
            )

    def _exists(self, volume: str, bucket: str) -> bool:
        try:
            self.plane.metadata(self.volumes.shard_of(volume)).bucket(volume, bucket)
        except PlaneError as error:
            if error.code in MISSING:
                return False
            raise
        return True

    def _begin(self, volume: str, bucket: str) -> None:
        self._place, self._place_shard = (volume, bucket), self._shard_of(volume)
        create = CreateBucket(volume, bucket, self._layouts[self._place])
        accepted(self.plane.answer(self._place_shard, self.plane.submit(self._place_shard, create)))
        self.done.append(ImportedBucket(f"{volume}/{bucket}"))

    def _shard_of(self, volume: str) -> int:
        """Return the shard of a volume, which is created if it is missing."""
        try:
            shard = self.volumes.shard_for_new(volume, self.shard)
            accepted(self.plane.answer(shard, self.plane.submit(shard, CreateVolume(volume))))
        except PlaneError as error:
            if error.code != "VOLUME_ALREADY_EXISTS":
                raise
            return self.volumes.shard_of(volume)
        return shard

    def _send(self, commands: Sequence[str]) -> None:
        for one in commands:
            body: Any = _COMMAND.decode(b64decode(one)).body
            self._sent.append((self.plane.submit(self._place_shard, body), body))
        self.done[-1].commands += len(commands)
        self._collect(MAX_OUTSTANDING)

    def _collect(self, left: int) -> None:
        """Read answers until at most ``left`` are outstanding."""
        while len(self._sent) > left:
            number, command = self._sent.popleft()
            self._note(command, self.plane.answer(self._place_shard, number))

    def _note(self, command: Any, reply: MetadataReply) -> None:
        """Count what was refused, and what of a deletion of several keys was left."""
        deleted = reply.committed.keys if reply.committed else None
        if reply.error:
            self._refuse(1, f"{command}: {reply.error}, {reply.message}")
        elif deleted is not None and (left := [*deleted.not_found, *deleted.not_empty]):
            self._refuse(len(left), f"{command.keys[left[0]]} could not be deleted")

    def _refuse(self, count: int, example: str) -> None:
        self.refused += count
        if len(self.examples) < MAX_EXAMPLES:
            self.examples.append(example)
