"""Measures judging by lifetimes beside look-ups in the previous snapshots."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from random import Random
from statistics import median

from bench.bulk import VOLUME, flat_name, flat_puts
from bench.conditions import Conditions
from bench.figures import Ceiling, Figure, Target
from bench.loaded_shard import LoadedShard
from bench.spark_process import run_spark
from schemas.records import BucketLayout, DeletedEntries, DeleteKey, SnapshotChainRecord
from schemas.topics import DELETED_ENTRIES, SNAPSHOT_CHAIN
from services.client.plane import NamespaceCommand
from services.domain.chain_view import ChainView
from services.domain.reclaimability import Verdict
from services.domain.row_columns import DeletedEntry, deleted_entries
from services.domain.table_keys import flat_key
from services.metadata.state.tables import KEY_TABLE
from services.plane.machine.errors import StackError
from services.storage.tables import TablesReader

NAME = "rule-lookup"
BUCKET = "bucket"
SNAPSHOTS = ("before", "previous")
KINDS = 3
"""Held by both snapshots, by the newer one only, by none: the same number of entries of each."""
ROUNDS = 3
SPARK_ROWS_PER_SECOND = 1_000_000
FIFTY = Target(50, is_of_ratio=True)
_Verdicts = list[Verdict | None]


@dataclass(frozen=True, slots=True)
class _Case:
    """A bucket, its chain, and the entries deleted after its newest snapshot, with their names."""

    shard: LoadedShard
    view: ChainView
    messages: Sequence[DeletedEntries]
    entries: Sequence[DeletedEntry]
    """The rows of the messages, in their order."""
    names: Sequence[str]


def measure_rule_lookup(conditions: Conditions) -> Sequence[Figure]:
    """Verdicts a second by lifetimes, beside look-ups in the two snapshots before, of the same entries, 1 million keys.

    metadata itself applies puts, two snapshots and deletes to a database on disk; only the log is in memory. A third of
    the entries each is held by both snapshots, by one, by none; keys are chosen at random. The look-up reads the name's
    row from the previous snapshot's checkpoint and, if that has the version, from the one before it, as Ozone's filters
    do, but without their look-up of renames; it gets the names and open checkpoints. Both must return the same
    verdicts. The services' rule is ChainView.judge_columns; Spark's rule is its column over copies of the same entries.
    The services' rule runs in one thread, timed by its processor time; Spark runs on all cores, timed by the clock.
    """
    shard = LoadedShard(conditions.scratch(NAME))
    try:
        case = _load(conditions, shard)
        conditions.say(f"{NAME}: judging {len(case.entries):,} entries")
        by_look_up, looked_up_rate = _rate(len(case.entries), lambda: _looked_up(case))
        by_lifetime, judged_rate = _rate(len(case.entries), lambda: _judged(case))
    finally:
        shard.close()
    if by_look_up != by_lifetime:
        raise StackError("the rule by lifetimes and the look-up differ: this is a defect, report it")
    conditions.say(f"{NAME}: Spark's column")
    spark_rate = _spark_rate(conditions, case)
    ceiling = Ceiling(looked_up_rate, "by look-up")
    details = {verdict.value.lower(): float(by_lifetime.count(verdict)) for verdict in Verdict}
    return [
        Figure(f"{NAME}/services", judged_rate, "verdicts/s", FIFTY, ceiling, details),
        Figure(f"{NAME}/spark", spark_rate, "verdicts/s", FIFTY, ceiling),
    ]


def _load(conditions: Conditions, shard: LoadedShard) -> _Case:
    keys, each = conditions.sizes.many_keys, max(1, conditions.sizes.deleted_entries // KINDS)
    view = ChainView()
    shard.make_bucket(BUCKET, BucketLayout.OBJECT_STORE)
    for done in shard.load(flat_puts(BUCKET, keys)):
        conditions.say(f"{NAME}: {done:,} keys loaded")
    for number, snapshot in enumerate(SNAPSHOTS):
        shard.snapshot(snapshot, BUCKET)
        for marker in shard.said(SNAPSHOT_CHAIN):
            assert isinstance(marker, SnapshotChainRecord)  # noqa: S101  nothing else is on the topic
            view.follow(marker)
        shard.apply(flat_puts(BUCKET, each, keys + number * each))
    random = Random(keys)  # noqa: S311  the same at each run
    numbers = [*random.sample(range(keys), min(each, keys)), *range(keys, keys + len(SNAPSHOTS) * each)]
    random.shuffle(numbers)
    shard.apply(_deletes(numbers))
    messages = [message for message in map(_entries, shard.said(DELETED_ENTRIES)) if message.rows.object_ids]
    entries = [entry for message in messages for entry in deleted_entries(message)]
    return _Case(shard, view, messages, entries, [flat_name(number) for number in numbers])


def _deletes(numbers: Sequence[int]) -> Iterator[NamespaceCommand]:
    return (DeleteKey(VOLUME, BUCKET, flat_name(number)) for number in numbers)


def _entries(message: object) -> DeletedEntries:
    assert isinstance(message, DeletedEntries)  # noqa: S101  nothing else is on the topic
    return message


def _rate(count: int, judge_all: Callable[[], _Verdicts]) -> tuple[_Verdicts, float]:
    """Return the verdicts, and the verdicts a second: the median of some rounds, after one warm-up round."""
    verdicts, rates = judge_all(), []
    for _ in range(ROUNDS):
        started = time.thread_time()
        judge_all()
        rates.append(count / max(time.thread_time() - started, 1e-9))
    return verdicts, median(rates)


def _judged(case: _Case) -> _Verdicts:
    """Judge one message at a time, as the second judge does."""
    verdicts: _Verdicts = []
    for one in case.messages:
        names = one.rows
        columns = (names.bucket_ids, names.births, names.deaths, one.snapshots_before_death)
        verdicts += case.view.judge_columns(*columns)
    return verdicts


def _looked_up(case: _Case) -> _Verdicts:
    """Look up, in each snapshot from the newest back, whether the name has the same version there."""
    before, previous = (case.shard.store.open_checkpoint(name) for name in SNAPSHOTS)
    try:
        in_previous, in_before = (TablesReader(view).table(KEY_TABLE) for view in (previous, before))
        verdicts: _Verdicts = []
        for entry, name in zip(case.entries, case.names, strict=True):
            key = flat_key(VOLUME, BUCKET, name)
            row = in_previous.get(key)
            if row is None or (row.object_id, row.birth) != (entry.object_id, entry.birth):
                verdicts.append(Verdict.RECLAIMABLE)
                continue
            row = in_before.get(key)
            is_shared = row is not None and (row.object_id, row.birth) == (entry.object_id, entry.birth)
            verdicts.append(Verdict.SHARED if is_shared else Verdict.EXCLUSIVE_TO_PREVIOUS)
        return verdicts
    finally:
        previous.close()
        before.close()


def _spark_rate(conditions: Conditions, case: _Case) -> float:
    """Return the verdicts a second of Spark's column, over copies of the same entries."""
    file = conditions.scratch(f"{NAME}-entries") / "entries.csv"
    with file.open("w") as lines:
        for one in case.entries:
            lines.write(f"{one.bucket_id},{one.birth},{one.death},{one.snapshots_before_death}\n")
    rows = conditions.count(SPARK_ROWS_PER_SECOND)
    bucket_id = case.entries[0].bucket_id
    options = {
        "file": str(file),
        "entries": len(case.entries),
        "copies": max(1, rows // len(case.entries)),
        "bucket_id": bucket_id,
        "snapshot_txns": [snapshot.txn for snapshot in case.view.live(bucket_id)],
    }
    rate: float = run_spark(conditions, "lifetimes", options)["rate"]
    return rate
