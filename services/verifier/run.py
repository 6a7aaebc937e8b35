"""Verify a shard's ledger over its log, on a broker or in memory, while the services run.

The order of the reads makes this safe:

    SCM's deleted bytes; metadata.progress; the end of gc.ledger; metadata.commands; gc.ledger; SCM's deleted bytes

Every command behind a ledger row up to that end is in the log when the log is read. The ledger already holds the rows
of every txn that metadata.progress reports. metadata.replies is read together with the log, because the outcome of
some commands, such as undeletes, is only in metadata's answer.
"""

from __future__ import annotations

import tempfile
from collections import OrderedDict
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

from schemas.records import MetadataReply, RollbackOutcome, RollbackPage, RollbackPageDone, WritesExpired
from schemas.topics import LEDGER, METADATA_COMMANDS, METADATA_PROGRESS, METADATA_REPLIES
from services.domain.errors import DeepcleanError
from services.domain.table_keys import MAX_KEYS_PER_COMMAND
from services.log.port import Log
from services.verifier.divided import Bounds, Engine, verified_by_parts
from services.verifier.division import IndivisibleError
from services.verifier.history import History
from services.verifier.messages import messages_between, signed_command
from services.verifier.replay import LogReplay, UnknownCommandError
from services.verifier.report import VerifyReport
from services.verifier.survey import Reading, Stretch
from services.verifier.verify import Verification, compare_bytes

RECORDS_PER_REPORT = 20_000


class VerifyError(DeepcleanError):
    """The ledger could not be verified, so there is no report."""


@dataclass(slots=True)
class _Progress:
    """metadata's last reported txn, and the first page answered DONE and PARTLY per rollback id."""

    txn: int = 0
    ended: dict[str, int] = field(default_factory=dict)
    went_on: dict[str, int] = field(default_factory=dict)
    next_keys: dict[int, bytes] = field(default_factory=dict)
    """By the txns of expiries where the next page begins, if it is not the last one."""


class _Answers:
    """Reads metadata's answers in txn order. Callers ask for rising txns, but may go back by those of one command."""

    def __init__(self, log: Log, shard: int) -> None:
        self._shard = shard
        self._first = log.first_offset(METADATA_REPLIES.name, shard)
        end = log.end_offset(METADATA_REPLIES.name, shard)
        self._messages = messages_between(log, METADATA_REPLIES, shard, self._first, end)
        self._first_txn = self._newest_txn = 0
        """Of the answers that were read."""
        self._read: OrderedDict[int, MetadataReply] = OrderedDict()
        """The last answers, by their txns: a command of many txns is asked for by its last one, and may be refused."""

    def at(self, txn: int) -> MetadataReply | None:
        """Return metadata's answer to the command at a txn, or None when the topic has no answer with that txn.

        Raises:
            VerifyError: the answers before the first remaining one were trimmed, and ``txn`` is among them.
        """
        while self._newest_txn < txn:
            record, reply = next(self._messages, (None, None))
            if record is None:
                break
            # Answers to refused commands have txn 0. Answers that metadata repeats after a crash have an older txn.
            if reply is not None and reply.txn > self._newest_txn:
                self._note(reply)
        if self._first > 0 and txn < self._first_txn:
            raise VerifyError(
                f"shard {self._shard}: {METADATA_REPLIES.name} was trimmed, and with it whether an undelete before txn "
                f"{self._first_txn} came in time: verify before it is trimmed, and keep the report"
            )
        return self._read.get(txn)

    def _note(self, reply: MetadataReply) -> None:
        self._first_txn = self._first_txn or reply.txn
        self._newest_txn = reply.txn
        self._read[reply.txn] = reply
        if len(self._read) > MAX_KEYS_PER_COMMAND:
            self._read.popitem(last=False)

    def close(self) -> None:
        """Stop reading the topic."""
        self._messages.close()


@dataclass(frozen=True, slots=True)
class ByParts:
    """How a log is replayed by parts."""

    engine: Engine
    open_log: Callable[[], Log]
    """Opens the log in a task."""
    say_whole: Callable[[str], None]
    """Is told why a log does not divide and is replayed as one part."""
    say_round: Callable[[int, int], None] = lambda number, corrections: None  # noqa: ARG005
    """Is told the number of each round, and of the commands whose outcome it has corrected."""


def verify_shard(
    log: Log,
    shard: int,
    deleted_bytes: Callable[[], int],
    directory: Path | None = None,
    report_progress: Callable[[int, int], None] = lambda done, end: None,  # noqa: ARG005 commands replayed, total
) -> VerifyReport:
    """Replay a shard's log, compare the ledger with it and return the report.

    Raises:
        VerifyError: the log was trimmed, or holds a command that this version does not know.
        StackError: the broker does not answer.
    """
    require_beginning(log, shard)
    return compared_with_store(lambda: replay_shard(log, shard, directory, report_progress), deleted_bytes)


