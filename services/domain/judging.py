"""Judges a list of deleted entries with the pure rule: the Spark job's judgement of a batch, in plain Python.

The plane in one process and the simulator use it, and tests compare the Spark job with it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import TypeVar

from schemas.records import DeletedKind, DirectoryVerdict, JudgedDirectory, PurgeKeys, SweepResult, SweptParts
from services.domain.chain_view import ChainView, UnknownDeathError
from services.domain.errors import PrematureError
from services.domain.reclaimability import LifetimeError, Verdict
from services.domain.row_columns import DeletedEntry, Row, names_of_kind

ROWS_PER_MESSAGE = 1_000
"""Maximum rows in one message of a purge topic."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class LoggedEntry:
    """A deleted entry with the offset of its message in the partition."""

    offset: int
    entry: DeletedEntry


@dataclass(frozen=True, slots=True)
class RefusedEntry:
    """An entry that cannot be judged: its row is kept."""

    logged: LoggedEntry
    error: str
    message: str


@dataclass(slots=True)
class JudgedBatch:
    """The messages to send about a list of entries, and the refused entries."""

    purge_keys: list[PurgeKeys] = field(default_factory=list)
    directory_verdicts: list[DirectoryVerdict] = field(default_factory=list)
    sweep_results: list[SweepResult] = field(default_factory=list)
    refused: list[RefusedEntry] = field(default_factory=list)


@dataclass(slots=True)
class _SweepPart:
    """The counts of one sweep page, as far as its entries are in this batch."""

    reclaimable_rows: int = 0
    reclaimable_directories: int = 0
    rows: Counter[tuple[int, int, int]] = field(default_factory=Counter)
    """Rows by txn, number and offset of the message: a message that came twice is counted at one offset only."""


def judge_batch(entries: Sequence[LoggedEntry], view: ChainView) -> JudgedBatch:
    """Judge entries of one shard with a view whose chain version is at least that of each entry.

    Raises:
        PrematureError: an entry has a higher chain version than the view.
    """
    batch = JudgedBatch()
    rows: dict[tuple[DeletedKind, bool], list[tuple[Row, int]]] = {}
    directories: list[JudgedDirectory] = []
    parts: dict[tuple[int, int], _SweepPart] = {}
    for logged in entries:
        entry = logged.entry
        is_reclaimable = _judge(logged, view, batch)
        if entry.sweep_id:
            _count(parts, logged, is_reclaimable=bool(is_reclaimable))
        if is_reclaimable is None:
            continue
        row = (entry.bucket_id, entry.object_id, entry.birth, entry.death)
        if entry.kind is DeletedKind.DIRECTORY:
            directories.append(JudgedDirectory(*row, entry.snapshots_before_death, is_reclaimable))
        elif is_reclaimable:
            rows.setdefault((entry.kind, entry.sweep_id != 0), []).append((row, entry.snapshots_before_death))
    for (kind, is_sweep), found in rows.items():
        for some in _slices(found):
            names = names_of_kind(kind, [row for row, _ in some])
            befores = tuple(before for _, before in some)
            batch.purge_keys.append(PurgeKeys(view.version, names, befores, None, is_sweep))
    for judged in _slices(directories):
        batch.directory_verdicts.append(DirectoryVerdict(view.version, judged))
    for (sweep_id, sweep_page), part in parts.items():
        batch.sweep_results.append(_sweep_result(sweep_id, sweep_page, part, view.version))
    return batch


def _judge(logged: LoggedEntry, view: ChainView, batch: JudgedBatch) -> bool | None:
    """Return whether no snapshot holds the row; add a refusal and return None when that cannot be decided."""
    entry = logged.entry
    if entry.chain_version > view.version:
        raise PrematureError(
            f"The entry at offset {logged.offset} was sent at chain version {entry.chain_version}, but the view is at "
            f"{view.version}: read gc.snapshot-chain further, then judge the entry again."
        )
    try:
        verdict = view.judge(entry.bucket_id, entry.birth, entry.death, entry.snapshots_before_death)
    except (UnknownDeathError, LifetimeError) as error:
        batch.refused.append(RefusedEntry(logged, type(error).__name__, str(error)))
        return None
    return verdict is Verdict.RECLAIMABLE


def _count(parts: dict[tuple[int, int], _SweepPart], logged: LoggedEntry, *, is_reclaimable: bool) -> None:
    entry = logged.entry
    part = parts.setdefault((entry.sweep_id, entry.sweep_page), _SweepPart())
    part.rows[entry.sweep_txn, entry.sweep_part, logged.offset] += 1
    if is_reclaimable and entry.kind is DeletedKind.DIRECTORY:
        part.reclaimable_directories += 1
    elif is_reclaimable:
        part.reclaimable_rows += 1


def _sweep_result(sweep_id: int, sweep_page: int, part: _SweepPart, chain_version: int) -> SweepResult:
    rows = {(txn, number): count for (txn, number, _), count in part.rows.items()}  # each message once
    txns, numbers = zip(*rows, strict=True)
    return SweepResult(
        sweep_id=sweep_id,
        sweep_page=sweep_page,
        first_offset=0,  # no service reads these two: the parts name the judged messages
        judged_rows=0,
        reclaimable_rows=part.reclaimable_rows,
        reclaimable_directories=part.reclaimable_directories,
        chain_version=chain_version,
        parts=SweptParts(txns, numbers, tuple(rows.values())),
    )


def _slices(items: Iterable[T]) -> Iterator[tuple[T, ...]]:
    iterator = iter(items)
    while one := tuple(islice(iterator, ROWS_PER_MESSAGE)):
        yield one
