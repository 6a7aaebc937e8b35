"""Writes the report of an Ozone Manager's database: who holds which blocks, and what its own figures say."""

from __future__ import annotations

import argparse
import re
import tempfile
from pathlib import Path

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Row, functions

from services.domain.words import counted
from services.lens.ozone.figures import (
    NOT_LOOKED_FOR_WITHOUT_A_STORE,
    NOTHING,
    SENTENCES,
    Amount,
    BucketSums,
    compared,
    unreachable,
)
from services.lens.ozone.layout import OzoneLocationError, directories_at
from services.lens.relation import DELETED_SNAPSHOT, LensBucket, LensFinding, Ref, RefKind
from streaming.lens.ozone.checkpoints import directory_of
from streaming.lens.ozone.plan import BucketPlan, Plan, make_plan
from streaming.lens.ozone.reader import FORMAT, OzoneDataSource
from streaming.lens.ozone.shared_blocks import each_block_once
from streaming.lens.writer import ReportWriter
from streaming.spark.child_job import say

MAX_LISTED = 10_000
_WORKERS_ERROR = re.compile(rf"{OzoneLocationError.__name__}: (.+)")
"""How Spark repeats the error of a worker."""
COUNTED = "-rows"
PARTITIONS_PER_CORE = 4
PLANNED, READ = 5, 80
"""Progress in percent after the plan, and after all tables have been read."""


def write(location: str, options: argparse.Namespace, writer: ReportWriter) -> None:
    """Read the databases at a location into a report."""
    with tempfile.TemporaryDirectory(prefix="deepclean-ozone-") as directory:
        scratch = Path(directory)
        plan = make_plan(directories_at(directory_of(location, scratch)), options.bucket, scratch)
        say(progress=PLANNED)
        rows = _read(writer, scratch)
        say(progress=READ)
        things = rows.where(functions.col("fact").isNull())
        shared = each_block_once(things)
        writer.add_things(shared.things)
        facts = rows.where(functions.col("fact").isNotNull())
        _report(writer, plan, facts, shared.disagreeing)


def _read(writer: ReportWriter, scratch: Path) -> DataFrame:
    """Read all tables once, into files: several questions follow."""
    session = writer.session
    session.dataSource.register(OzoneDataSource)
    found = str(scratch / "rows")
    partitions = PARTITIONS_PER_CORE * session.sparkContext.defaultParallelism
    reader = session.read.format(FORMAT).option("scratch", str(scratch)).option("partitions", partitions)
    try:
        reader.load().write.parquet(found)
    except (PySparkException, Py4JJavaError) as error:
        said = _WORKERS_ERROR.search(str(error))
        if said is None:
            raise
        raise OzoneLocationError(said[1]) from None
    return session.read.parquet(found)


def _report(writer: ReportWriter, plan: Plan, facts: DataFrame, disagreeing: DataFrame | None) -> None:
    sums = _sums(facts)
    listed, left_out = _listed(facts, plan)
    for row in disagreeing.collect() if disagreeing is not None else ():
        _add_disagreement(writer, plan, row)
    for bucket in plan.buckets:
        name = bucket.keys.name
        of_bucket = {key[1:]: amount for key, amount in sums.items() if key[0] == name}
        writer.add_bucket(_lens_bucket(bucket, of_bucket))
        writer.add_findings(_findings(bucket, of_bucket))
    writer.add_findings(listed)
    for note in plan.notes:
        writer.note(note)
    if left_out:
        writer.note(
            f"{left_out} findings of single keys and directories are left out: the {MAX_LISTED} largest are shown."
        )
    gone = sums.get(("", "without-bucket", ""))
    if gone is not None:
        writer.note(
            f"deletedTable has {gone.bytes} bytes ({gone.replicated_bytes} on disks) of buckets that do not exist "
            f"any more: they are in no bucket's figures, and Ozone's next pass frees them."
        )


def _add_disagreement(writer: ReportWriter, plan: Plan, row: Row) -> None:
    """Add a finding for blocks that count in one way of several, and a note, since other figures may be right."""
    if row.is_of_others:
        sentence = (
            f"Rows of several buckets name the same blocks ({counted(row.blocks, 'block')}): each counts once, in one "
            f"of these buckets. Ozone frees a block with the first of its rows."
        )
    else:
        sentence = (
            f"Several rows that different snapshots hold name the same blocks ({counted(row.blocks, 'block')}): each "
            f"counts once, as held by all of these snapshots. Ozone frees a block with the first of its rows."
        )
    next(bucket for bucket in plan.buckets if bucket.keys.name == row.bucket).notes.append(sentence)
    writer.add_findings([LensFinding("shared-block", row.bucket, "", "", row.bytes, row.replicated_bytes, sentence)])


Sums = dict[tuple[str, str, str], Amount]


