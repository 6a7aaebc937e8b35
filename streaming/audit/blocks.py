"""The rule of an audit: compares all rows that refer to one run of blocks with the block store's inventory.

The rule looks rows up and compares sets, as Ozone's filters do, and shares no code with the judges. The snapshot
checkpoints that show a version decide which snapshots hold it; births, deaths and the chain do not.

The copies are made in this order: first inventory, metadata, second inventory. Two conclusions follow:

- A run that was reported before the first inventory and is missing from it was deleted before metadata's copy was made.
  If metadata's copy refers to the run, its blocks are lost. A younger run may have been written and deleted in between:
  the rule draws no conclusion.
- A run that is in both inventories, and was written by a txn that metadata had applied, is referenced by metadata's
  copy or is an orphan for ever: block ids are never reused, and a run without references cannot get one again. The
  block store hears of blocks when they become part of a version or of an upload, or die. So the blocks of open keys are
  in no inventory.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

from schemas.audit_report import NO_ROWS, NOTHING, Amount, FindingKind, Verdicts
from services.domain.replication import redundancy_bytes
from services.domain.table_keys import local_id_txn
from streaming.audit.facts import AFTER, BEFORE, Fact, FactKind
from streaming.audit.reach import ACTIVE, PRESENT, UNEXPANDED, snapshots_of
from streaming.audit.shard import AuditedBucket, AuditedShard

MAX_FINDINGS = 100_000
"""Most findings that are kept of each kind; further ones are only counted."""
Run = tuple[int, int, int, int, int]
Holders = tuple[int, int]


def amount_of(run: Run) -> Amount:
    """Return a run of blocks as an amount of one version."""
    return Amount(1, run[4], redundancy_bytes(run[0], *run[2:]))


@dataclass(slots=True)
class Version:
    """All facts of one run of blocks of one object, from its birth until its death."""

    bucket_id: int
    object_id: int
    birth: int
    """0 for a part of an upload."""
    run: Run
    """As long as in its longest row: the last block may have grown after a snapshot has seen it."""
    amount: Amount = NOTHING
    """That of the run; or of all versions that are judged with this one."""
    shown: list[tuple[int, int]] = field(default_factory=list)
    """How many bytes which states show: a mask and a size for each distinct row of the namespace."""
    mask: int = 0
    """All states that show it."""
    deleted: int = 0
    claimed: int = 0
    """Its death in reclaimTable (``deleted``: in deletedTable); 0 without a row there."""
    key: bytes = b""
    """The key of its row in the namespace; empty when it has none."""
    is_split: bool = False
    """Whether its rows name different blocks."""
    own_sizes: set[int] = field(default_factory=set)
    """The sizes in the rows of metadata's own tables: each has the newest size. Those of snapshots may be smaller."""


@dataclass(frozen=True, slots=True)
class RawFinding:
    """A finding without its path, which ``streaming.audit.result`` adds."""

    kind: FindingKind
    reason: str
    version: Version
    """For a run without references: its bucket alone."""


@dataclass(slots=True)
class BucketTally:
    """Sums over the versions of a bucket."""

    live: Amount = NOTHING
    unexpanded: Amount = NOTHING
    held: Amount = NOTHING
    pending: Amount = NOTHING
    claimed: Amount = NOTHING
    stray: Amount = NOTHING
    live_keys: int = 0
    """Rows of live keys, with blocks or without."""
    block_rows: int = 0
    """Garbage rows of blocks, or of noncurrent versions."""
    uploads: Amount = NOTHING
    """Of the live ones parts of uploads."""
    spare: Amount = NOTHING
    """Blocks that never belonged to a version."""
    keys: Verdicts = NO_ROWS
    cells: defaultdict[Holders, Amount] = field(default_factory=lambda: defaultdict(Amount))
    shown: defaultdict[int, Amount] = field(default_factory=lambda: defaultdict(Amount))
    """The versions as they are shown, by the set of snapshots that show them."""
    grown: defaultdict[int, Amount] = field(default_factory=lambda: defaultdict(Amount))
    """Bytes by which blocks have grown since, by the set of snapshots that show them."""


