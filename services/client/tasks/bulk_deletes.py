"""Delete many keys: at most a thousand of one bucket per command, several commands in progress at once."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby, islice
from operator import itemgetter

from schemas.records import DeleteKeys
from services.client.errors import PlaneError
from services.client.plane import Plane
from services.client.tasks.volume_shards import VolumeShards
from services.domain.table_keys import MAX_KEYS_PER_COMMAND

MAX_OUTSTANDING = 16
Bucket = tuple[str, str]
"""Volume and bucket."""


@dataclass(frozen=True, slots=True)
class BulkDeleted:
    """The result of one command."""

    bucket: Bucket
    txn: int
    """0 if the whole command was refused."""
    deleted: int
    left: tuple[tuple[str, str], ...]
    """Keys that were not deleted, each with its error code."""


def delete_keys(plane: Plane, volumes: VolumeShards, keys: Iterable[tuple[Bucket, str]]) -> Iterator[BulkDeleted]:
    """Delete keys in order; yield the result of each command in the same order.

    A key that cannot be deleted does not stop the others. Consecutive keys of the same bucket share a command, so keys
    that are grouped by bucket are deleted fastest.

    Raises:
        UnreachableError, PlaneTimeoutError: keys whose result was not yielded may be deleted or not.
    """
    sent: deque[tuple[int, int, DeleteKeys]] = deque()
    """The shard, the number and the command."""
    for (volume, bucket), group in groupby(keys, itemgetter(0)):
        try:
            shard = volumes.shard_of(volume)
        except PlaneError as error:
            yield BulkDeleted((volume, bucket), 0, 0, tuple((key, error.code) for _, key in group))
            continue
        while some := tuple(key for _, key in islice(group, MAX_KEYS_PER_COMMAND)):
            command = DeleteKeys(volume, bucket, some)
            sent.append((shard, plane.submit(shard, command), command))
            if len(sent) >= MAX_OUTSTANDING:
                yield _answered(plane, *sent.popleft())
    while sent:
        yield _answered(plane, *sent.popleft())


def _answered(plane: Plane, shard: int, number: int, command: DeleteKeys) -> BulkDeleted:
    reply = plane.answer(shard, number)
    place = (command.volume, command.bucket)
    done = reply.committed.keys if reply.committed else None
    if done is None:
        return BulkDeleted(place, 0, 0, tuple((key, reply.error) for key in command.keys))
    codes = dict.fromkeys(done.not_found, "KEY_NOT_FOUND") | dict.fromkeys(done.not_empty, "DIRECTORY_NOT_EMPTY")
    return BulkDeleted(place, reply.txn, done.deleted, tuple((command.keys[one], codes[one]) for one in sorted(codes)))
