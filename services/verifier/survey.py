"""Reads stretches of the log: first to see what is there, then to hand each part what it replays.

A task reads one stretch. What the messages before it have left comes from the surveys of the stretches before it.
"""

from __future__ import annotations

import marshal
from bisect import bisect_left
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from schemas import records
from schemas.records import LedgerRows
from schemas.topics import LEDGER, METADATA_COMMANDS, METADATA_REPLIES
from services.domain.ledger_rows import LedgerError, ledger_rows
from services.domain.table_keys import HIGHEST_TXN
from services.log.port import Log
from services.verifier.division import (
    SHARED,
    UNNUMBERED,
    Division,
    IndivisibleError,
    Name,
    counts_number,
)
from services.verifier.messages import messages_between
from services.verifier.part import COMMANDS, LEDGER_ROWS, OBSTACLE
from services.verifier.replay import BY_ANSWER, CLIENT_COMMANDS, HOUR_MS
from services.verifier.txns import txns_of
from services.verifier.writing import page_rows

CHUNK_ROWS = 500
CHUNK_BYTES = 256 * 1_024
Keyed = tuple[tuple[int, int, int], bytes]
"""A part, what the chunk has and the offset of its first message; and the chunk."""


@dataclass(frozen=True, slots=True)
class Reading:
    """The log of a shard, as each task opens it."""

    open_log: Callable[[], Log]
    shard: int


class Stretch(NamedTuple):
    """The offsets of a topic from ``first`` to before ``end``."""

    first: int
    end: int


class Seen(NamedTuple):
    """A client's highest number, and the time of its command."""

    number: int
    time_ms: int

    def after(self, number: int, time_ms: int) -> Seen:
        """Return this after a further command, which is a repeat if its number does not rise."""
        return Seen(number, time_ms) if number > self.number else self


class At(NamedTuple):
    """A message: its offset, and how many messages of its stretch are before it."""

    offset: int
    place: int


@dataclass(slots=True)
class Survey:
    """What a stretch of ``metadata.commands`` has."""

    stretch: Stretch
    messages: int = 0
    unnumbered: list[int] = field(default_factory=list)
    """Offsets of messages that are taken not to get a txn."""
    wide: dict[int, int] = field(default_factory=dict)
    """How many txns more than one the commands at these offsets have, unless they are refused."""
    latest_ms: int = 0
    clients: dict[str, Seen] = field(default_factory=dict)
    kinds: set[type[Any]] = field(default_factory=set)
    buckets: list[tuple[At, Name]] = field(default_factory=list)
    """Commands that create buckets."""
    links: list[tuple[Name, Name]] = field(default_factory=list)
    with_quota: set[Name] = field(default_factory=set)
    sizes: Counter[Name] = field(default_factory=Counter)
    """Number of commands of each bucket."""
    asked: list[tuple[At, int]] = field(default_factory=list)
    """Commands without a number whose outcome is only in metadata's answer, each with the objectID that it names."""
    expiries: list[tuple[At, int]] = field(default_factory=list)
    """Expiries, and after how many rows their pages end."""

    @property
    def most_txns(self) -> int:
        """How many txns the stretch has if no message of it is refused."""
        return self.messages + sum(self.wide.values())

    @property
    def txns(self) -> int:
        """How many txns the stretch is taken to have."""
        return self.messages - len(self.unnumbered) + sum(self._numbered_wide().values())

    def txns_before(self, places: Iterable[At]) -> Iterator[int]:
        """Yield how many txns the stretch is taken to have before each of some messages, which come in order."""
        wide, more = deque(self._numbered_wide().items()), 0
        for at in places:
            while wide and wide[0][0] < at.offset:
                more += wide.popleft()[1]
            yield at.place - bisect_left(self.unnumbered, at.offset) + more

    def _numbered_wide(self) -> Mapping[int, int]:
        if not self.wide:
            return self.wide
        unnumbered = set(self.unnumbered)
        return {offset: more for offset, more in self.wide.items() if offset not in unnumbered}


@dataclass(slots=True)
class Answers:
    """What a stretch of ``metadata.replies`` has."""

    stretch: Stretch
    refused: set[tuple[str, int]] = field(default_factory=set)
    """Client ids and numbers of the commands that metadata has refused."""
    lowest_txn: int = HIGHEST_TXN
    highest_txn: int = 0


