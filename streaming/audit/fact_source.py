"""The facts of an audit as a DataFrame: numbers that SQL compares and sums, or the facts of some runs whole.

SQL groups the facts of each run, which costs as much as there are columns. So what facts are only compared by is mixed
into one number, and what is only counted shares another one.

A set of states is written as the lowest and the highest place that it has, and its *extent* (``extent_of``): the states
of nearly all versions follow one another. The places of the snapshots count from 0, oldest first; that of the active
namespace is behind them.
"""

from __future__ import annotations

import gc
from array import array
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from hashlib import blake2b
from itertools import compress
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSourceReader, InputPartition

from services.domain.replication import redundancy_bytes, sequence_of
from streaming.audit.facts import RUN, Column, Fact, FactKind, Facts, FactTask, facts_of
from streaming.audit.reach import ACTIVE, FIRST_SNAPSHOT, PRESENT, UNEXPANDED, snapshots_of
from streaming.audit.shard import AuditedBucket, AuditedShard
from streaming.spark.python_source import frame_read_by

FLAGS = ACTIVE | UNEXPANDED | PRESENT
SHOWN, HAS_DELETED, HAS_CLAIMED = 8, 16, 32
"""Further flags of facts: the tables that they come from."""
STORED_SHIFT = 6
"""Place of the flags that say which copies of the inventory have a run."""
COUNT_BITS = 20
"""Of each number in ``counted``: rows of the active namespace, garbage rows, and rows of the inventory."""
_LONG, _INT, _SHORT, _BYTE = pa.int64(), pa.int32(), pa.int16(), pa.int8()
SUMMED = pa.schema(
    [
        *((name, _LONG) for name in (*RUN, "bucket_id", "redundancy_bytes")),
        ("blocks", _LONG),  # mixed of all that the facts of a run agree on
        ("owner", _LONG),  # mixed of object id and birth; null for the inventory
        ("birth", _LONG),
        ("counted", _LONG),
        ("flags", _SHORT),
        ("oldest", _INT),
        ("newest", _INT),
        ("extent", _LONG),  # of facts about no run, the number that they count
        ("death", _LONG),
        ("snapshots_before_death", _INT),
    ]
)
"""Of a fact about no run, ``container_id`` is the negative kind, and ``first_local_id`` the bucket's id."""
_IDENTITY = [("kind", _BYTE), *((name, _LONG) for name in (*RUN, "bucket_id", "object_id", "birth"))]
WHOLE_FACTS = pa.schema([*_IDENTITY, ("seen", pa.string()), ("key", pa.binary())])
RunId = tuple[int, int]
"""Container id and first local id."""


@dataclass(frozen=True, slots=True)
class ReadFacts:
    """What a read returns: the facts of some tasks for sums, or those of the wanted runs whole."""

    shard: AuditedShard
    parts: Sequence[Sequence[FactTask]]
    """The tasks of each partition."""
    wanted: frozenset[RunId] | None = None

    def batches(self, tasks: Sequence[FactTask]) -> Iterator[pa.RecordBatch]:
        """Yield the facts of a partition."""
        gc.disable()  # it would look through millions of rows, which are in no cycle: a sixth of the time
        try:
            for task in tasks:
                for facts in facts_of(self.shard, task):
                    if self.wanted is None:
                        yield summed(facts)
                    elif any(kept := [run in self.wanted for run in zip(*facts.run[:2], strict=True)]):
                        yield whole(facts, kept)
        finally:
            gc.enable()

    def frame(self, session: SparkSession) -> DataFrame:
        """Return the facts as a DataFrame."""
        columns = SUMMED if self.wanted is None else WHOLE_FACTS
        return frame_read_by(session, "deepclean-audit", columns, lambda: FactReader(self))