def _sums(facts: DataFrame) -> Sums:
    """Return the sums by bucket, fact and store; there are a few for each store."""
    found: Sums = {}
    grouped = facts.where("path = ''").groupBy("bucket", "fact", "id")
    for row in grouped.agg(*(functions.sum(one).alias(one) for one in ("bytes", "replicated_bytes"))).collect():
        is_count = row.fact.endswith(COUNTED)
        key = (row.bucket, row.fact.removesuffix(COUNTED), row.id)
        amount = Amount(rows=row.bytes) if is_count else Amount(row.bytes, row.replicated_bytes)
        found[key] = found.get(key, NOTHING) + amount
    return found


def _listed(facts: DataFrame, plan: Plan) -> tuple[list[LensFinding], int]:
    """Return findings of single keys and directories, the largest ones first, and how many more there are."""
    incomplete = [bucket.keys.name for bucket in plan.buckets if not bucket.is_every_store_there]
    is_unknown = functions.col("bucket").isin(incomplete) & functions.col("fact").startswith("orphaned-")
    single = facts.where("path != ''").where(~is_unknown)
    names = {bucket.keys.name: bucket for bucket in plan.buckets}
    found = []
    for row in single.orderBy(functions.desc("replicated_bytes"), "path").limit(MAX_LISTED).collect():
        sentence = SENTENCES[row.fact]
        if row.runs:
            store = names[row.bucket].stores[names[row.bucket].held_places[row.runs[0].first]]
            sentence = sentence.replace("a snapshot", f"snapshot {store.snapshot.name if store.snapshot else ''}")
        found.append(LensFinding(row.fact, row.bucket, row.path, row.id, row.bytes, row.replicated_bytes, sentence))
    return found, single.count() - len(found)


DELETED = (
    "This snapshot is deleted. It holds nothing; versions that only it held are pending. Until Ozone purges it, Ozone "
    "frees nothing of the next snapshot (of the active namespace, if there is none)."
)


def _lens_bucket(bucket: BucketPlan, sums: dict[tuple[str, str], Amount]) -> LensBucket:
    refs = []
    figures = dict(bucket.figures)
    for number in bucket.held_places:
        snapshot = bucket.stores[number].snapshot
        assert snapshot is not None  # noqa: S101 - only the active store has none
        refs.append(Ref(snapshot.name, snapshot.id, time_ms=snapshot.creation_time_ms, status="SNAPSHOT_ACTIVE"))
        figures[f"{snapshot.name}/referencedSize"] = snapshot.referenced_bytes
        figures[f"{snapshot.name}/exclusiveSize"] = snapshot.exclusive_bytes
    name = "active" if all(ref.name != "active" for ref in refs) else "active namespace"
    refs.append(Ref(name, "", RefKind.ACTIVE, is_droppable=False))
    remarks = []
    for kind, *nouns in (("open-key", "unfinished key"), ("upload-part", "part of an upload", "parts of uploads")):
        amount = sums.get((kind, ""), NOTHING)
        if amount.rows:
            sizes = "the size of a block until it is committed" if kind == "open-key" else "their size"
            remarks.append(
                f"The live bytes include {counted(amount.rows, *nouns)} with {amount.bytes} bytes "
                f"({amount.replicated_bytes} on disks), {sizes}; no snapshot holds these bytes."
            )
    not_looked_for = () if bucket.is_every_store_there else NOT_LOOKED_FOR_WITHOUT_A_STORE
    return LensBucket(bucket.keys.name, tuple(refs), tuple(bucket.notes), tuple(remarks), figures, not_looked_for)


def _findings(bucket: BucketPlan, sums: dict[tuple[str, str], Amount]) -> list[LensFinding]:
    name = bucket.keys.name
    deleted = [store.snapshot for store in bucket.stores if store.snapshot and store.snapshot.is_deleted]
    found = [LensFinding(DELETED_SNAPSHOT, name, one.name, one.id, 0, 0, DELETED) for one in deleted]
    found += list(
        compared(
            name,
            bucket.figures,
            BucketSums(
                used=sums.get(("used", ""), NOTHING),
                parts=sums.get(("used-parts", ""), NOTHING),
                directories=sums.get(("directories", ""), NOTHING).rows,
                snapshot_used=sums.get(("snapshot-used", ""), NOTHING),
                is_every_store_there=bucket.is_every_store_there,
            ),
            is_file_system=bucket.keys.is_file_system,
        )
    )
    for (fact, number), amount in sorted(sums.items()):
        if fact == "unreachable":
            snapshot = bucket.stores[int(number)].snapshot
            found.append(unreachable(name, amount, snapshot.name if snapshot else ""))
    for problem in bucket.chain_problems:
        sentence = (
            f"{problem}. Ozone stops garbage collection of all buckets: ozone repair om snapshot chain sets links."
        )
        found.append(LensFinding("broken-chain", name, "", "", 0, 0, sentence))
    return found
