"""Verifies a shard by parts, each of them a task of its own, and puts their reports together.

Whether a command is refused is decided by the part that has its bucket, and only commands that are not refused get a
txn, which the commands of all other buckets count from. So a round begins with an assumption about every command: it
gets a txn, unless its kind gets none or metadata has answered that it was refused. The parts replay the log with the
txns that follow, and correct the assumption. Rounds go on until nothing is corrected. Then the assumption is what a
replay in one part decides: the first command for which the two differed would have been decided with the same commands
before it, so it would have been corrected.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Protocol, TypeVar

from schemas import records
from services.domain.table_keys import object_id, object_txn
from services.verifier.division import Division, IndivisibleError, Name, joined, shared_out, why_indivisible
from services.verifier.part import Correction, PartReport, PartTask
from services.verifier.present import MAX_BYTES
from services.verifier.replay import BY_ANSWER
from services.verifier.report import MAX_EXAMPLES, FindingKind, VerifyReport
from services.verifier.survey import (
    CommandStretch,
    Keyed,
    LedgerStretch,
    Reading,
    Seen,
    Stretch,
    Survey,
    answered_without_number,
    answers_of,
    divided,
    newest_finish,
    survey,
)
from services.verifier.writing import Page

MAX_ROUNDS = 5
T = TypeVar("T")
R = TypeVar("R")


class Engine(Protocol):
    """Runs tasks, on one machine or many."""

    parts: int
    """Number of parts of a shard."""
    stretch_messages: int
    """Number of messages that a task reads."""

    def each(self, work: Callable[[T], R], tasks: Sequence[T]) -> list[R]:
        """Do some work for each task. Return the results in the order of the tasks."""

    def by_part(
        self,
        divide: Callable[[T], Iterator[Keyed]],
        tasks: Sequence[T],
        replay: Callable[[int, Iterable[bytes]], R],
    ) -> list[R]:
        """Divide the tasks' stretches into chunks for the parts, and have each part replay its chunks in order."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """Where the topics end that a verification reads, and what it has read before."""

    commands: int
    ledger: int
    replies: Stretch
    progress_txn: int
    rollback_ends: Mapping[str, int]
    next_keys: Mapping[int, bytes]
    """By the txns of expiries where metadata has said that the next page begins. That is checked."""


def verified_by_parts(
    engine: Engine, reading: Reading, bounds: Bounds, directory: Path | None, say_round: Callable[[int, int], None]
) -> VerifyReport:
    """Replay a shard's log by parts and compare the ledger with it.

    ``say_round`` is told the number of each round, and of the commands whose outcome it has corrected.

    Raises:
        IndivisibleError: this log does not divide; a replay in one part has to be made.
    """
    numbering = _Numbering(engine, reading, bounds)
    for number in range(1, MAX_ROUNDS + 1):
        reports = numbering.round(directory)
        obstacles = [report.obstacle for report in reports if report.obstacle]
        if obstacles:
            raise IndivisibleError(obstacles[0])
        corrections = [one for report in reports for one in report.corrections]
        say_round(number, len(corrections))
        if not corrections:
            numbering.check(reports)
            return _whole(reading.shard, numbering, reports)
        numbering.correct(corrections)
    raise IndivisibleError(f"after {MAX_ROUNDS} rounds the parts do not agree about the txns")


def stretches(first: int, end: int, messages: int) -> list[Stretch]:
    """Cut a topic into stretches."""
    return [Stretch(one, min(one + messages, end)) for one in range(first, end, messages)]