def answers_of(reading: Reading, stretch: Stretch) -> Answers:
    """Look at each answer of a stretch."""
    found = Answers(stretch)
    for _, reply in messages_between(reading.open_log(), METADATA_REPLIES, reading.shard, *stretch):
        if reply is None:
            continue
        if reply.txn > 0:
            found.lowest_txn = min(found.lowest_txn, reply.txn)
            found.highest_txn = max(found.highest_txn, reply.txn)
        elif reply.number:
            found.refused.add((reply.client_id, reply.number))
    return found


def survey(reading: Reading, refused: set[tuple[str, int]], stretch: Stretch) -> Survey:
    """Look at each message of a stretch. ``refused`` are the commands that metadata says to have refused."""
    found = Survey(stretch)
    for record, command in messages_between(reading.open_log(), METADATA_COMMANDS, reading.shard, *stretch):
        at = At(record.offset, found.messages)
        found.messages += 1
        if command is None:
            found.unnumbered.append(record.offset)
            continue
        body = command.body
        kind = type(body)
        found.kinds.add(kind)
        if kind in UNNUMBERED or (command.client_id, command.number) in refused:
            found.unnumbered.append(record.offset)
        if (txns := txns_of(body)) > 1:
            found.wide[record.offset] = txns - 1
        found.latest_ms = max(found.latest_ms, record.timestamp_ms)
        if counts_number(command):
            seen = found.clients.get(command.client_id, Seen(0, record.timestamp_ms))
            found.clients[command.client_id] = seen.after(command.number, record.timestamp_ms)
        if not command.number and kind in BY_ANSWER:
            found.asked.append((at, getattr(body, "object_id", 0)))
        if kind in SHARED:
            _note_shared(found, at, body)
        elif kind in CLIENT_COMMANDS:
            found.sizes[getattr(body, "volume", ""), getattr(body, "bucket", "")] += 1
    return found


def _note_shared(found: Survey, at: At, body: Any) -> None:
    if isinstance(body, records.CreateBucket):
        found.buckets.append((at, (body.volume, body.bucket)))
    elif isinstance(body, records.CreateBucketLink):
        found.links.append(((body.volume, body.bucket), (body.source_volume, body.source_bucket)))
    elif isinstance(body, records.SetQuota) and body.bucket:
        found.with_quota.add((body.volume, body.bucket))
    elif isinstance(body, records.ExpireWrites):
        found.expiries.append((at, page_rows(body)))


def answered_without_number(reading: Reading, stretch: Stretch) -> dict[int, int]:
    """Return the objectIDs in metadata's answers to commands without a number, by their txns."""
    messages = messages_between(reading.open_log(), METADATA_REPLIES, reading.shard, *stretch)
    replies = [one for _, one in messages if one is not None and one.txn > 0 and not one.number]
    return {one.txn: one.committed.object_id if one.committed else 0 for one in replies}


@dataclass(frozen=True, slots=True)
class CommandStretch:
    """A stretch of commands, and what is before it."""

    stretch: Stretch
    most_txns: int
    txn: int
    log_time_ms: int
    clients: Mapping[str, Seen]
    """Those that send something in the stretch."""
    unnumbered: frozenset[int]
    """Offsets of its messages that are taken not to get a txn."""
    replies: Sequence[Stretch]
    """Where metadata's answers to the stretch are."""


@dataclass(frozen=True, slots=True)
class LedgerStretch:
    """A stretch of the ledger, and the highest finish before it."""

    stretch: Stretch
    newest_finish: int


def divided(reading: Reading, division: Division, task: CommandStretch | LedgerStretch) -> Iterator[Keyed]:
    """Yield what each part needs of a stretch, in chunks; or why the log does not divide, to the first part."""
    try:
        if isinstance(task, LedgerStretch):
            yield from _divided_ledger(reading, division, task)
        else:
            yield from _divided_commands(reading, division, task)
    except IndivisibleError as error:
        yield (0, OBSTACLE, task.stretch.first), marshal.dumps((OBSTACLE, str(error)))


