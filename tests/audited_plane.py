"""Copies of a plane in memory for an audit, made in its order, and what is planted for one to find."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import islice

from schemas.audit_report import AuditReport
from schemas.records import BlockRun, InventoryRow, ScmState, SnapshotListRow
from schemas.stored_rows import row_codec
from services.mock_scm.sequences import scm_state
from services.mock_scm.tables import INVENTORY_TABLE, SCM_STATE_TABLE, STATE_KEY, inventory_key
from services.plane.in_memory.plane import InMemoryPlane
from services.storage.memory import MemoryReader, MemoryStore
from services.storage.tables import TablesReader
from streaming.audit.blocks import Tally, judge_run
from streaming.audit.facts import Fact, FactKind, Facts, fact_tasks, facts_of
from streaming.audit.result import report_of, trees_of
from streaming.audit.shard import AuditedCopies, AuditedShard, survey
from streaming.audit.states import groups_of
from streaming.rocksdb.checkpoint_rows import Row


class CopiedRows:
    """A copy in memory, read as a checkpoint is."""

    def __init__(self, reader: MemoryReader) -> None:
        self._reader = reader

    def scan(self, family: str, start: bytes, end: bytes) -> Iterator[Row]:
        return self._reader.scan(family, start, end)

    def chunks(self, family: str, start: bytes, end: bytes, most: int = 100) -> Iterator[list[Row]]:
        rows = self.scan(family, start, end)
        while chunk := list(islice(rows, most)):
            yield chunk

    def boundaries(self, family: str, start: bytes, end: bytes, parts: int) -> set[bytes]:
        """Cuts in the middle of what is there, so that parts have to be put together."""
        keys = [key for key, _ in self._reader.scan(family, start, end)]
        return {keys[len(keys) * part // (parts + 1)] for part in range(1, parts + 1)} if keys else set()

    def table_files(self) -> None:
        return None


def judge_all(facts: Iterable[Facts], shard: AuditedShard) -> Tally:
    """Every run is judged by itself, without Spark; ``facts`` has all facts of each run."""
    by_run: defaultdict[tuple[int, int], list[Fact]] = defaultdict(list)
    tally = Tally()
    for some in facts:
        for fact in some.rows():
            if some.kind < FactKind.NAMES:
                by_run[fact[1], fact[2]].append(fact)
            else:
                tally.count(some.kind, fact[6], fact[9])
    for of_run in by_run.values():
        judge_run(of_run, shard, tally)
    return tally


@dataclass(slots=True)
class MemoryAudit:
    """An audit of one shard under way: its three copies are made one by one, and anything may happen between them."""

    plane: InMemoryPlane
    shard: int = 0
    bucket: str = ""
    snapshots: dict[str, str] = field(default_factory=dict)
    _copies: dict[str, MemoryReader] = field(default_factory=dict)

    def _store(self, name: str) -> MemoryStore:
        return self.plane.processes[name, self.shard].store

    def copy_inventory_before(self) -> None:
        self._copies["before"] = self._store("mock_scm").clone()

    def copy_namespace(self) -> None:
        store = self._store("metadata")
        self._copies["namespace"] = store.clone()
        rows = TablesReader(store).reader.scan("snapshotListTable", b"/", b"0")
        for row in (row_codec(SnapshotListRow).decode(value) for _, value in rows):
            if row.is_live:
                self._copies[row.snapshot_id] = store.open_checkpoint(row.snapshot_id)
                self.snapshots[row.snapshot_id] = row.snapshot_id

    def copy_inventory_after(self) -> None:
        self._copies["after"] = self._store("mock_scm").clone()

    @contextmanager
    def opened(self, place: str, _: Sequence[str]) -> Iterator[CopiedRows]:
        yield CopiedRows(self._copies[place])

    @property
    def copies(self) -> AuditedCopies:
        return AuditedCopies(self.shard, "before", "namespace", self.snapshots, "after", self.bucket)

    def report(self) -> AuditReport:
        """Audit the copies as the job does, in this process and without Spark."""
        shard = survey(self.copies, self.opened)
        groups = groups_of(shard)
        trees = trees_of(shard, groups)
        facts = (some for task in fact_tasks(shard, groups, trees.reach, 3) for some in facts_of(shard, task))
        return report_of(shard, trees, judge_all(facts, shard))


def audit_at_once(plane: InMemoryPlane, shard: int = 0, bucket: str = "") -> AuditReport:
    """An audit during which nothing happens."""
    audit = MemoryAudit(plane, shard, bucket)
    audit.copy_inventory_before()
    audit.copy_namespace()
    audit.copy_inventory_after()
    return audit.report()


def inventory_of(store: MemoryStore) -> list[InventoryRow]:
    """All that a block store has."""
    return [row for _, row in TablesReader(store).table(INVENTORY_TABLE).scan(b"", b"\xff")]


def lose(store: MemoryStore, run: BlockRun) -> None:
    """Take blocks out of a block store behind everybody's back."""
    _change(store, run, None)


def leak(store: MemoryStore, bucket_id: int, run: BlockRun) -> None:
    """Put blocks into a block store that nobody has written."""
    _change(store, run, row_codec(InventoryRow).encode(InventoryRow(bucket_id, run)))


def _change(store: MemoryStore, run: BlockRun, row: bytes | None) -> None:
    state = scm_state(TablesReader(store))
    size_bytes, blocks = (-run.size_bytes, -run.block_count) if row is None else (run.size_bytes, run.block_count)
    changed = replace(
        state,
        # What is in the store was reported to it.
        mark_local_id=state.mark_local_id if row is None else max(state.mark_local_id, run.first_local_id),
        inventory_bytes=state.inventory_bytes + size_bytes,
        inventory_blocks=state.inventory_blocks + blocks,
    )
    store.write(
        {
            INVENTORY_TABLE.name: {inventory_key(run.container_id, run.first_local_id): row},
            SCM_STATE_TABLE.name: {STATE_KEY: row_codec(ScmState).encode(changed)},
        }
    )