class _Numbering:
    """Which commands are taken to get a txn, and the rounds that find it out."""

    def __init__(self, engine: Engine, reading: Reading, bounds: Bounds) -> None:
        self._engine, self._reading, self._bounds = engine, reading, bounds
        replies = stretches(*bounds.replies, engine.stretch_messages)
        self._answers = engine.each(partial(answers_of, reading), replies)
        refused = {command for some in self._answers for command in some.refused}
        cut = stretches(0, bounds.commands, engine.stretch_messages)
        self._surveys = engine.each(partial(survey, reading, refused), cut)
        kinds = {kind for one in self._surveys for kind in one.kinds}
        if why := why_indivisible(kinds):
            raise IndivisibleError(why)
        self._named = self._divided_by_name(is_secured=records.SetSecret in kinds)
        self._needs_answers = bool(BY_ANSWER & kinds) or self._named.is_secured
        if self._needs_answers and bounds.replies.first > 0:
            raise IndivisibleError("answers of metadata were trimmed")
        self.messages = sum(one.messages for one in self._surveys)
        self._ledger, self._newest_finish = self._ledger_stretches()
        self._answered: dict[int, int] = {}
        if any(one.asked for one in self._surveys):
            for found in engine.each(partial(answered_without_number, reading), replies):
                self._answered |= found
            self._guess()

    def _divided_by_name(self, *, is_secured: bool) -> Division:
        """Return to which part each bucket goes by its name."""
        whole = Division(self._engine.parts, joined(link for one in self._surveys for link in one.links))
        sizes = Counter[Name]()
        for one in self._surveys:
            for name, size in one.sizes.items():
                sizes[whole.head_of(*name)] += size
        with_quota = frozenset(whole.head_of(*name) for one in self._surveys for name in one.with_quota)
        by_head = shared_out(sizes, whole.parts)
        return replace(whole, by_head=by_head, with_quota=with_quota, is_secured=is_secured)

    def _ledger_stretches(self) -> tuple[list[LedgerStretch], int]:
        """Return the stretches of the ledger, and its highest finish."""
        cut = stretches(0, self._bounds.ledger, self._engine.stretch_messages)
        found, newest = list[LedgerStretch](), 0
        for stretch, finish in zip(cut, self._engine.each(partial(newest_finish, self._reading), cut), strict=True):
            found.append(LedgerStretch(stretch, newest))
            newest = max(newest, finish)
        return found, newest

    @property
    def txn(self) -> int:
        """The last txn of the log."""
        return sum(one.txns for one in self._surveys)

    def round(self, directory: Path | None) -> list[PartReport]:
        """Replay and compare all parts."""
        tasks: list[CommandStretch | LedgerStretch] = [*self._tasks(), *self._ledger]
        complete_txn = max(min(self._bounds.progress_txn, self.txn), self._newest_finish)
        division = self._division()
        part = PartTask(
            self._reading.shard,
            division,
            self._bounds.rollback_ends,
            self._end_keys(),
            self.txn,
            complete_txn,
            directory,
        )
        return self._engine.by_part(partial(divided, self._reading, division), tasks, part.replayed)

    def _division(self) -> Division:
        by_id = {
            object_id(0, first + before + 1, 1): self._named.of_name(*name)
            for first, one in zip(self._first_txns(), self._surveys, strict=True)
            for (_, name), before in zip(one.buckets, one.txns_before(at for at, _ in one.buckets), strict=True)
        }
        return replace(self._named, by_id=by_id)

    def _end_keys(self) -> dict[int, bytes]:
        """Return where the pages of expiries end, by their offsets."""
        known = self._bounds.next_keys
        return {
            at.offset: known[txn]
            for first, one in zip(self._first_txns(), self._surveys, strict=True)
            for (at, _), before in zip(one.expiries, one.txns_before(at for at, _ in one.expiries), strict=True)
            if (txn := first + before + 1) in known
        }

    def _first_txns(self) -> list[int]:
        """Return the txn before each stretch."""
        txns = [0]
        for one in self._surveys:
            txns.append(txns[-1] + one.txns)
        return txns[:-1]

    def _tasks(self) -> Iterator[CommandStretch]:
        clients: dict[str, Seen] = {}
        latest_ms = 0
        for txn, one in zip(self._first_txns(), self._surveys, strict=True):
            known = {client: clients[client] for client in one.clients.keys() & clients.keys()}
            replies = self._replies_to(txn, one)
            yield CommandStretch(one.stretch, one.most_txns, txn, latest_ms, known, frozenset(one.unnumbered), replies)
            latest_ms = max(latest_ms, one.latest_ms)
            for client, seen in one.clients.items():
                clients[client] = clients[client].after(*seen) if client in clients else seen

    def _replies_to(self, first_txn: int, one: Survey) -> list[Stretch]:
        """Return where metadata's answers to a stretch are; nothing if no answer is needed."""
        if not self._needs_answers:
            return []
        last_txn = first_txn + one.most_txns + 1
        return [some.stretch for some in self._answers if some.lowest_txn <= last_txn and some.highest_txn > first_txn]

    def correct(self, corrections: Sequence[Correction]) -> None:
        """Take up what is certain: what does not depend on the txns before it, and the first one, which are right."""
        self._correct(corrections)
        if self._answered and any(one.is_certain for one in corrections):
            self._guess()

    def _correct(self, corrections: Sequence[Correction]) -> None:
        first = min(corrections).offset
        for one in sorted(corrections):
            if not one.is_certain and one.offset != first:
                continue
            of = self._surveys[bisect_left(self._surveys, one.offset + 1, key=lambda survey: survey.stretch.end)]
            place = bisect_left(of.unnumbered, one.offset)
            if one.is_numbered:
                del of.unnumbered[place]
            else:
                of.unnumbered.insert(place, one.offset)

    def _guess(self) -> None:
        """Assume of commands without a number, whose outcome is only in metadata's answer, what the answers say."""
        txn = 0
        for one in self._surveys:
            for at, named_id in one.asked:
                place = bisect_left(one.unnumbered, at.offset)
                was_refused = one.unnumbered[place : place + 1] == [at.offset]
                its_txn = txn + next(one.txns_before((at,))) + 1
                answered_id = self._answered.get(its_txn)
                is_its = answered_id is not None and (answered_id == named_id or object_txn(answered_id) == its_txn)
                if is_its and was_refused:
                    del one.unnumbered[place]
                elif not is_its and not was_refused:
                    one.unnumbered.insert(place, at.offset)
            txn += one.txns

    def check(self, reports: Sequence[PartReport]) -> None:
        """Check what the parts have taken for granted.

        Raises:
            IndivisibleError: it was not so.
        """
        if sum(report.asked_bytes for report in reports) > MAX_BYTES:
            raise IndivisibleError("the shard may have stored more bytes than it can count")
        for one in self._surveys:
            for at, most in one.expiries:
                pages = [report.pages[at.offset] for report in reports if at.offset in report.pages]
                if not _is_one_page(pages, most):
                    raise IndivisibleError(f"the page of the expiry at offset {at.offset} ended elsewhere")
        if any(FindingKind.UNKNOWN_VERSION in report.findings for report in reports):
            raise IndivisibleError("rows of the ledger name a version that is not in their bucket")


