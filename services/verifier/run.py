"""Verifies a shard's ledger over its log, of a broker or in memory: reads what is needed, in an order that allows it to
run beside everything else.

    what SCM has deleted; metadata.progress; the end of gc.ledger; metadata.commands; gc.ledger; what SCM has deleted

A command that is in the ledger is in the log by then; what metadata.progress answers is in the ledger by then.
metadata.replies is read beside the log, as far as there are undeletes: each is answered.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Generator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from schemas.codec import DecodeError, codec
from schemas.records import MetadataProgress, MetadataReply, RollbackOutcome, RollbackPage, RollbackPageDone
from schemas.topics import LEDGER, METADATA_COMMANDS, METADATA_PROGRESS, METADATA_REPLIES, Topic
from services.domain.errors import DeepcleanError
from services.log.port import Log, LogRecord
from services.log.reads import records_between
from services.verifier.history import History
from services.verifier.replay import LogReplay, UnknownCommandError
from services.verifier.report import VerifyReport
from services.verifier.unauthorized_commands import Signed
from services.verifier.verify import Verification

RECORDS_PER_REPORT = 20_000


class VerifyError(DeepcleanError):
    """There is no report: the ledger could not be verified."""


@dataclass(slots=True)
class _Progress:
    """What metadata has said: how far it is, and how each rollback went."""

    txn: int = 0
    ended: dict[str, int] = field(default_factory=dict)
    went_on: dict[str, int] = field(default_factory=dict)

    def receive(self, message: MetadataProgress | None) -> None:
        if message is None:
            return
        self.txn = max(self.txn, message.txn)
        if isinstance(message.body, RollbackPageDone):
            done = message.body
            pages = {RollbackOutcome.DONE: self.ended, RollbackOutcome.PARTLY: self.went_on}.get(done.outcome)
            if pages is not None:
                # A page that is asked for again once all is done is answered as the last one was.
                pages.setdefault(done.rollback_id, done.page)


class _Answers:
    """What metadata answered at one txn after the other: they are asked for in rising order, and so they were sent."""

    def __init__(self, log: Log, shard: int) -> None:
        self._shard = shard
        self._first = log.first_offset(METADATA_REPLIES.name, shard)
        end = log.end_offset(METADATA_REPLIES.name, shard)
        self._messages = _messages(log, METADATA_REPLIES, shard, self._first, end)
        self._newest: MetadataReply | None = None

    def at(self, txn: int) -> MetadataReply | None:
        """The answer to the command that got a txn; None when it got none, or was not asked to be answered.

        Raises:
            VerifyError: the answers of that time were trimmed.
        """
        is_first = self._newest is None
        while self._newest is None or self._newest.txn < txn:
            record, reply = next(self._messages, (None, None))
            if record is None:
                return None
            # What was refused has no txn; what metadata says again, after a crash, has an older one.
            if reply is not None and reply.txn > 0:
                self._newest = reply
        if is_first and self._first > 0 and self._newest.txn > txn:
            raise VerifyError(
                f"shard {self._shard}: {METADATA_REPLIES.name} was trimmed, and with it whether an undelete before txn "
                f"{self._newest.txn} came in time: verify before it is trimmed, and keep the report"
            )
        return self._newest if self._newest.txn == txn else None

    def close(self) -> None:
        """Read no further."""
        self._messages.close()


def verify_shard(
    log: Log,
    shard: int,
    deleted_bytes: Callable[[], int],
    directory: Path | None = None,
    report_progress: Callable[[int, int], None] = lambda done, end: None,  # noqa: ARG005 commands replayed, and of how many
) -> VerifyReport:
    """Replay a shard's log and compare the ledger with it.

    Raises:
        VerifyError: the log does not begin at its beginning any more, or has a command that is not known here.
        StackError: the broker does not answer.
    """
    if log.first_offset(METADATA_COMMANDS.name, shard) > 0:
        raise VerifyError(
            f"shard {shard}: {METADATA_COMMANDS.name} was trimmed, and a ledger is verified from its beginning: verify "
            f"before the log is trimmed (deepclean trim-log), and keep the report"
        )
    deleted_before = deleted_bytes()
    progress = _read_progress(log, shard)
    ledger_end = log.end_offset(LEDGER.name, shard)
    report = VerifyReport(shard)
    with tempfile.TemporaryDirectory(prefix="deepclean-verify-", dir=directory) as scratch:
        history = History(Path(scratch) / "history")
        try:
            _replay(log, report, history, _rollback_ends(log, shard, progress), report_progress)
            verification = Verification(report, history)
            for record, message in _messages(log, LEDGER, shard, 0, ledger_end):
                verification.receive(message, record.offset)
            verification.end(min(progress.txn, report.txn))
        finally:
            history.close()
    verification.compare_bytes(deleted_before, deleted_bytes())
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
        for record, command in _messages(log, METADATA_COMMANDS, report.shard, 0, end):
            signed = None if command is None else Signed(command, record.timestamp_ms, record.fingerprint, record.value)
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
    for _, message in _messages(log, METADATA_PROGRESS, shard, *ends):
        progress.receive(message)
    return progress


def _rollback_ends(log: Log, shard: int, progress: _Progress) -> dict[str, int]:
    """On which page each rollback ended: as metadata answered, or the last page of one whose answers are trimmed."""
    if not log.first_offset(METADATA_PROGRESS.name, shard):
        return progress.ended
    last_pages: dict[str, int] = {}
    end = log.end_offset(METADATA_COMMANDS.name, shard)
    for _, command in _messages(log, METADATA_COMMANDS, shard, 0, end):
        if command is not None and isinstance(command.body, RollbackPage):
            page = command.body
            last_pages[page.rollback_id] = max(page.page, last_pages.get(page.rollback_id, 0))
    unanswered = {one: page for one, page in last_pages.items() if page != progress.went_on.get(one)}
    return unanswered | progress.ended


def _messages(log: Log, topic: Topic, shard: int, first: int, end: int) -> Generator[tuple[LogRecord, Any]]:
    """Messages of a partition from one offset up to another, with what they say; None if they cannot be read."""
    decode = codec(topic.record).decode_message
    for record in records_between(log, topic.name, shard, first, end):
        try:
            yield record, decode(record.value, record.fingerprint)
        except DecodeError:
            yield record, None
