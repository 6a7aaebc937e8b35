"""The audit as a DataFrame job: its report is that of the rule run by run, with every kind of finding."""

from __future__ import annotations

import itertools
import json
import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from random import Random

import pytest
from pydantic import TypeAdapter
from pyspark.sql import SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from bench.bulk import VOLUME
from schemas.audit_report import AuditReport, FindingKind
from schemas.feature_level import FEATURE_LEVEL, confirmation
from schemas.records import (
    AllocateBlocks,
    AnnounceSchema,
    BlockRun,
    BucketVersioning,
    ClaimedRow,
    CommitKey,
    DeletedKeyRow,
    InventoryRow,
    KeyRow,
    MetadataCommand,
    OpenKey,
    PutKey,
    SetBucketVersioning,
    SetFeatureLevel,
    SyncKey,
)
from schemas.schema_files import released_versions
from schemas.stored_rows import row_codec
from services.domain.table_keys import local_id
from services.mock_scm.tables import inventory_key
from services.plane.machine.home import jars_directory
from services.runtime.process.child_job import run_child_job
from streaming.audit.__main__ import audit
from streaming.audit.alike import alike, ids_of, runs_of
from streaming.audit.blocks import Tally, judge_run
from streaming.audit.fact_source import SUMMED, summed
from streaming.audit.facts import AFTER, BEFORE, Fact, fact_tasks, facts_of
from streaming.audit.reach import ACTIVE, PRESENT, UNEXPANDED
from streaming.audit.result import report_of, trees_of
from streaming.audit.shard import KEY_PARTS, KEY_VERSIONS, AuditedCopies, survey
from streaming.audit.states import groups_of, in_order, side_by_side
from streaming.rocksdb.checkpoint_rows import CheckpointRows
from tests.audited_copies import BUCKET, AuditedStores, fill, path_of
from tests.audited_plane import judge_all
from tests.spark_session import SPARK_MARKS, java_for_spark, started_session
from tests.unit.test_audit_blocks import BUCKET as OF_RULE
from tests.unit.test_audit_blocks import columns, held, shard

pytestmark = [*SPARK_MARKS, pytest.mark.long]
KEYS, SNAPSHOTS = 4_000, 12
EVERYTHING = (b"", b"\xff")


@pytest.fixture(scope="module")
def session() -> Iterator[SparkSession]:
    with started_session() as session:
        yield session


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AuditedStores]:
    """With so many snapshots that most states are read from shared files, noncurrent versions, and keys in parts."""
    made = AuditedStores(tmp_path_factory.mktemp("shard"))
    for _ in fill(made, KEYS, SNAPSHOTS):
        pass
    newest = released_versions(MetadataCommand.__name__)[-1].schema_id
    made.do([AnnounceSchema(newest), SetFeatureLevel(FEATURE_LEVEL, confirmation(FEATURE_LEVEL))])
    made.do([SetBucketVersioning(VOLUME, BUCKET, BucketVersioning.ENABLED)])
    for moment in range(3):
        made.do([PutKey(VOLUME, BUCKET, path_of(number), 10 + moment) for number in range(0, KEYS, 37)])
        write_in_steps(made, f"steps/{moment}")
        made.metadata.snapshot(f"versions-{moment}", BUCKET)
    for table in (KEY_VERSIONS, KEY_PARTS):
        assert next(made.metadata.store.scan(table, *EVERYTHING), None), table
    yield made
    made.close()


def write_in_steps(stores: AuditedStores, key: str) -> None:
    """A snapshot sees the first step; what comes later is a run of blocks of its own."""
    place = VOLUME, BUCKET, key
    session = stores.answer(OpenKey(*place, 10, block_size_bytes=10)).session
    stores.answer(SyncKey(*place, session, 5))
    stores.metadata.snapshot(f"in-{key.replace('/', '-')}", BUCKET)
    stores.answer(AllocateBlocks(*place, session, 20))
    stores.answer(CommitKey(*place, session, 25))


def have_files_of_their_own(copies: AuditedCopies, snapshots: Sequence[str]) -> None:
    """As rewritten checkpoints have."""
    for snapshot in snapshots:
        for file in Path(copies.snapshots[snapshot]).glob("*.sst"):
            content = file.read_bytes()
            file.unlink()
            file.write_bytes(content)


def by_the_rule_alone(copies: AuditedCopies) -> AuditReport:
    """Every run is judged by itself, in this process, and every row is read by RocksDB."""
    found = survey(copies, CheckpointRows)
    groups = {bucket_id: side_by_side(in_order(bucket)) for bucket_id, bucket in found.buckets.items()}
    trees = trees_of(found, groups)
    facts = (some for task in fact_tasks(found, groups, trees.reach, 3) for some in facts_of(found, task))
    return report_of(found, trees, judge_all(facts, found))


