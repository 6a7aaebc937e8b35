"""What verifying a shard's ledger has found."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

MAX_EXAMPLES = 1_000


class FindingKind(StrEnum):
    """What is wrong with a row of the ledger, for want of one, or with an undelete; the worst first."""

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


LOSSES = (FindingKind.FREED_WHILE_LIVE, FindingKind.FREED_WHILE_HELD, FindingKind.UNKNOWN_VERSION)
"""Blocks went that somebody needed, or that nobody can say anything of."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong. Ids are 0 where there are none."""

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
    """One shard. Bytes are those of the blocks; ``txn`` is how far the log was replayed.

    ``undeletes`` are those that metadata has answered with success: each was checked, too.
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
        """Whether nothing is wrong."""
        return not self.findings

    @property
    def has_losses(self) -> bool:
        """Whether something went that was needed."""
        return any(kind in self.findings for kind in LOSSES)

    def add(self, finding: Finding) -> None:
        """Count a finding, and keep it while there is room."""
        self.findings[finding.kind] = self.findings.get(finding.kind, 0) + 1
        if len(self.examples) < MAX_EXAMPLES:
            self.examples.append(finding)
