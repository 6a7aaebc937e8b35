"""Compare the ledger with the replayed log: each ledger row with the version in the log, and missing rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from schemas.records import LedgerRows
from services.domain.ledger_rows import LedgerError, LedgerRow, ledger_rows
from services.verifier.history import Asked, History, Version
from services.verifier.report import Finding, FindingKind, VerifyReport


class Verification:
    """Compare the ledger of one shard, message by message, with the history replayed from the command log."""

    def __init__(
        self,
        report: VerifyReport,
        history: History,
        has_bucket: Callable[[int], bool] = lambda bucket_id: True,  # noqa: ARG005
    ) -> None:
        """``has_bucket`` says for the id of a bucket whether its rows are compared here."""
        self.report = report
        self._history = history
        self._has_bucket = has_bucket
        self._place = 0
        self.newest_finish = 0
        """The highest of the messages so far."""

    def receive(self, message: LedgerRows | None, offset: int) -> None:
        """Compare the next message; None is an unreadable one. Rows of a repeated message are counted apart."""
        try:
            rows = [] if message is None else list(ledger_rows(message))
        except LedgerError as error:
            self._add(FindingKind.UNREADABLE, None, str(error))
            return
        if message is None:
            self._add(FindingKind.UNREADABLE, None, f"the message at offset {offset} is none of this ledger's")
            return
        is_repeat = message.finish_txn <= self.newest_finish
        versions = self._history.versions(
            [(row.object_id, row.birth) for row in rows if self._has_bucket(row.bucket_id)]
        )
        entered = list[tuple[int, int]]()
        for self._place, row in enumerate(rows):
            if self._has_bucket(row.bucket_id):
                self._row(row, versions, entered, is_repeat=is_repeat)
        self._history.enter_all(entered)
        self.newest_finish = max(self.newest_finish, message.finish_txn)

    def _row(
        self,
        row: LedgerRow,
        versions: dict[tuple[int, int], Version],
        entered: list[tuple[int, int]],
        *,
        is_repeat: bool,
    ) -> None:
        report = self.report
        if row.finish_txn > report.txn and report.lost_tail_offset is not None:
            report.beyond_rows += 1
            return
        version = versions.get((row.object_id, row.birth))
        if is_repeat and version is not None and version.entered and version.finish_txn == row.finish_txn:
            report.repeated_rows += 1
        else:
            report.rows += 1
            report.blocks += row.block_count
            report.size_bytes += row.size_bytes
            if version is not None:
                entered.append(version.name)
                versions[version.name] = version._replace(entered=version.entered + 1)
                if version.entered:
                    self._add(FindingKind.TWICE, row, "the ledger has it once already, freed at another txn or with it")
        for kind, reason in self._wrong(row, version):
            self._add(kind, row, reason)

    def _wrong(self, row: LedgerRow, version: Version | None) -> Iterator[tuple[FindingKind, str]]:
        if version is None or version.bucket_id != row.bucket_id or version.first_local_id is None:
            yield (
                FindingKind.UNKNOWN_VERSION,
                "the log never made it in that bucket with blocks, or gave those to another",
            )
            return
        claim_txn = row.claim.claim_txn
        asked = self._history.asked(version, claim_txn)
        if version.died is None:
            yield FindingKind.FREED_WHILE_LIVE, "it is in the active namespace"
        elif claim_txn < version.back_txn:
            yield FindingKind.FREED_WHILE_LIVE, f"it came back at txn {version.back_txn}, after its claim"
        elif asked is None and version.held_claim_txn is not None:
            yield (
                FindingKind.FREED_WHILE_HELD,
                f"asked for at txn {version.held_claim_txn}, when the snapshot of txn {version.holder_txn} held it",
            )
        elif asked is None:
            yield FindingKind.NOT_CLAIMED, f"it is dead, and no claim of txn {claim_txn} asked for it"
        elif version.finish_txn is None:
            yield FindingKind.NOT_FINISHED, "it is claimed, and no command has finished it"
        else:
            yield from self._differences(row, version, asked)

    def _differences(self, row: LedgerRow, version: Version, asked: Asked) -> Iterator[tuple[FindingKind, str]]:
        claim = self._history.claim_of(asked.claim_txn)
        facts = row.claim
        if claim is None:  # note_claim stored each claim before its rows
            raise AssertionError(version)
        pairs: tuple[tuple[str, Any, Any], ...] = (
            ("death", row.death, asked.death),
            ("container", row.container_id, version.container_id),
            ("first block", row.first_local_id, version.first_local_id),
            ("blocks", row.block_count, version.block_count),
            ("bytes a block", row.block_size_bytes, version.block_size_bytes),
            ("bytes", row.size_bytes, version.size_bytes),
            ("time of the claim", facts.claim_time_ms, claim.time_ms),
            ("chain version", facts.chain_version, claim.chain_version),
            ("snapshot before the death", facts.previous_txn, asked.previous_txn),
            ("snapshot after the birth", facts.next_txn, asked.next_txn),
            ("task", facts.task, claim.task),
            ("first judge's chain version", facts.first_judge_version, claim.first_judge_version),
            ("second judge's chain version", facts.second_judge_version, claim.second_judge_version),
            ("finish", row.finish_txn, version.finish_txn),
            ("time of the finish", row.finish_time_ms, self._history.finish_time_ms(version.finish_txn or 0)),
        )
        for name, entered, reported in pairs:
            if entered != reported:
                yield FindingKind.DIFFERENT, f"{name}: the ledger says {entered}, the log {reported}"

    def end(self, complete_txn: int) -> None:
        """Report finished versions without a ledger row.

        The ledger must hold every version finished at or below ``complete_txn``. Claimed versions without a row that
        finish later are counted as unfinished.
        """
        report = self.report
        complete_txn = max(complete_txn, self.newest_finish)
        for version in self._history.not_entered():
            if version.finish_txn is not None and version.finish_txn <= complete_txn:
                self._add(FindingKind.MISSING, version, f"finished at txn {version.finish_txn}, and not in the ledger")
            else:
                report.unfinished_rows += 1
                report.unfinished_bytes += version.size_bytes

    def _add(self, kind: FindingKind, about: LedgerRow | Version | None, reason: str) -> None:
        if isinstance(about, LedgerRow):
            name = (about.bucket_id, about.object_id, about.birth, about.death)
            txns = (about.claim.claim_txn, about.finish_txn)
        elif about is not None:
            name = (about.bucket_id, about.object_id, about.birth, about.death or 0)
            txns = (about.claim_txn or 0, about.finish_txn or 0)
        else:
            name, txns = (0, 0, 0, 0), (0, 0)
        self.report.add(Finding(kind, *name, *txns, reason), self._place)


def compare_bytes(report: VerifyReport, deleted_before: int, deleted_after: int) -> None:
    """Compare the ledger's bytes with the block store's deleted bytes, read before the replay and after it."""
    report.deleted_bytes_before, report.deleted_bytes_after = deleted_before, deleted_after
    if report.lost_tail_offset is not None:
        return
    if report.size_bytes > deleted_after:
        reason = f"the ledger has {report.size_bytes} bytes, the block store deleted {deleted_after} only"
        report.add(Finding(FindingKind.BYTES, 0, 0, 0, 0, 0, 0, reason))
    elif deleted_before > report.size_bytes + report.unfinished_bytes:
        reason = (
            f"the block store had deleted {deleted_before} bytes, the ledger has {report.size_bytes} and "
            f"{report.unfinished_bytes} were on their way"
        )
        report.add(Finding(FindingKind.BYTES, 0, 0, 0, 0, 0, 0, reason))
