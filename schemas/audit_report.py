"""The report of an audit of one shard. The job ``streaming.audit`` writes it, ``deepclean audit`` shows it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class FindingKind(StrEnum):
    """The kind of defect of a run of blocks."""

    DANGLING = "DANGLING"
    """A row refers to the blocks, and they are not in the block store: lost."""
    DAMAGED = "DAMAGED"
    """A row refers to the blocks, and the block store has them with another length or for another bucket."""
    CLAIMED_TOO_EARLY = "CLAIMED_TOO_EARLY"
    """Claimed, although the active namespace or a live snapshot shows the version: it will be lost."""
    CONTRADICTION = "CONTRADICTION"
    """Rows contradict each other: a version in two places, two owners of the blocks, or impossible holders."""
    FORGOTTEN = "FORGOTTEN"
    """Only a snapshot shows the version, and it has no garbage row: a leak once the snapshot is dropped."""
    STRAY = "STRAY"
    """A row of the active namespace that no path reaches and that no expansion will find: a leak."""
    ORPHANED = "ORPHANED"
    """The block store has the blocks, no row refers to them, and no row waits to delete them: a leak."""


LOSSES = (FindingKind.DANGLING, FindingKind.DAMAGED, FindingKind.CLAIMED_TOO_EARLY, FindingKind.CONTRADICTION)


@dataclass(frozen=True, slots=True)
class Amount:
    """A number of versions, or of orphaned runs of blocks, and their bytes."""

    versions: int = 0
    bytes: int = 0
    redundancy_bytes: int = 0
    """Bytes that the blocks take on disks beyond one copy of them."""

    def __add__(self, other: Amount) -> Amount:
        """Return the sum."""
        redundancy_bytes = self.redundancy_bytes + other.redundancy_bytes
        return Amount(self.versions + other.versions, self.bytes + other.bytes, redundancy_bytes)


NOTHING = Amount()


@dataclass(frozen=True, slots=True)
class Finding:
    """One run of blocks with a defect."""

    kind: FindingKind
    reason: str
    """Description of the defect, one sentence."""
    bucket_id: int
    bucket: str
    """``volume/bucket``; empty when metadata has no bucket with this id."""
    path: str
    """Path of the key that has or had the blocks; empty when it is not known."""
    object_id: int
    """0 when no row refers to the blocks."""
    birth: int
    container_id: int
    first_local_id: int
    block_count: int
    block_size_bytes: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Verdicts:
    """Rows of one garbage table by verdict, judged by look-ups in the two newest snapshots before each death."""

    reclaimable: int = 0
    exclusive_to_previous: int = 0
    shared: int = 0

    def __add__(self, other: Verdicts) -> Verdicts:
        """Return the sum."""
        return Verdicts(
            self.reclaimable + other.reclaimable,
            self.exclusive_to_previous + other.exclusive_to_previous,
            self.shared + other.shared,
        )


NO_ROWS = Verdicts()


@dataclass(frozen=True, slots=True)
class FigureDifference:
    """A figure of metadata that differs from the recount."""

    bucket: str
    figure: str
    kept: int
    recounted: int


@dataclass(frozen=True, slots=True)
class UsedFigures:
    """What a bucket says is used, as in its row: against the sums of live and deleted its quotas are checked."""

    bytes: int = 0
    namespace: int = 0
    snapshot_bytes: int = 0
    snapshot_namespace: int = 0
    upload_bytes: int = 0
    spare_bytes: int = 0
    block_rows: int = 0
    redundancy_bytes: int = 0
    snapshot_redundancy_bytes: int = 0
    upload_redundancy_bytes: int = 0
    spare_redundancy_bytes: int = 0


@dataclass(frozen=True, slots=True)
class BucketAudit:
    """The recounted versions of a bucket, by stage."""

    bucket_id: int
    bucket: str
    is_rolling_back: bool
    live: Amount = NOTHING
    unexpanded: Amount = NOTHING
    """Below deleted directories that are not expanded yet."""
    held: Amount = NOTHING
    """Deleted, and shown by a live snapshot."""
    pending: Amount = NOTHING
    """Deleted, shown by no live snapshot, and not claimed."""
    claimed: Amount = NOTHING
    exclusive: Amount = NOTHING
    """The part of the held versions that only one snapshot shows."""
    keys: Verdicts = NO_ROWS
    """Rows of deletedTable."""
    directories: Verdicts = NO_ROWS
    """Rows of deletedDirectoryTable."""
    used: UsedFigures = UsedFigures()
    """As metadata states it; nothing for a deleted bucket."""
    recounted: UsedFigures = UsedFigures()
    is_deleted: bool = False

    @property
    def is_used_wrong(self) -> bool:
        """Return whether the recount does not confirm what the bucket says is used."""
        return self.used != self.recounted and not self.is_deleted and not self.is_rolling_back


@dataclass(frozen=True, slots=True)
class AuditReport:
    """The result of an audit of one shard, at one txn."""

    shard: int
    txn: int
    chain_version: int
    snapshots: int
    """Live snapshots that were read."""
    buckets: tuple[BucketAudit, ...]
    inventory: Amount
    """Runs in both copies of the inventory."""
    too_young: Amount
    """Runs and versions that were added or removed while the copies were made: not judged."""
    findings: dict[FindingKind, Amount]
    examples: tuple[Finding, ...]
    """Some findings of each kind; all orphaned runs up to a limit, since a repair names them."""
    differences: tuple[FigureDifference, ...]
    difference_count: int

    @property
    def has_losses(self) -> bool:
        """Return whether blocks are lost or will be lost."""
        return any(kind in self.findings for kind in LOSSES)

    @property
    def is_clean(self) -> bool:
        """Return whether there are no findings and no differences."""
        return not self.findings and not self.difference_count
