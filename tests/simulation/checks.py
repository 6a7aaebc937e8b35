"""What must be so in one shard when it is quiet: nothing lost, nothing left, everything counted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from schemas.records import BlockRun, KeyRow, Replication, SnapshotInfo, SnapshotStatus
from services.directory_deletion.tables import TREE_TABLE, TreeState
from services.domain.refusals import CommandError
from services.key_deletion.tables import SWEEP_TABLE, TASK_TABLE, WAITING_TABLE
from services.metadata.diffs.differences import compare_all, compare_changes, opened_states
from services.metadata.namespace.key_parts import parts_of
from services.metadata.namespace.key_versions import versions_of
from services.metadata.reads import queries
from services.metadata.state.changed_rows import unneeded_changes
from services.metadata.state.tables import (
    ACCOUNT_TABLE,
    BUCKET_TABLE,
    CHANGED_TABLE,
    DELETED_DIRECTORY_TABLE,
    DELETED_TABLE,
    DIRECTORY_TABLE,
    FILE_TABLE,
    KEY_PART_TABLE,
    KEY_TABLE,
    KEY_VERSION_TABLE,
    OPEN_FILE_TABLE,
    OPEN_KEY_TABLE,
    PART_TABLE,
    RECLAIM_TABLE,
    SHADOW_TABLE,
    SNAPSHOT_RENAMED_TABLE,
    SPACE_TABLE,
    UNEXPANDED_TABLE,
    UPLOAD_TABLE,
)
from services.mock_scm.sequences import scm_state
from services.mock_scm.tables import INVENTORY_TABLE
from services.plane.in_memory.judge import WAITING_ENTRIES
from services.snapshots.state.tables import PENDING_TABLE, SNAPSHOT_INFO_TABLE
from services.storage.tables import TableDefinition, TablesReader
from tests.replicated_sizes import replicated_run
from tests.simulation.errors import AccountError, AnswerError, LivenessError, SafetyError
from tests.simulation.link_checks import check_links
from tests.simulation.model import CapturedView, Incarnation, ShardModel
from tests.simulation.plane import SimulatedPlane
from tests.simulation.rights_checks import check_rights

_AGAIN = (TreeState.WAITING, TreeState.EXPANDING)
"""Steps in which a directory may be that is expanded already, and was sent once more."""
Cell = tuple[int, int, int, int, int, int]
_EMPTY: Cell = (0, 0, 0, 0, 0, 0)


def rows(tables: TablesReader, table: TableDefinition[Any]) -> list[Any]:
    """All rows of a table."""
    return [row for _, row in tables.table(table).scan()]


@dataclass(slots=True)
class QuietCheck:
    """Everything that is asked of one quiet shard."""

    plane: SimulatedPlane
    model: ShardModel
    names: dict[str, tuple[str, str, str]]
    """By id the volume, bucket and name of every snapshot that clients made and did not delete."""
    asked: Callable[[str], AbstractContextManager[None]]
    """Lets an oracle speak."""

    def run(self) -> None:
        """Ask all of it."""
        for oracle, check in (
            ("inventory_at_rest", self.check_inventory),
            ("at_rest", self.check_nothing_is_on_its_way),
            ("at_rest", self.check_garbage),
            ("listings", self.check_listings),
            ("listings", lambda: check_links(self._tables("metadata"), self.model)),
            ("listings", lambda: check_rights(self._tables("metadata"), self.model)),
            ("diffs", self.check_diffs),
            ("figures", self.check_figures),
            ("accounts", self.check_space),
            ("figures", self.check_snapshots),
        ):
            with self.asked(oracle):
                check()

    @property
    def _shard(self) -> int:
        return self.model.shard

    def _tables(self, name: str) -> TablesReader:
        return self.plane.tables(name, self._shard)

    def _live(self) -> list[Incarnation]:
        return self.model.live_buckets()

    def check_inventory(self) -> None:
        """SCM has the blocks of every held version, and no other ones."""
        there = {row.blocks for row in rows(self._tables("mock_scm"), INVENTORY_TABLE)}
        runs = self.model.runs
        unknown = [number for number in self.model.held if number not in runs]
        if unknown:
            raise LivenessError(f"shard {self._shard}: nobody was told the blocks of {unknown}")
        held = {runs[number] for number in self.model.held}
        if held - there:
            raise SafetyError(f"shard {self._shard}: held but not in SCM: {self._named(held - there)}")
        if there - held:
            raise LivenessError(f"shard {self._shard}: held by nobody but still in SCM: {self._named(there - held)}")

    def _named(self, runs: set[Any]) -> list[Any]:
        pieces = [(run, self.model.pieces.find(run)) for run in sorted(runs, key=str)[:3]]
        return [(run, piece and (piece.birth, self.model.named(piece.number))) for run, piece in pieces]

    def check_nothing_is_on_its_way(self) -> None:
        """No task, sweep, waiting entry, unexpanded directory, count of a shadow or half-made snapshot is left."""
        emptied: tuple[tuple[str, TableDefinition[Any]], ...] = (
            ("metadata", RECLAIM_TABLE),
            ("metadata", UNEXPANDED_TABLE),
            ("metadata", SHADOW_TABLE),
            ("streaming", WAITING_ENTRIES),
            ("key_deletion", TASK_TABLE),
            ("key_deletion", WAITING_TABLE),
            ("snapshots", PENDING_TABLE),
        )
        for name, table in emptied:
            left = rows(self._tables(name), table)
            if left:
                raise LivenessError(f"shard {self._shard}: {name} has left in {table.name}: {left[:3]}")
        sweeps = [row for row in rows(self._tables("key_deletion"), SWEEP_TABLE) if row.snapshot_id]
        if sweeps:  # one over everything begins by the clock alone
            raise LivenessError(f"shard {self._shard}: stores are being swept: {sweeps[:3]}")
        trees = rows(self._tables("directory_deletion"), TREE_TABLE)
        # The sweep over everything sends held rows once more, and so has them expanded again, which does nothing.
        expanded = {
            (row.directory.object_id, row.death)
            for row in rows(self._tables("metadata"), DELETED_DIRECTORY_TABLE)
            if row.is_expanded
        }
        left = [
            row
            for row in trees
            if row.state != TreeState.BLOCKED
            and row.attempt == 1
            and not (row.state in _AGAIN and (row.object_id, row.death) in expanded)
        ]
        if left:
            raise LivenessError(f"shard {self._shard}: trees are still on their way: {left[:3]}")

    def check_garbage(self) -> None:
        """The garbage tables hold the rows of what snapshots hold, and no other ones."""
        metadata = self._tables("metadata")
        expected = {
            (incarnation.bucket_id, piece.birth, piece.run)
            for incarnation in self.model.incarnations
            for piece in (self.model.pieces.by_number[number] for number in self.model.dead_numbers(incarnation))
            if self.model.holders(incarnation, piece.number)
        }
        rows_there = list(metadata.table(DELETED_TABLE).scan())
        found = {(self._bucket_id(key), row.key.birth, row.key.blocks) for key, row in rows_there}
        if len(found) != len(rows_there):
            raise LivenessError(f"shard {self._shard}: deletedTable has the same blocks twice: {rows_there}")
        if found != expected:
            raise LivenessError(
                f"shard {self._shard}: deletedTable has too many {found - expected}, too few {expected - found}"
            )
        counted: tuple[tuple[TableDefinition[Any], dict[int, int]], ...] = (
            (DELETED_DIRECTORY_TABLE, {i.bucket_id: len(self.model.left_directories(i)) for i in self._all()}),
            (SNAPSHOT_RENAMED_TABLE, {i.bucket_id: len(self.model.left_renames(i)) for i in self._all()}),
        )
        for table, counts in counted:
            there = Counter(self._bucket_id(key) for key, _ in metadata.table(table).scan())
            if there != Counter({bucket_id: count for bucket_id, count in counts.items() if count}):
                raise LivenessError(f"shard {self._shard}: {table.name} has {dict(there)} rows, expected {counts}")

    def _all(self) -> list[Incarnation]:
        return self.model.incarnations

    def _bucket_id(self, key: bytes) -> int:
        return int(key.split(b"/")[2])

    def check_listings(self) -> None:
        """The active namespace and every snapshot list what the model lists."""
        metadata = self._tables("metadata")
        reachable = 0
        for incarnation in self._live():
            view = incarnation.bucket.view()
            reachable += len(view.keys) + len(view.directories)
            self._check_listing("active", metadata, incarnation, view.keys, view.directories)
            self._check_versions("active", metadata, incarnation, view.keys, incarnation.noncurrent)
            for captured in incarnation.snapshots.values():
                checkpoint = TablesReader(
                    self.plane.processes["metadata", self._shard].store.open_checkpoint(captured.snapshot_id)
                )
                self._check_listing(captured.snapshot_id, checkpoint, incarnation, captured.keys, captured.directories)
                self._check_versions(captured.snapshot_id, checkpoint, incarnation, captured.keys, captured.noncurrent)
        there = sum(len(rows(metadata, table)) for table in (KEY_TABLE, FILE_TABLE, DIRECTORY_TABLE))
        if there != reachable:
            raise LivenessError(f"shard {self._shard}: {there} rows are in the namespace, {reachable} can be reached")
        self._check_writes(metadata)
        checkpoints = set(self.plane.processes["metadata", self._shard].store.checkpoints())
        live = {snapshot_id for incarnation in self._live() for snapshot_id in incarnation.snapshots}
        if checkpoints != live:
            raise LivenessError(f"shard {self._shard}: checkpoints {checkpoints}, live snapshots {live}")

    def _check_writes(self, metadata: TablesReader) -> None:
        """There are as many rows of open keys, uploads, parts, and further runs of live versions as there must be."""
        writes, model = self.model.writes, self.model
        live = [number for one in self._live() for number in model.active_versions(one)]
        expected = {
            OPEN_KEY_TABLE.name: sum(not one.incarnation.bucket.has_directories for one in writes.sessions.values()),
            OPEN_FILE_TABLE.name: sum(one.incarnation.bucket.has_directories for one in writes.sessions.values()),
            UPLOAD_TABLE.name: len(writes.uploads),
            PART_TABLE.name: sum(len(upload.parts) for upload in writes.uploads.values()),
            KEY_PART_TABLE.name: sum(max(0, len(model.contents[number]) - 1) for number in live),
            KEY_VERSION_TABLE.name: len(live) - sum(len(one.bucket.view().keys) for one in self._live()),
        }
        tables = (OPEN_KEY_TABLE, OPEN_FILE_TABLE, UPLOAD_TABLE, PART_TABLE, KEY_PART_TABLE, KEY_VERSION_TABLE)
        found = {table.name: len(rows(metadata, table)) for table in tables}
        if found != expected:
            raise LivenessError(f"shard {self._shard}: rows of what is written are {found}, expected {expected}")

    def _check_versions(
        self, store: str, tables: TablesReader, incarnation: Incarnation, keys: Any, noncurrent: Any
    ) -> None:
        """Each key has the noncurrent versions that it must have, each with its birth, and counts their rows."""
        bucket, model = queries.get_bucket(tables, incarnation.volume, incarnation.name), self.model
        ids = (bucket.volume_id, bucket.object_id)
        for path, version in keys.items():
            key = queries.stat(tables, bucket, path)
            assert isinstance(key, KeyRow)
            there = versions_of(tables, ids, key)
            found = [(one.birth, one.tag) for one in there]
            numbers = noncurrent.get(model.thing_of(version), ())
            expected = sorted((model.version_births[one], model.names.versions[one].tag) for one in numbers)
            if any((one.parent_id, one.name) != (key.parent_id, key.name) for one in there):
                raise AnswerError(
                    f"{incarnation.volume}/{incarnation.name} {store}: {path} is at another place: {there}"
                )
            counted = sum(1 + len(parts_of(tables, ids, one)) for one in there)
            if found != expected or key.version_rows != counted:
                raise AnswerError(
                    f"{incarnation.volume}/{incarnation.name} {store}: {path} counts {key.version_rows} and has the "
                    f"versions {found}, expected {expected}"
                )

    def _check_listing(
        self, store: str, tables: TablesReader, incarnation: Incarnation, keys: Any, directories: Any
    ) -> None:
        bucket = queries.get_bucket(tables, incarnation.volume, incarnation.name)
        entries = list(queries.walk(tables, bucket))
        found = {entry.path: (entry.tag, entry.size_bytes) for entry in entries if not entry.is_directory}
        expected = {path: (version.tag, version.size_bytes) for path, version in keys.items()}
        if bucket.object_id != incarnation.bucket_id or found != expected:
            raise AnswerError(f"{incarnation.volume}/{incarnation.name} {store} lists {found}, expected {expected}")
        if sorted(entry.path for entry in entries if entry.is_directory) != list(directories):
            raise AnswerError(f"{incarnation.volume}/{incarnation.name} {store} has other directories: {entries}")

    def check_diffs(self) -> None:
        """What changed since a snapshot is all that differs; what no diff can ask for is gone."""
        store = self.plane.processes["metadata", self._shard].store
        for incarnation in self._live():
            names = [*incarnation.snapshots, ""]
            oldest = names[0]
            for pair in {*pairwise(names), *pairwise(reversed(names)), (oldest, ""), ("", oldest)}:
                where = f"{incarnation.volume}/{incarnation.name} {pair}"
                try:
                    with opened_states(store, incarnation.volume, incarnation.name, *pair) as states:
                        quick = compare_changes(states.before, states.after, states.changes())
                        if quick != (full := compare_all(states.before, states.after)):
                            raise AnswerError(f"{where} differ in {full}, not {quick}")
                except CommandError as error:
                    raise AnswerError(f"{where} cannot be compared: {error}") from error
        for start, end in unneeded_changes(self._tables("metadata")).values():
            left = list(store.scan(CHANGED_TABLE.name, start, end))
            if left:
                raise LivenessError(f"shard {self._shard}: changedTable has what no diff can ask for: {left[:3]}")

    def check_figures(self) -> None:
        """The used figures of every bucket equal a recount."""
        buckets = [row for row in rows(self._tables("metadata"), BUCKET_TABLE) if not row.source_bucket]
        found = {
            row.object_id: (
                row.used_bytes,
                row.used_namespace,
                row.snapshot_used_bytes,
                row.snapshot_used_namespace,
                row.used_redundancy_bytes,
                row.snapshot_used_redundancy_bytes,
                row.upload_redundancy_bytes,
                row.spare_redundancy_bytes,
            )
            for row in buckets
        }
        expected = {}
        for incarnation in self._live():
            view = incarnation.bucket.view()
            held = [n for n in self.model.dead_numbers(incarnation) if self.model.holders(incarnation, n)]
            pieces, active = self.model.pieces, self.model.active_numbers(incarnation)
            parts = self.model.writes.in_parts_of(incarnation)
            expected[incarnation.bucket_id] = (
                pieces.bytes_of(active) + pieces.bytes_of(parts),
                len(view.keys) + len(view.directories),
                pieces.bytes_of(set(held)),
                len(held) + len(self.model.left_directories(incarnation)),
                pieces.redundancy_of(active) + pieces.redundancy_of(parts),
                pieces.redundancy_of(set(held)),
                pieces.redundancy_of(parts),
                0,  # spare blocks are freed by now
            )
        if found != expected:
            raise AccountError(f"shard {self._shard}: used figures {found}, expected {expected}")

    def expected_cells(self, incarnation: Incarnation) -> dict[tuple[int, int], Cell]:
        """The space matrix of a bucket, counted from copies."""
        cells: dict[tuple[int, int], Cell] = {}

        def add(holders: list[CapturedView], cell: Cell) -> None:
            key = (holders[0].txn, holders[-1].txn) if holders else (0, 0)
            before = cells.get(key, _EMPTY)
            cells[key] = (
                before[0] + cell[0],
                before[1] + cell[1],
                before[2] + cell[2],
                before[3] + cell[3],
                before[4] + cell[4],
                before[5] + cell[5],
            )

        for number in self.model.dead_numbers(incarnation):
            holders = self.model.holders(incarnation, number)
            if holders:
                pieces = self.model.pieces
                add(holders, (pieces.by_number[number].size_bytes, 1, 1, 0, 0, pieces.redundancy_of({number})))
        for holders in self.model.left_directories(incarnation):
            add(holders, (0, 0, 0, 1, 0, 0))
        for holders in self.model.left_renames(incarnation):
            add(holders, (0, 0, 0, 0, 1, 0))
        return cells

    def check_space(self) -> None:
        """The matrix equals a recount, and the accounts equal SCM's inventory, to the byte."""
        metadata = self._tables("metadata")
        found: dict[int, dict[tuple[int, int], Cell]] = {}
        for key, cell in metadata.table(SPACE_TABLE).scan():
            bucket_id = int(key.split(b"/")[1])
            found.setdefault(bucket_id, {})[cell.first_holder, cell.last_holder] = (
                cell.bytes,
                cell.versions,
                cell.key_rows,
                cell.directory_rows,
                cell.rename_rows,
                cell.redundancy_bytes,
            )
        expected = {i.bucket_id: cells for i in self._all() if (cells := self.expected_cells(i))}
        if found != expected:
            raise AccountError(f"shard {self._shard}: space matrix {found}, expected {expected}")
        live = sum(row.used_bytes for row in rows(metadata, BUCKET_TABLE))
        # A bucket that was deleted has no figures.
        gone = (one for one in self._all() if one.is_deleted)
        live += sum(self.model.pieces.bytes_of(self.model.writes.in_parts_of(one)) for one in gone)
        held = sum(cell[0] for cells in found.values() for cell in cells.values())
        accounts = rows(metadata, ACCOUNT_TABLE)
        claimed = sum(account.claimed_bytes for account in accounts)
        freed = sum(account.freed_bytes for account in accounts)
        inventory = scm_state(self._tables("mock_scm")).inventory_bytes
        if live + held + claimed != inventory:
            raise AccountError(
                f"shard {self._shard}: live {live} + held {held} + claimed {claimed} is not SCM's {inventory}"
            )
        written = self.model.seen_bytes
        if written != inventory + freed:
            raise AccountError(f"shard {self._shard}: written {written}, there {inventory}, freed {freed}")
        left = sum(row.used_redundancy_bytes for row in rows(metadata, BUCKET_TABLE))
        gone = (one for one in self._all() if one.is_deleted)
        left += sum(self.model.pieces.redundancy_of(self.model.writes.in_parts_of(one)) for one in gone)
        left += sum(cell[5] for cells in found.values() for cell in cells.values())
        left += sum(account.claimed_redundancy_bytes + account.freed_redundancy_bytes for account in accounts)
        if left != (made := self.model.seen_redundancy):
            raise AccountError(f"shard {self._shard}: {left} bytes of redundancy are accounted for, not {made}")

    def check_snapshots(self) -> None:
        """SnapshotInfo of every live snapshot: names, chains, sizes, flags; and no other rows."""
        infos = {row.snapshot_id: row for row in rows(self._tables("snapshots"), SNAPSHOT_INFO_TABLE)}
        captured = {view.snapshot_id: (i, view) for i in self._live() for view in i.snapshots.values()}
        if set(self.names) != set(captured):
            raise AnswerError(f"shard {self._shard}: clients made {self.names}, metadata has {list(captured)}")
        if set(infos) != set(captured):
            raise LivenessError(f"shard {self._shard}: rows of {list(infos)}, live are {list(captured)}")
        in_order = sorted(captured.values(), key=lambda pair: pair[1].txn)
        global_previous = ""
        path_previous: dict[int, str] = {}
        for incarnation, view in in_order:
            previous = (path_previous.get(incarnation.bucket_id, ""), global_previous)
            self._check_snapshot(infos[view.snapshot_id], incarnation, view, previous)
            path_previous[incarnation.bucket_id] = global_previous = view.snapshot_id

    def _check_snapshot(
        self, info: SnapshotInfo, incarnation: Incarnation, view: CapturedView, previous: tuple[str, str]
    ) -> None:
        exclusive_bytes = self.model.exclusive_bytes(incarnation, view)
        expected = SnapshotInfo(
            snapshot_id=view.snapshot_id,
            name=self.names[view.snapshot_id][2],
            volume=incarnation.volume,
            bucket=incarnation.name,
            status=SnapshotStatus.SNAPSHOT_ACTIVE,
            creation_time_ms=info.creation_time_ms,
            deletion_time_ms=-1,
            path_previous_snapshot_id=previous[0],
            global_previous_snapshot_id=previous[1],
            snapshot_path=f"{incarnation.volume}/{incarnation.name}",
            has_deep_cleaned_keys=True,
            has_deep_cleaned_directories=True,
            referenced_bytes=view.referenced_bytes,
            referenced_replicated_bytes=view.referenced_replicated_bytes,
            exclusive_bytes=exclusive_bytes,
            exclusive_replicated_bytes=self.model.pieces.replicated_bytes_of(
                self.model.exclusive_numbers(incarnation, view)
            ),
            create_txn=view.txn,
            last_txn=info.last_txn,
            bucket_id=incarnation.bucket_id,
            ordinal=view.ordinal,
            chain_version_of_reset=info.chain_version_of_reset,
            owner=view.owner,
        )
        if info != expected:
            raise AccountError(f"shard {self._shard}: {_differences(info, expected)} in {info}")