@dataclass(slots=True)
class Tally:
    """The results of some runs; ``merge`` adds those of others."""

    buckets: defaultdict[int, BucketTally] = field(default_factory=lambda: defaultdict(BucketTally))
    inventory: Amount = NOTHING
    """Runs that are in both copies."""
    inventory_after: Amount = NOTHING
    """Runs that are in the second copy."""
    too_young: Amount = NOTHING
    findings: defaultdict[FindingKind, Amount] = field(default_factory=lambda: defaultdict(Amount))
    raw: list[RawFinding] = field(default_factory=list)

    def find(self, kind: FindingKind, version: Version, reason: str) -> None:
        """Count a finding, and keep it unless ``MAX_FINDINGS`` of its kind are kept."""
        self.findings[kind] += version.amount
        if self.findings[kind].versions <= MAX_FINDINGS:
            self.raw.append(RawFinding(kind, reason, version))

    def count(self, kind: FactKind, bucket_id: int, number: int) -> None:
        """Add the number in a fact about no run."""
        if kind is FactKind.NAMES:
            self.buckets[bucket_id].live_keys += number
        else:
            self.buckets[bucket_id].block_rows += number

    def merge(self, other: Tally) -> None:
        """Add the results of other runs."""
        self.inventory += other.inventory
        self.inventory_after += other.inventory_after
        self.too_young += other.too_young
        for bucket_id, theirs in other.buckets.items():
            ours = self.buckets[bucket_id]
            for name in ("live", "unexpanded", "held", "pending", "claimed", "stray", "uploads", "spare"):
                setattr(ours, name, getattr(ours, name) + getattr(theirs, name))
            ours.keys += theirs.keys
            ours.live_keys += theirs.live_keys
            ours.block_rows += theirs.block_rows
            for holders, amount in theirs.cells.items():
                ours.cells[holders] += amount
            for shown_by, amount in theirs.shown.items():
                ours.shown[shown_by] += amount
            for shown_by, amount in theirs.grown.items():
                ours.grown[shown_by] += amount
        self.raw += [one for one in other.raw if self.findings[one.kind].versions < MAX_FINDINGS]
        for kind, amount in other.findings.items():
            self.findings[kind] += amount


def judge_run(facts: Sequence[Fact], shard: AuditedShard, tally: Tally, amount: Amount | None = None) -> None:
    """Judge a run by all of its facts. ``amount``: that of all runs that are alike, which are judged together."""
    inventory = [fact for fact in facts if fact[0] == FactKind.INVENTORY]
    versions = _versions(facts)
    for version in versions:
        version.amount = amount or amount_of(version.run)
    for fact in inventory:
        there = Version(bucket_id=fact[6], object_id=0, birth=0, run=fact[1:6], amount=amount or amount_of(fact[1:6]))
        if fact[9] == BEFORE | AFTER:
            tally.inventory += there.amount
        if fact[9] & AFTER:
            tally.inventory_after += there.amount
        if versions:
            continue
        if fact[9] != BEFORE | AFTER or local_id_txn(fact[2]) > shard.txn:
            tally.too_young += there.amount
        else:
            tally.find(FindingKind.ORPHANED, there, "in the block store, and nothing refers to it")
    if len(versions) > 1:
        for version in versions:
            tally.find(FindingKind.CONTRADICTION, version, f"{len(versions)} versions own the same blocks")
    for version in versions:
        _sort(version, shard, tally)
        _look_for(version, inventory, shard, tally)


def _versions(facts: Sequence[Fact]) -> list[Version]:
    found: dict[tuple[int, int, int], Version] = {}
    for kind, container, first, count, block_size, size, bucket_id, object_id, birth, seen, key in facts:
        if kind == FactKind.INVENTORY:
            continue
        run = (container, first, count, block_size, size)
        version = found.get((bucket_id, object_id, birth))
        if version is None:
            version = found[bucket_id, object_id, birth] = Version(bucket_id, object_id, birth, run)
        version.is_split |= version.run[:4] != run[:4]
        version.run = max(version.run, run)
        if kind == FactKind.NAMESPACE:
            # The path of an example is its path in the active namespace, if there is one.
            if not version.key or seen & (ACTIVE | PRESENT):
                version.key = key
            version.mask |= seen
            version.shown.append((seen, size))
            if seen & (ACTIVE | PRESENT):
                version.own_sizes.add(size)
            continue
        version.own_sizes.add(size)
        if kind == FactKind.DELETED:
            version.deleted = seen
        else:
            version.claimed = seen
    for version in found.values():
        sizes = version.own_sizes if _is_late(version) else version.own_sizes | {size for _, size in version.shown}
        version.is_split |= any(size != version.run[4] for size in sizes)
    return list(found.values())


def _is_late(version: Version) -> bool:
    """Return whether the version was born after its blocks were allocated: it was written in steps, or undeleted.

    Only the last block of the former may grow.
    """
    return local_id_txn(version.run[1]) != version.birth


def _sort(version: Version, shard: AuditedShard, tally: Tally) -> None:
    """Count a version in the sums of its places, and record findings about places that it must not be in."""
    bucket, sums = shard.buckets[version.bucket_id], tally.buckets[version.bucket_id]
    amount = version.amount
    holders = snapshots_of(version.mask)
    for mask, size_bytes in version.shown:
        # Versions that are judged together have rows of one size.
        shown = amount if size_bytes == version.run[4] else amount_of((*version.run[:4], size_bytes))
        sums.shown[snapshots_of(mask)] += shown
        sums.grown[snapshots_of(mask)] += Amount(
            0, amount.bytes - shown.bytes, amount.redundancy_bytes - shown.redundancy_bytes
        )
    _count_beside_keys(version, sums)
    is_live, is_unexpanded = bool(version.mask & ACTIVE), bool(version.mask & UNEXPANDED)
    is_stray = bool(version.mask & PRESENT) and not is_live and not is_unexpanded
    if version.claimed:
        sums.claimed += amount
        if is_live or holders:
            tally.find(FindingKind.CLAIMED_TOO_EARLY, version, f"claimed, and shown by {_who(version, bucket)}")
    if version.deleted:
        sums.held += amount if holders else NOTHING
        sums.pending += NOTHING if holders else amount
        sums.cells[cell_of(holders, bucket)] += amount
        sums.keys += look_up(holders, version.deleted, bucket.snapshot_txns, amount.versions)
    if is_live:
        sums.live += amount
    elif is_unexpanded:
        sums.unexpanded += amount
    elif is_stray:
        sums.stray += amount
        tally.find(FindingKind.STRAY, version, "its row is there and no path leads to it")
    places = (is_live or is_unexpanded or is_stray) + bool(version.deleted) + bool(version.claimed)
    if not places and not bucket.is_rolling_back:
        tally.find(FindingKind.FORGOTTEN, version, f"shown by {_who(version, bucket)} alone, without a garbage row")
    reason = _contradiction(version, bucket, places, holders)
    if reason:
        tally.find(FindingKind.CONTRADICTION, version, reason)