class FactReader(DataSourceReader):
    """Reads the tasks of each partition."""

    def __init__(self, read: ReadFacts) -> None:
        self._read = read

    def partitions(self) -> Sequence[InputPartition]:
        """Return a partition for each list of tasks."""
        parts, self._read = self._read.parts, ReadFacts(self._read.shard, (), self._read.wanted)
        return [InputPartition(tasks) for tasks in parts]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the facts of a partition."""
        return self._read.batches(partition.value)


def summed(facts: Facts) -> pa.RecordBatch:
    """Return facts as rows of ``SUMMED``."""
    count = len(facts)
    run = list(map(_longs, facts.run))
    bucket_ids = _longs(facts.bucket_ids)
    columns: dict[str, pa.Array] = {"bucket_id": bucket_ids}
    if facts.kind >= FactKind.NAMES:
        columns |= {
            "container_id": pa.repeat(pa.scalar(-int(facts.kind), _LONG), count),
            "first_local_id": bucket_ids,
            "extent": pa.array(facts.seen, _LONG),
        }
        return _record_batch(columns, count)
    columns |= zip(RUN, run, strict=True)
    columns |= {"redundancy_bytes": _redundancy(facts.run), "blocks": _mixed(*run[2:], bucket_ids)}
    if facts.kind is FactKind.INVENTORY:
        columns |= {
            "flags": pc.shift_left(pa.array(facts.seen, _SHORT), pa.scalar(STORED_SHIFT, _SHORT)),
            "counted": pa.repeat(pa.scalar(1 << 2 * COUNT_BITS, _LONG), count),
        }
        return _record_batch(columns, count)
    object_ids, births = _longs(facts.object_ids), _longs(facts.births)
    columns |= {"birth": births, "owner": _mixed(object_ids, births)}
    if facts.kind is FactKind.NAMESPACE:
        columns |= _states(facts)
    else:
        txns = _bucket_of(facts).snapshot_txns
        flag = HAS_DELETED if facts.kind is FactKind.DELETED else HAS_CLAIMED
        columns |= {
            "flags": pa.repeat(pa.scalar(flag, _SHORT), count),
            "counted": pa.repeat(pa.scalar(1 << COUNT_BITS, _LONG), count),
            "death": pa.array(facts.seen, _LONG),
            "snapshots_before_death": pa.array([bisect_left(txns, death) for death in facts.seen], _INT),
        }
    return _record_batch(columns, count)


def _record_batch(columns: Mapping[str, pa.Array], count: int) -> pa.RecordBatch:
    arrays = [columns[one.name] if one.name in columns else pa.nulls(count, one.type) for one in SUMMED]
    return pa.record_batch(arrays, SUMMED)


def _mixed(*columns: pa.Array) -> pa.Array:
    """Return a number for the numbers of each row: rows that differ have different ones, as good as surely."""
    mixed = None
    for place, column in enumerate(columns):
        product = pc.multiply(column, _number_of(place) | 1)  # it wraps
        mixed = product if mixed is None else pc.add(mixed, product)
    return mixed


def _longs(column: Column) -> pa.Array:
    if isinstance(column, array):
        return pa.Array.from_buffers(_LONG, len(column), [None, pa.py_buffer(column)])
    return pa.array(column, _LONG)


def _redundancy(run: Sequence[Column]) -> pa.Array:
    containers, _, counts, block_sizes, sizes = run
    if all(sequence_of(container) == container for container in set(containers)):  # nearly always: one copy
        return pa.repeat(pa.scalar(0, _LONG), len(sizes))
    return pa.array(map(redundancy_bytes, containers, counts, block_sizes, sizes), _LONG)


def _states(facts: Facts) -> dict[str, pa.Array]:
    """Return the columns of the states that show rows of a namespace: computed once for each set of states."""
    sets = list(set(facts.seen))
    numbers = {seen: number for number, seen in enumerate(sets)}
    places = [_places(seen, _bucket_of(facts)) for seen in sets]
    which = pa.array([numbers[seen] for seen in facts.seen], _INT)
    columns: dict[str, tuple[list[int | None], pa.DataType]] = {
        "flags": ([seen & FLAGS | SHOWN for seen in sets], _SHORT),
        "counted": ([int(bool(seen & PRESENT)) for seen in sets], _LONG),
        "oldest": ([(one & -one).bit_length() - 1 if one else None for one in places], _INT),
        "newest": ([one.bit_length() - 1 if one else None for one in places], _INT),
        "extent": ([extent_of(one) for one in places], _LONG),
    }
    return {name: pa.array(values, type_).take(which) for name, (values, type_) in columns.items()}


def _places(seen: int, bucket: AuditedBucket) -> int:
    """Return a set of states as a set of places."""
    return snapshots_of(seen) | (seen & ACTIVE and 1 << len(bucket.snapshots))


def extent_of(places: int) -> int:
    """Return a number for a set of places: the sum of the numbers of its ends, those where it begins subtracted.

    The sum over several sets says whether they make up one stretch: where one of them ends and the next one begins,
    their numbers cancel out. Sets that overlap, or leave gaps, have other numbers left.
    """
    ends, found = places ^ places << 1, 0
    while ends:
        lowest = ends & -ends
        number = _number_of(lowest.bit_length())
        found += -number if places & lowest else number
        ends ^= lowest
    return found


@cache
def _number_of(place: int) -> int:
    """Return 48 bits that look random: no few of them have a sum that others have, too."""
    return int.from_bytes(blake2b(place.to_bytes(8), digest_size=6).digest())


def seen_in(flags: int, oldest: int | None, newest: int | None, bucket: AuditedBucket) -> int:
    """Return the mask of all states from one place to another, with the flags."""
    if oldest is None or newest is None:
        return flags
    places = (1 << newest + 1) - (1 << oldest)
    return flags | (places & (1 << len(bucket.snapshots)) - 1) << FIRST_SNAPSHOT


def _bucket_of(facts: Facts) -> AuditedBucket:
    if facts.bucket is None:
        raise TypeError(f"facts of kind {facts.kind.name} have a bucket")
    return facts.bucket


def whole(facts: Facts, kept: Sequence[bool]) -> pa.RecordBatch:
    """Return some of the facts as rows of ``WHOLE_FACTS``."""
    rows = list(zip(*compress(facts.rows(), kept), strict=True))
    rows[9] = tuple(map(str, rows[9]))
    return pa.record_batch(
        [pa.array(column, one.type) for column, one in zip(rows, WHOLE_FACTS, strict=True)], WHOLE_FACTS
    )


def fact_of(row: Any) -> Fact:
    """Return the fact in a row of ``WHOLE_FACTS``."""
    *identity, seen, key = row
    kind, container, first, count, block_size, size, bucket_id, object_id, birth = identity
    return kind, container, first, count, block_size, size, bucket_id, object_id, birth, int(seen), bytes(key)