def _differences(found: Any, expected: Any) -> str:
    names = [name for name in found.__dataclass_fields__ if getattr(found, name) != getattr(expected, name)]
    return ", ".join(f"{name} is {getattr(found, name)!r}, not {getattr(expected, name)!r}" for name in names)


def check_accounts(plane: SimulatedPlane, model: ShardModel) -> None:
    """At any moment of metadata's log: live + held + pending + claimed + freed is all that was ever written."""
    metadata = plane.tables("metadata", model.shard)
    runs = [row.blocks for table in (KEY_TABLE, FILE_TABLE, KEY_VERSION_TABLE) for row in rows(metadata, table)]
    runs += [row.blocks for row in rows(metadata, KEY_PART_TABLE)]
    runs += [run.blocks for row in rows(metadata, PART_TABLE) for run in row.runs]
    live_runs = [run for run in runs if run is not None]
    live = sum(run.size_bytes for run in live_runs)
    cells = sum(cell.bytes for cell in rows(metadata, SPACE_TABLE))
    accounts = rows(metadata, ACCOUNT_TABLE)
    claimed = sum(account.claimed_bytes for account in accounts)
    freed = sum(account.freed_bytes for account in accounts)
    claimed_rows = sum(row.version.key.size_bytes for row in rows(metadata, RECLAIM_TABLE))
    written = model.seen_bytes
    if claimed != claimed_rows or live + cells + claimed + freed != written:
        raise AccountError(
            f"shard {model.shard}: live {live} + held and pending {cells} + claimed {claimed} (rows {claimed_rows}) "
            f"+ freed {freed} is not {written}, all that was written"
        )
    redundancy = (
        sum(map(_redundancy, live_runs)),
        sum(cell.redundancy_bytes for cell in rows(metadata, SPACE_TABLE)),
        sum(account.claimed_redundancy_bytes for account in accounts),
        sum(account.freed_redundancy_bytes for account in accounts),
    )
    if sum(redundancy) != model.seen_redundancy:
        raise AccountError(
            f"shard {model.shard}: redundancy of live, dead, claimed and freed blocks {redundancy} is not "
            f"{model.seen_redundancy}, that of all that was written"
        )


def _redundancy(run: BlockRun) -> int:
    replication = list(Replication)[run.container_id >> 48]
    return replicated_run(replication, run.block_count, run.block_size_bytes, run.size_bytes) - run.size_bytes