def plant(stores: AuditedStores) -> None:
    """Change rows behind the back of both services, so that there is a finding of each kind."""
    metadata, block_store = stores.metadata.store, stores.block_store
    keys = iter(
        [row for row in metadata.scan("fileTable", *EVERYTHING) if row_codec(KeyRow).decode(row[1]).blocks][::50]
    )

    def live() -> tuple[bytes, KeyRow, BlockRun]:
        key, value = next(keys)
        row = row_codec(KeyRow).decode(value)
        assert row.blocks
        return key, row, row.blocks

    def store(run: BlockRun, row: InventoryRow | None) -> None:
        value = None if row is None else row_codec(InventoryRow).encode(row)
        block_store.write({"inventoryTable": {inventory_key(run.container_id, run.first_local_id): value}})

    garbage = {key: row_codec(DeletedKeyRow).decode(value) for key, value in metadata.scan("deletedTable", *EVERYTHING)}
    held_rows = iter([(key, row) for key, row in garbage.items() if row.snapshots_before_death and row.key.blocks])
    for _ in range(3):
        _, _, dangling = live()
        store(dangling, None)
    key, row, damaged = live()
    bucket_id = int(key.split(b"/")[2])
    store(damaged, InventoryRow(bucket_id, replace(damaged, size_bytes=1)))
    free = local_id(0, 1, 0)  # the txn that made the volume has written no blocks
    store(BlockRun(0, free, 1, 1, 1), InventoryRow(bucket_id, BlockRun(0, free, 1, 1, 1)))
    key, row, _ = live()
    moved = b"/".join([*key.split(b"/")[:3], b"999999999", b"stray"])
    metadata.write({"fileTable": {key: None, moved: row_codec(KeyRow).encode(row)}})
    garbage_key, dead = next(held_rows)
    metadata.write({"deletedTable": {garbage_key: None}})
    garbage_key, dead = next(held_rows)
    claimed = ClaimedRow(b"", b"", dead)
    metadata.write(
        {"deletedTable": {garbage_key: None}, "reclaimTable": {garbage_key: row_codec(ClaimedRow).encode(claimed)}}
    )
    key, row, _ = live()
    prefix = garbage_key.rsplit(b"/", 2)[0]
    metadata.write(
        {
            "deletedTable": {
                b"%b/%016x/%016x" % (prefix, 5, row.object_id): row_codec(DeletedKeyRow).encode(
                    replace(dead, key=row, death=5)
                )
            }
        }
    )


def test_a_clean_shard_is_clean(session: SparkSession, stores: AuditedStores) -> None:
    told: list[tuple[int, str]] = []
    copies = stores.copies("clean")
    have_files_of_their_own(copies, ["snapshot-3", "snapshot-4"])
    (groups,) = groups_of(survey(copies, CheckpointRows)).values()
    by_rocksdb, together = groups
    assert by_rocksdb.files is None
    assert {4, 5} <= set(by_rocksdb.states)
    assert together.files is not None
    assert len(together.states) > SNAPSHOTS // 2
    report = audit(session, copies, lambda *progress: told.append(progress))
    assert report.is_clean, (report.examples, report.differences)
    assert report == by_the_rule_alone(copies)
    assert report.buckets[0].held.versions > 0
    assert report.buckets[0].pending.versions > 0
    percents = [percent for percent, _ in told]
    assert percents == sorted(percents)
    states, shared = len(by_rocksdb.states) + len(together.states), len(together.states)
    assert {doing for _, doing in told} == {f"reading {states} states, {shared} of them from files that they share"}


def test_each_kind_of_finding_is_reported_as_by_the_rule_alone(session: SparkSession, stores: AuditedStores) -> None:
    stores.do([PutKey(VOLUME, BUCKET, f"more/{number}", 10) for number in range(10)])
    plant(stores)
    copies = stores.copies("planted")
    report = audit(session, copies, lambda *_: None)
    expected = by_the_rule_alone(copies)
    assert set(expected.findings) == set(FindingKind)
    assert all(one.path for one in report.examples if one.kind is FindingKind.DANGLING)
    assert report == expected
    of_bucket = replace(copies, bucket=f"{VOLUME}/{BUCKET}")
    assert audit(session, of_bucket, lambda *_: None) == by_the_rule_alone(of_bucket)