def _answers(reading: Reading, task: CommandStretch) -> dict[int, bytes]:
    """Return metadata's answers to the stretch by their txns."""
    found, last_txn = dict[int, bytes](), task.txn + task.most_txns + 1
    for stretch in task.replies:
        for record, reply in messages_between(reading.open_log(), METADATA_REPLIES, reading.shard, *stretch):
            if reply is not None and task.txn < reply.txn <= last_txn:
                found.setdefault(reply.txn, record.value)
    return found


class _Chunks:
    """Collects what goes to each part."""

    def __init__(self, what: int) -> None:
        self._what = what
        self._rows: dict[int, list[tuple[Any, ...]]] = {}
        self._bytes: dict[int, int] = {}

    def add(self, part: int, row: tuple[Any, ...], size_bytes: int) -> Keyed | None:
        """Add a row whose first field is its offset. Return the chunk that is full with it, or None."""
        rows = self._rows.setdefault(part, [])
        rows.append(row)
        total_bytes = self._bytes[part] = self._bytes.get(part, 0) + size_bytes
        return self._chunk(part) if len(rows) >= CHUNK_ROWS or total_bytes >= CHUNK_BYTES else None

    def rest(self) -> Iterator[Keyed]:
        """Yield what is left."""
        for part in list(self._rows):
            yield self._chunk(part)

    def _chunk(self, part: int) -> Keyed:
        rows = self._rows.pop(part)
        del self._bytes[part]
        return (part, self._what, rows[0][0]), marshal.dumps((self._what, rows))


def _divided_commands(reading: Reading, division: Division, task: CommandStretch) -> Iterator[Keyed]:
    chunks, clients = _Chunks(COMMANDS), dict(task.clients)
    txn, log_time_ms, answers = task.txn, task.log_time_ms, _answers(reading, task)
    for record, command in messages_between(reading.open_log(), METADATA_COMMANDS, reading.shard, *task.stretch):
        offset, time_ms = record.offset, record.timestamp_ms
        if command is None:
            continue
        is_repeat, is_numbered = False, offset not in task.unnumbered
        if counts_number(command):
            seen = clients.get(command.client_id, Seen(0, time_ms))
            is_repeat = command.number <= seen.number
            if is_repeat and (division.is_secured or max(log_time_ms, time_ms) - seen.time_ms >= HOUR_MS):
                raise IndivisibleError(f"whether the number of the command at offset {offset} was known then is open")
            clients[command.client_id] = seen.after(command.number, time_ms)
        txns = txns_of(command.body)
        answer = answers.get(txn + txns, b"") if division.needs_answer(command.body) else None
        owner, parts = division.parts_of(command, offset)
        before = (offset, txn, log_time_ms, time_ms, is_repeat, is_numbered)
        for part in parts:
            full = chunks.add(part, (*before, part == owner, record.value, answer), len(record.value))
            if full is not None:
                yield full
        txn += txns if is_numbered else 0
        log_time_ms = max(log_time_ms, time_ms)
    yield from chunks.rest()


def _divided_ledger(reading: Reading, division: Division, task: LedgerStretch) -> Iterator[Keyed]:
    chunks, newest_finish = _Chunks(LEDGER_ROWS), task.newest_finish
    for record, message in messages_between(reading.open_log(), LEDGER, reading.shard, *task.stretch):
        is_readable = _is_whole(message)
        parts = {division.by_id.get(one, 0) for one in set(message.groups.bucket_ids)} if is_readable else {0}
        for part in parts:
            row = (record.offset, newest_finish, record.value, message is not None)
            full = chunks.add(part, row, len(record.value))
            if full is not None:
                yield full
        if is_readable:
            newest_finish = max(newest_finish, message.finish_txn)
    yield from chunks.rest()


def _is_whole(message: LedgerRows | None) -> bool:
    if message is None:
        return False
    try:
        next(ledger_rows(message), None)
    except LedgerError:
        return False
    return True


def newest_finish(reading: Reading, stretch: Stretch) -> int:
    """Return the highest finish in a stretch of the ledger; 0 if there is none."""
    messages = messages_between(reading.open_log(), LEDGER, reading.shard, *stretch)
    return max((one.finish_txn for _, one in messages if _is_whole(one)), default=0)
