"""What an audit of a shard has found. Written by the job ``streaming.audit``, shown by ``deepclean audit``."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class FindingKind(StrEnum):
    """What is wrong with some blocks."""

    DANGLING = "DANGLING"
    """Referred to, and not in the block store: lost."""
    DAMAGED = "DAMAGED"
    """Referred to, and in the block store with another length or for another bucket."""
    CLAIMED_TOO_EARLY = "CLAIMED_TOO_EARLY"
    """On its way out of the block store though the active namespace or a live snapshot shows it: about to be lost."""
    CONTRADICTION = "CONTRADICTION"
    """Its rows contradict each other: in two places at once, two owners, or holders that cannot be."""
    FORGOTTEN = "FORGOTTEN"
    """Shown by a snapshot alone, with no garbage row: it will leak when the snapshot goes."""
    STRAY = "STRAY"
    """Has a row in the active namespace that no path leads to and no deleted directory will take along: a leak."""
    ORPHANED = "ORPHANED"
    """In the block store, referred to by nothing and owed to nobody: a leak."""


LOSSES = (FindingKind.DANGLING, FindingKind.DAMAGED, FindingKind.CLAIMED_TOO_EARLY, FindingKind.CONTRADICTION)
LEAKS = (FindingKind.FORGOTTEN, FindingKind.STRAY, FindingKind.ORPHANED)


@dataclass(frozen=True, slots=True)
class Amount:
    """Some versions, or runs of blocks that nobody owns, and their bytes."""

    versions: int = 0
    bytes: int = 0

    def __add__(self, other: Amount) -> Amount:
        """Both together."""
        return Amount(self.versions + other.versions, self.bytes + other.bytes)


NOTHING = Amount()


@dataclass(frozen=True, slots=True)
class Finding:
    """One run of blocks with which something is wrong."""

    kind: FindingKind
    reason: str
    """What exactly, in a sentence."""
    bucket_id: int
    bucket: str
    """``volume/bucket``; empty when metadata knows no such bucket."""
    path: str
    """Where a key has or had it; empty when nothing says so."""
    object_id: int
    """0 when nothing owns the blocks."""
    birth: int
    container_id: int
    first_local_id: int
    block_count: int
    block_size_bytes: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Verdicts:
    """Rows of one garbage table as a look-up in the previous and before-previous snapshot judges them."""

    reclaimable: int = 0
    exclusive_to_previous: int = 0
    shared: int = 0

    def __add__(self, other: Verdicts) -> Verdicts:
        """Both together."""
        return Verdicts(
            self.reclaimable + other.reclaimable,
            self.exclusive_to_previous + other.exclusive_to_previous,
            self.shared + other.shared,
        )


NO_ROWS = Verdicts()


@dataclass(frozen=True, slots=True)
class FigureDifference:
    """A figure that metadata keeps, and what a recount finds instead."""

    bucket: str
    figure: str
    kept: int
    recounted: int


@dataclass(frozen=True, slots=True)
class BucketAudit:
    """Where the versions of a bucket are, by recount."""

    bucket_id: int
    bucket: str
    is_rolling_back: bool
    live: Amount = NOTHING
    unexpanded: Amount = NOTHING
    """Below deleted directories that wait for their expansion."""
    held: Amount = NOTHING
    """Deleted, and shown by a live snapshot."""
    pending: Amount = NOTHING
    """Deleted, shown by nobody, not claimed."""
    claimed: Amount = NOTHING
    exclusive: Amount = NOTHING
    """Of those held, what one snapshot alone shows."""
    keys: Verdicts = NO_ROWS
    """Rows of deletedTable."""
    directories: Verdicts = NO_ROWS
    """Rows of deletedDirectoryTable."""


@dataclass(frozen=True, slots=True)
class AuditReport:
    """What an audit of one shard has found, as of one txn."""

    shard: int
    txn: int
    chain_version: int
    snapshots: int
    """Live snapshots that were read."""
    buckets: tuple[BucketAudit, ...]
    inventory: Amount
    """Runs in both copies of the inventory."""
    too_young: Amount
    """Runs and versions that came or went while the copies were made: nothing is said of them."""
    findings: dict[FindingKind, Amount]
    examples: tuple[Finding, ...]
    """Some of each kind; every orphan, up to a limit, since a repair names them."""
    differences: tuple[FigureDifference, ...]
    difference_count: int

    @property
    def has_losses(self) -> bool:
        """Whether something is lost, or about to be."""
        return any(kind in self.findings for kind in LOSSES)

    @property
    def is_clean(self) -> bool:
        """Whether nothing at all was found."""
        return not self.findings and not self.difference_count