def _is_one_page(pages: Sequence[Page], most: int) -> bool:
    """Return whether the parts of a page end where the whole page ends that may have so many rows."""
    rows = sum(page.rows for page in pages)
    last_rows = max(((page.last_key, page.last_rows) for page in pages), default=(b"", 0))[1]
    is_full = rows >= most or not any(page.has_rest for page in pages)
    return is_full and (not rows or rows - last_rows < most) and not any(page.is_cut for page in pages)


def _whole(shard: int, numbering: _Numbering, reports: Sequence[PartReport]) -> VerifyReport:
    """Put the reports of the parts together."""
    whole = VerifyReport(shard, commands=numbering.messages, txn=numbering.txn)
    for name in ("rows", "repeated_rows", "blocks", "size_bytes", "unfinished_rows", "unfinished_bytes", "undeletes"):
        setattr(whole, name, sum(getattr(report, name) for report in reports))
    found = [(order, kind) for report in reports for kind, order in report.first_orders.items()]
    for _, kind in sorted(found, key=lambda pair: pair[0]):
        whole.findings[kind] = sum(report.findings.get(kind, 0) for report in reports)
    examples = [pair for report in reports for pair in zip(report.orders, report.examples, strict=True)]
    examples.sort(key=lambda pair: pair[0])
    whole.examples = [finding for _, finding in examples[:MAX_EXAMPLES]]
    return whole