def random_facts(random: Random) -> list[Fact]:
    """A few facts of a run: most belong together."""
    birth = random.choice([0, 5, 5, 5, 33, 36, 41])
    first = random.choice([birth, birth, 4]) << 16
    run = (3, first, 1, 1_024, 100)
    owner = (OF_RULE, 1, birth)
    masks = [
        ACTIVE | PRESENT | held(0, 1, 2),
        ACTIVE | PRESENT | held(2),
        ACTIVE | PRESENT,
        PRESENT,
        held(0, 1),
        held(1),
    ]
    masks += [PRESENT | UNEXPANDED | held(0, 1), held(0, 2), ACTIVE | PRESENT | held(0)]
    found: list[Fact] = [
        (0, *run, *owner, mask, b"/1/7/7/key") for mask in random.choices(masks, k=random.choice([0, 1, 1, 1, 2]))
    ]
    deaths = random.choices([1, 5, 9, 15, 25, 35], k=random.choice([0, 0, 1, 1, 2]))
    found += [(random.choice([1, 1, 2]), *run, *owner, death, b"/1/7/key") for death in deaths]
    copies = random.choices([BEFORE, AFTER, BEFORE | AFTER], [1, 1, 8], k=random.choice([0, 1, 1, 1, 1, 2]))
    found += [(3, *run, OF_RULE, 0, 0, seen, b"") for seen in copies]
    if found and random.random() < 0.2:  # one of them says something else
        place, number = random.choice([(5, 60), (5, 120), (3, 2), (7, 2), (8, 6)])
        one = list(found[-1])
        one[place] = number
        found[-1] = tuple(one)  # type: ignore[assignment]
    return found


def test_runs_that_are_alike_are_judged_as_each_of_them_would_be(session: SparkSession) -> None:
    random = Random(1)
    of_rule = shard(reported_local_id=34 << 16)
    bucket = of_rule.buckets[OF_RULE]
    by_run: dict[tuple[int, int], list[Fact]] = {}
    for number in range(1, 4_000):
        facts = [(*one[:1], number, *one[2:]) for one in random_facts(random)]
        if facts:
            by_run[number, facts[0][2]] = facts
    every = [fact for facts in by_run.values() for fact in facts]
    rows = [row for some in columns(every) for row in summed(replace(some, bucket=bucket)).to_pylist()]
    frame = session.createDataFrame([tuple(row.values()) for row in rows], from_arrow_schema(SUMMED))
    tally, odd, together = Tally(), list[tuple[int, int]](), 0
    unlisted = []
    runs = runs_of(frame, of_rule)
    for group in alike(runs):
        if not group.is_odd:
            judge_run(group.facts(of_rule), of_rule, tally, group.amount)
            together += group.row.versions
        elif group.run_id:
            odd.append(group.run_id)
        else:
            unlisted.append(group)
    listed = len(odd)
    odd += ids_of(runs, unlisted)
    assert len(odd) - listed == sum(group.row.versions for group in unlisted) > 0
    for one in odd:
        judge_run(by_run[one], of_rule, tally)
    expected = judge_all(columns(every), of_rule)
    assert len(odd) + together == len(by_run)
    assert min(len(odd), together) > 500
    assert comparable(tally) == comparable(expected)


def comparable(tally: Tally) -> object:
    """The sums; what snapshots show, by each snapshot."""
    sums = tally.buckets[OF_RULE]
    shown, grown = defaultdict[int, list[int]](lambda: [0, 0]), defaultdict[int, list[int]](lambda: [0, 0])
    for counted, into in ((sums.shown, shown), (sums.grown, grown)):
        for (holders, amount), place in itertools.product(counted.items(), range(3)):
            if holders >> place & 1:
                into[place][0] += amount.bytes
                into[place][1] += amount.redundancy_bytes
    names = ("live", "unexpanded", "held", "pending", "claimed", "stray", "uploads", "spare", "keys", "cells")
    return (
        {name: getattr(sums, name) for name in names}, shown, grown,
        tally.inventory, tally.inventory_after, tally.too_young, tally.findings,
    )  # fmt: skip


@pytest.mark.timeout(180)
def test_a_cluster_reports_the_same(stores: AuditedStores, tmp_path: Path) -> None:
    """Two executors, each a process of its own."""
    copies, output = stores.copies("cluster"), tmp_path / "report.json"
    audited = tmp_path / "audited.json"
    audited.write_text(json.dumps({"copies": asdict(copies), "output": str(output)}))
    with java_for_spark() as environment:
        command = ["-m", "streaming.audit", "--jars-directory", str(jars_directory() / "spark")]
        run_child_job(
            [sys.executable, *command, "--master", "local-cluster[2,1,1024]", str(audited)],
            tmp_path / "spark.log",
            lambda _: None,
            environment=environment,
        )
    assert TypeAdapter(AuditReport).validate_json(output.read_bytes()) == by_the_rule_alone(copies)
