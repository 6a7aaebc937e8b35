"""Measures what a key costs a whole plane of one, two and four shards: the figures behind ``deepclean size``.

A key is put, deleted and freed. For both halves of its life: the rate, the processor time of each process, and the
bytes that the log grows by; and the bytes of its rows while it lives. The rate of more shards is compared with the
model of ``services/domain/capacity.py``, with the costs of one shard.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Self
from uuid import uuid4

from bench.bulk import VOLUME, BulkProducer, CommandMaker, flat_deletes, flat_puts
from bench.conditions import Conditions
from bench.figures import Ceiling, Figure
from bench.footprint import files_of
from bench.shared_plane import ANSWER_SECONDS, await_count, cpu_seconds
from schemas.records import BucketLayout, CreateBucket, CreateVolume, Settle
from schemas.topics import METADATA_COMMANDS
from services.client.plane import NamespaceCommand
from services.domain.capacity import rate_of_shards
from services.plane.stack.process_names import SERVICES
from services.plane.stack.stack import Stack
from services.plane.upkeep.shard_databases import database_directory
from services.storage.rocks_backups import DATABASE

NAME = "scale"
SHARDS = (1, 2, 4)
KEYS_PER_SECOND = 8_000
_MOST_WARM_KEYS = 40_000
_BUCKET, _WARM = "flat", "warm"


def measure_scale(conditions: Conditions) -> Sequence[Figure]:
    """Puts and deletions a second of a whole plane with one, two and four shards, and what each costs.

    The same number of keys is spread over the shards, put, and deleted when the plane has settled; puts end when they
    are applied and settled, deletions when the block store has deleted the last block. ``…_cpu_microseconds`` is the
    processor time of a process for each key, ``log_bytes`` what the topics grow by, of one replica. The reference of
    two and four shards is the rate that the model gives for these cores, with the costs of one shard.
    """
    conditions.close()  # a plane of other rows would use the same cores
    count = conditions.count(KEYS_PER_SECOND)
    figures, of_one = list[Figure](), dict[str, Measured]()
    for shards in SHARDS:
        with _Plane(conditions, shards) as plane:
            plane.warm(min(count, _MOST_WARM_KEYS))
            for kind, measured in (("puts", plane.put(_BUCKET, count)), ("deletions", plane.free(_BUCKET, count))):
                reference = of_one.setdefault(kind, measured)
                figures.append(_figure(shards, kind, measured, reference))
    return figures


@dataclass(frozen=True, slots=True)
class Measured:
    """What was done to keys, and what that cost."""

    keys: int
    seconds: float
    cpu_seconds: Mapping[str, float]
    log_bytes: int
    row_bytes: Mapping[str, int]
    """Bytes of each service's databases afterwards."""


def _figure(shards: int, kind: str, measured: Measured, of_one: Measured) -> Figure:
    keys = measured.keys
    details = {
        **{f"{name}_cpu_microseconds": used / keys * 1e6 for name, used in measured.cpu_seconds.items()},
        "log_bytes": measured.log_bytes / keys,
        **{f"{name}_bytes": size / keys for name, size in measured.row_bytes.items()},
    }
    costs = {name: used / of_one.keys for name, used in of_one.cpu_seconds.items()}
    by_model = rate_of_shards(costs, 1, os.cpu_count() or 1)
    reference = Ceiling(by_model, "by the model") if shards > 1 else None
    return Figure(f"{NAME}/{shards}-shards/{kind}", keys / measured.seconds, f"{kind}/s", None, reference, details)


class _Plane:
    """A plane of several shards, with a volume in each, and commands that go to all shards alike."""

    def __init__(self, conditions: Conditions, shards: int) -> None:
        self._say, self._shards = conditions.say, shards
        self._stack = Stack(conditions.scratch(f"{NAME}-{shards}"), shards)
        self._makers = [CommandMaker(shard) for shard in range(shards)]

    def __enter__(self) -> Self:
        self._say(f"{NAME}: starting a plane of {self._shards} shards")
        self._stack.start()
        self._client = self._stack.client(answer_seconds=ANSWER_SECONDS)
        self._producer = BulkProducer(self._stack.address.bootstrap_servers)
        for maker in self._makers:
            places = [CreateBucket(VOLUME, name, BucketLayout.OBJECT_STORE) for name in (_WARM, _BUCKET)]
            self._producer.send_commands(maker, [CreateVolume(VOLUME), *places])
        return self

    def __exit__(self, *_: object) -> None:
        self._producer.close()
        self._client.close()
        self._stack.stop()

    def warm(self, count: int) -> None:
        """Put and free keys without measuring: Spark takes several times as long until the JVM has compiled it."""
        self.put(_WARM, count)
        self.free(_WARM, count)

    def put(self, bucket: str, count: int) -> Measured:
        """Put keys, until all are applied: in a plane that has settled each takes a txn, and nothing else does."""
        wanted = self._txns() + count // self._shards * self._shards
        return self._measured(count, lambda keys: flat_puts(bucket, keys), lambda: self._await(self._txns, wanted))

    def free(self, bucket: str, count: int) -> Measured:
        """Delete keys, until the last block is deleted."""
        wanted = self._deleted_blocks() + count // self._shards * self._shards
        return self._measured(
            count, lambda keys: flat_deletes(bucket, keys), lambda: self._await(self._deleted_blocks, wanted)
        )

    def _measured(
        self, count: int, commands: Callable[[int], Iterable[NamespaceCommand]], await_end: Callable[[], None]
    ) -> Measured:
        """Send commands about so many keys, encoded before; costs are those until the plane has no more work."""
        each = count // self._shards
        encoded = [list(maker.encoded(commands(each))) for maker in self._makers]
        cpu_before, log_before, started = cpu_seconds(self._stack), self._log_bytes(), time.perf_counter()
        for maker, messages in zip(self._makers, encoded, strict=True):
            self._producer.enqueue(METADATA_COMMANDS.name, messages, maker.shard)
        self._producer.flush()
        await_end()
        seconds = time.perf_counter() - started
        self._settle()
        used = {name: after - cpu_before.get(name, 0.0) for name, after in cpu_seconds(self._stack).items()}
        return Measured(each * self._shards, seconds, used, self._log_bytes() - log_before, self._row_bytes())

    def _settle(self) -> None:
        for shard in range(self._shards):
            self._client.request(shard, Settle(str(uuid4())))

    def _txns(self) -> int:
        return sum(self._client.metadata(shard).state().txn for shard in range(self._shards))

    def _deleted_blocks(self) -> int:
        return sum(self._client.scm(shard).totals().deleted_blocks for shard in range(self._shards))

    def _await(self, count_of: Callable[[], int], wanted: int) -> None:
        await_count(self._stack, count_of, wanted, lambda left: self._say(f"{NAME}: {left:,} left"))

    def _log_bytes(self) -> int:
        return sum(file.stat().st_size for file in (self._stack.home / "broker").rglob("*-[0-9]*/*.log"))

    def _row_bytes(self) -> dict[str, int]:
        """Return the bytes of each service's databases, in all shards."""
        return {
            service: sum(
                size
                for shard in range(self._shards)
                for _, size in files_of(database_directory(self._stack.home, service, shard) / DATABASE)
            )
            for service in SERVICES
        }