def _count_beside_keys(version: Version, sums: BucketTally) -> None:
    """Count blocks that no key has: those of an upload, and those that died at their birth."""
    if not version.birth:
        sums.uploads += version.amount
    elif max(version.deleted, version.claimed) == version.birth:
        sums.spare += version.amount


def look_up(holders: int, death: int, snapshot_txns: Sequence[int], rows: int = 1) -> Verdicts:
    """Return the verdict on some rows. Only the last two snapshots before their death are looked up."""
    before_death = bisect_left(snapshot_txns, death)
    if before_death == 0 or not holders >> (before_death - 1) & 1:
        return Verdicts(reclaimable=rows)
    if before_death == 1 or not holders >> (before_death - 2) & 1:
        return Verdicts(exclusive_to_previous=rows)
    return Verdicts(shared=rows)


def cell_of(holders: int, bucket: AuditedBucket) -> Holders:
    """Return the txns of the first and last live snapshot of a set; zeros for an empty set."""
    if not holders:
        return 0, 0
    oldest, newest = (holders & -holders).bit_length() - 1, holders.bit_length() - 1
    return bucket.snapshot_txns[oldest], bucket.snapshot_txns[newest]


def _contradiction(version: Version, bucket: AuditedBucket, places: int, holders: int) -> str:
    """Return what is wrong with a version's rows; empty if nothing is."""
    if places == 1 and not holders and not version.is_split:
        return ""
    newest, before_death = holders.bit_length(), bisect_left(bucket.snapshot_txns, version.deleted)
    is_held_dead = bool(version.deleted and holders)
    is_held_live = bool(version.mask & PRESENT and not version.mask & UNEXPANDED and holders)
    has_gap = bool(holders + (holders & -holders) & holders)
    checks = {
        "its rows name different blocks": version.is_split,
        "in more than one of the active namespace, deletedTable and reclaimTable": places > 1,
    }
    if not bucket.is_rolling_back:
        checks |= {
            "some snapshot between two that show it does not": has_gap,
            "live and in an older snapshot, but not in the newest": is_held_live
            and newest != len(bucket.snapshot_txns),
            "shown by a snapshot that was taken after its death": is_held_dead and newest > before_death,
            "shown by an older snapshot, but not by the last before its death: it would be freed": (
                is_held_dead and newest < before_death
            ),
        }
    return next((reason for reason, is_so in checks.items() if is_so), "")


def _who(version: Version, bucket: AuditedBucket) -> str:
    holders = snapshots_of(version.mask)
    shown = ["the active namespace"] if version.mask & ACTIVE else []
    count = holders.bit_count()
    if count:
        oldest = bucket.snapshot_txns[(holders & -holders).bit_length() - 1]
        shown.append(f"{count} snapshot{'s' if count > 1 else ''} (the oldest of txn {oldest})")
    return " and ".join(shown)


def _look_for(version: Version, inventory: Sequence[Fact], shard: AuditedShard, tally: Tally) -> None:
    """Record a finding if the block store lacks a version's blocks; blocks of a claimed version may be deleted."""
    is_there = any(fact[1:6] == version.run and fact[6] == version.bucket_id for fact in inventory)
    if is_there or not (version.mask or version.deleted):
        return
    if not _was_reported(version, shard):
        tally.too_young += version.amount
        return
    if inventory:
        tally.find(FindingKind.DAMAGED, version, "the block store has it with another length or bucket")
        return
    place = (
        "waits in deletedTable"
        if version.deleted and not version.mask
        else f"shown by {_who(version, shard.buckets[version.bucket_id]) or 'no path'}"
    )
    tally.find(FindingKind.DANGLING, version, f"not in the block store, and {place}")


def _was_reported(version: Version, shard: AuditedShard) -> bool:
    """Return whether the block store had heard of a version's blocks, as long as they are now, before its first copy.

    A command's own blocks are their mark. Blocks that an earlier command has allocated are reported later, at the birth
    of the run, and again when the last block grows: the mark of such a report is an id of its own txn.
    """
    first_local_id, late = version.run[1], shard.reported_local_id if _is_late(version) else 0
    return max(first_local_id, late) <= shard.mark_before
