"""Replays one part of a log and compares the ledger's rows of it: what a task does, whatever the other parts do."""

from __future__ import annotations

import marshal
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from schemas.codec import codec
from schemas.records import LedgerRows, MetadataCommand, MetadataReply
from services.verifier.division import BY_NUMBER, UNNUMBERED, Division, IndivisibleError, counts_number
from services.verifier.history import History
from services.verifier.messages import signed_command
from services.verifier.replay import LogReplay, Place, UnknownCommandError
from services.verifier.report import MAX_EXAMPLES, Finding, FindingKind, VerifyReport
from services.verifier.verify import Verification
from services.verifier.writing import Page

OBSTACLE, COMMANDS, LEDGER_ROWS, MISSING_ROWS = range(4)
"""What a part receives and reports, in this order."""
Order = tuple[int, ...]
"""Where a finding is in the report: one of these, and where it is among them."""


class CommandRow(NamedTuple):
    """A command that a part replays."""

    offset: int
    txn: int
    """That of the last command before it that has one."""
    log_time_ms: int
    """The latest time of the messages before it."""
    timestamp_ms: int
    is_repeat: bool
    is_numbered: bool
    """Whether it is taken to get a txn."""
    is_owned: bool
    """Whether this part decides that."""
    value: bytes
    answer: bytes | None
    """metadata's answer with the txn that it would get; empty if there is none, None if nobody has looked for it."""


class LedgerMessage(NamedTuple):
    """A message of the ledger."""

    offset: int
    newest_finish: int
    """The highest of the messages before it."""
    value: bytes
    is_readable: bool


class Correction(NamedTuple):
    """A command that gets a txn though it was taken not to get one, or the other way round."""

    offset: int
    is_numbered: bool
    is_certain: bool
    """Whether it is so whatever txns the commands before it have."""


@dataclass(slots=True)
class PartReport(VerifyReport):
    """The report of one part, and what the parts have to agree about. Findings have an order across the parts."""

    orders: list[Order] = field(default_factory=list)
    """Of the examples."""
    first_orders: dict[FindingKind, Order] = field(default_factory=dict)
    corrections: list[Correction] = field(default_factory=list)
    pages: Mapping[int, Page] = field(default_factory=dict)
    """This part of the expiries' pages, by their offsets."""
    asked_bytes: int = 0
    obstacle: str = ""
    """Why the log does not divide."""
    at: Order = ()
    """Where the replay and the comparison are."""

    def add(self, finding: Finding, place: int = 0) -> None:
        """Count a finding, and keep the first ones as examples."""
        is_missing = self.at[0] == MISSING_ROWS
        order = (*self.at, finding.object_id, finding.birth) if is_missing else (*self.at, place)
        self.first_orders.setdefault(finding.kind, order)
        if len(self.examples) < MAX_EXAMPLES:
            self.orders.append(order)
        VerifyReport.add(self, finding, place)


@dataclass(frozen=True, slots=True)
class PartTask:
    """What all parts of a shard have in common."""

    shard: int
    division: Division
    rollback_ends: Mapping[str, int]
    end_keys: Mapping[int, bytes]
    """By the offsets of expiries where their pages end; those that are not here end nowhere."""
    txn: int
    """The last one of the log."""
    complete_txn: int
    """Up to where the ledger has to be complete."""
    directory: Path | None = None
    """For the state of the replay; by default the one for temporary files."""

    def replayed(self, number: int, chunks: Iterable[bytes]) -> PartReport:
        """Replay what a part receives, in order: its commands, then its messages of the ledger."""
        report = PartReport(self.shard)
        with tempfile.TemporaryDirectory(prefix="deepclean-verify-", dir=self.directory) as scratch:
            history = History(Path(scratch) / "history")
            try:
                _Part(self, number, report, history).take(chunks)
            except (IndivisibleError, UnknownCommandError) as error:
                report.obstacle = str(error)
            finally:
                history.close()
        return report


class _Part:
    """The replay and the comparison of one part."""

    def __init__(self, task: PartTask, number: int, report: PartReport, history: History) -> None:
        self._task = task
        self._report = report
        self._row: CommandRow | None = None
        self._replay = LogReplay(task.shard, history, task.rollback_ends, self._answer, report.add, task.end_keys)
        by_id = task.division.by_id
        self._verification = Verification(report, history, lambda bucket_id: by_id.get(bucket_id, 0) == number)
        self._decode_command = codec(MetadataCommand).decode_message
        self._decode_reply = codec(MetadataReply).decode_message
        self._decode_ledger = codec(LedgerRows).decode_message

    def take(self, chunks: Iterable[bytes]) -> None:
        """Take in everything and complete the report."""
        report, replay = self._report, self._replay
        for chunk in chunks:
            what, rows = marshal.loads(chunk)  # noqa: S302  the chunks of our own tasks
            if what == OBSTACLE:
                raise IndivisibleError(rows)
            if what == COMMANDS:
                for row in rows:
                    self._command(CommandRow(*row))
            else:
                for row in rows:
                    self._compare(LedgerMessage(*row))
        report.at = (MISSING_ROWS,)
        report.txn = self._task.txn
        self._verification.end(self._task.complete_txn)
        report.undeletes, report.pages, report.asked_bytes = replay.undeletes, replay.pages, replay.asked_bytes

    def _command(self, row: CommandRow) -> None:
        command = self._decode_command(row.value)
        if not (row.is_owned or row.is_numbered or type(command.body) in UNNUMBERED):
            return  # its owner has found it refused
        self._row, self._report.at = row, (COMMANDS, row.offset)
        self._replay.go_to(Place(row.txn, row.log_time_ms, row.is_repeat))
        self._replay.apply(row.offset, signed_command(command, row.timestamp_ms, row.value))
        if not row.is_owned:
            return
        is_numbered = self._replay.txn > row.txn
        if is_numbered != row.is_numbered:
            is_certain = row.is_repeat or (row.answer is None and type(command.body) not in BY_NUMBER)
            self._report.corrections.append(Correction(row.offset, is_numbered, is_certain))
        is_untaken = not self._replay.has_taken_number and counts_number(command)
        if is_untaken and not self._task.division.is_secured:  # with signatures no repeat is divided at all
            raise IndivisibleError(f"the number of the command at offset {row.offset} does not count")
        if self._replay.log_time_ms < row.timestamp_ms:
            raise IndivisibleError(f"the message at offset {row.offset} is a dead letter, and later than all before it")

    def _answer(self, txn: int) -> MetadataReply | None:
        row = self._row
        if row is None or row.answer is None:
            raise IndivisibleError(f"whether txn {txn} was allowed is only in metadata's answer")
        return self._decode_reply(row.answer) if row.answer else None

    def _compare(self, message: LedgerMessage) -> None:
        self._report.at = (LEDGER_ROWS, message.offset)
        self._verification.newest_finish = message.newest_finish
        self._verification.receive(self._decode_ledger(message.value) if message.is_readable else None, message.offset)