def require_beginning(log: Log, shard: int) -> None:
    """Raise VerifyError if the beginning of a shard's log was trimmed."""
    if log.first_offset(METADATA_COMMANDS.name, shard) > 0:
        raise VerifyError(
            f"shard {shard}: {METADATA_COMMANDS.name} was trimmed, and a ledger is verified from its beginning: verify "
            f"before the log is trimmed (deepclean trim-log), and keep the report"
        )


def compared_with_store(replay: Callable[[], VerifyReport], deleted_bytes: Callable[[], int]) -> VerifyReport:
    """Return the report of a replay, compared with the bytes that the block store has deleted before and after it."""
    deleted_before = deleted_bytes()
    report = replay()
    compare_bytes(report, deleted_before, deleted_bytes())
    return report


def replay_shard(
    log: Log,
    shard: int,
    directory: Path | None = None,
    report_progress: Callable[[int, int], None] = lambda done, end: None,  # noqa: ARG005 commands replayed, total
    by_parts: ByParts | None = None,
) -> VerifyReport:
    """Replay a shard's log, by parts if that is asked for and the log divides, and compare the ledger with it.

    Raises:
        VerifyError: the log was trimmed, or holds a command that this version does not know.
        StackError: the broker does not answer.
    """
    require_beginning(log, shard)
    progress = _read_progress(log, shard)
    ledger_end = log.end_offset(LEDGER.name, shard)
    rollback_ends = _rollback_ends(log, shard, progress)
    if by_parts is not None:
        commands_end = log.end_offset(METADATA_COMMANDS.name, shard)
        name = METADATA_REPLIES.name
        replies = Stretch(log.first_offset(name, shard), log.end_offset(name, shard))
        bounds = Bounds(commands_end, ledger_end, replies, progress.txn, rollback_ends, progress.next_keys)
        try:
            reading = Reading(by_parts.open_log, shard)
            return verified_by_parts(by_parts.engine, reading, bounds, directory, by_parts.say_round)
        except IndivisibleError as error:
            by_parts.say_whole(str(error))
    report = VerifyReport(shard)
    with tempfile.TemporaryDirectory(prefix="deepclean-verify-", dir=directory) as scratch:
        history = History(Path(scratch) / "history")
        try:
            _replay(log, report, history, rollback_ends, report_progress)
            verification = Verification(report, history)
            for record, message in messages_between(log, LEDGER, shard, 0, ledger_end):
                verification.receive(message, record.offset)
            verification.end(min(progress.txn, report.txn))
        finally:
            history.close()
    return report


def _replay(
    log: Log,
    report: VerifyReport,
    history: History,
    rollback_ends: dict[str, int],
    report_progress: Callable[[int, int], None],
) -> None:
    end = log.end_offset(METADATA_COMMANDS.name, report.shard)
    with closing(_Answers(log, report.shard)) as answers:
        replay = LogReplay(report.shard, history, rollback_ends, answers.at, report.add)
        for record, command in messages_between(log, METADATA_COMMANDS, report.shard, 0, end):
            signed = None if command is None else signed_command(command, record.timestamp_ms, record.value)
            try:
                replay.apply(record.offset, signed)
            except UnknownCommandError as error:
                raise VerifyError(
                    f"shard {report.shard}: {error}, which this verification does not know: take a newer one"
                ) from error
            if replay.commands % RECORDS_PER_REPORT == 0:
                report_progress(replay.commands, end)
    report.commands, report.txn, report.undeletes = replay.commands, replay.txn, replay.undeletes
    report.lost_tail_offset = replay.lost_tail_offset


def _read_progress(log: Log, shard: int) -> _Progress:
    progress = _Progress()
    name = METADATA_PROGRESS.name
    ends = log.first_offset(name, shard), log.end_offset(name, shard)
    for _, message in messages_between(log, METADATA_PROGRESS, shard, *ends):
        if message is None:
            continue
        progress.txn = max(progress.txn, message.txn)
        if isinstance(message.body, RollbackPageDone):
            done = message.body
            pages = {RollbackOutcome.DONE: progress.ended, RollbackOutcome.PARTLY: progress.went_on}.get(done.outcome)
            if pages is not None:
                # Keep the first page: a page that is sent again after the end gets the last page's answer.
                pages.setdefault(done.rollback_id, done.page)
        elif isinstance(message.body, WritesExpired) and message.body.next_key:
            progress.next_keys.setdefault(message.txn, message.body.next_key)
    return progress


def _rollback_ends(log: Log, shard: int, progress: _Progress) -> dict[str, int]:
    """Return the last page of each ended rollback by its id.

    The page comes from metadata's answers. For a rollback whose answers were trimmed, it is the last page in the log.
    """
    if not log.first_offset(METADATA_PROGRESS.name, shard):
        return progress.ended
    last_pages: dict[str, int] = {}
    end = log.end_offset(METADATA_COMMANDS.name, shard)
    for _, command in messages_between(log, METADATA_COMMANDS, shard, 0, end):
        if command is not None and isinstance(command.body, RollbackPage):
            page = command.body
            last_pages[page.rollback_id] = max(page.page, last_pages.get(page.rollback_id, 0))
    unanswered = {one: page for one, page in last_pages.items() if page != progress.went_on.get(one)}
    return unanswered | progress.ended
