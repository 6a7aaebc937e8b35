"""The report of a ledger verification."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

MAX_EXAMPLES = 1_000


class FindingKind(StrEnum):
    """Kinds of errors in a ledger row, a missing ledger row or an undelete, most severe first."""

    FREED_WHILE_LIVE = "FREED_WHILE_LIVE"
    FREED_WHILE_HELD = "FREED_WHILE_HELD"
    UNKNOWN_VERSION = "UNKNOWN_VERSION"
    BROUGHT_BACK = "BROUGHT_BACK"
    NOT_CLAIMED = "NOT_CLAIMED"
    TWICE = "TWICE"
    NOT_FINISHED = "NOT_FINISHED"
    DIFFERENT = "DIFFERENT"
    UNREADABLE = "UNREADABLE"
    MISSING = "MISSING"
    BYTES = "BYTES"


LOSSES = (
    FindingKind.FREED_WHILE_LIVE,
    FindingKind.FREED_WHILE_HELD,
    FindingKind.UNKNOWN_VERSION,
    FindingKind.NOT_CLAIMED,
)
"""Kinds where live or held blocks were freed, or blocks of which the log does not show that nobody held them."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One error. Ids that do not apply are 0."""

    kind: FindingKind
    bucket_id: int
    object_id: int
    birth: int
    death: int
    claim_txn: int
    finish_txn: int
    reason: str


@dataclass(slots=True)
class VerifyReport:
    """Result of one shard.

    All sizes are block bytes. ``txn`` is the last replayed txn. ``undeletes`` counts the undeletes that metadata
    answered with success; each was checked.
    """

    shard: int
    commands: int = 0
    txn: int = 0
    rows: int = 0
    repeated_rows: int = 0
    blocks: int = 0
    size_bytes: int = 0
    unfinished_rows: int = 0
    unfinished_bytes: int = 0
    undeletes: int = 0
    beyond_rows: int = 0
    lost_tail_offset: int | None = None
    deleted_bytes_before: int | None = None
    deleted_bytes_after: int | None = None
    findings: dict[FindingKind, int] = field(default_factory=dict)
    examples: list[Finding] = field(default_factory=list)

    @property
    def is_clean(self) -> bool:
        """Return whether there are no findings."""
        return not self.findings

    @property
    def has_losses(self) -> bool:
        """Return whether a finding is one of ``LOSSES``."""
        return any(kind in self.findings for kind in LOSSES)

    def add(self, finding: Finding, place: int = 0) -> None:  # noqa: ARG002  for those that order findings
        """Count a finding and keep it as an example, at most ``MAX_EXAMPLES``. ``place`` is that of its ledger row."""
        self.findings[finding.kind] = self.findings.get(finding.kind, 0) + 1
        if len(self.examples) < MAX_EXAMPLES:
            self.examples.append(finding)
