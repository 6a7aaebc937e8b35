"""Compares Ozone's own figures of a bucket with what its rows add up to, and says what its tools do not show."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from services.domain.words import counted
from services.lens.relation import LensFinding


@dataclass(frozen=True, slots=True)
class Amount:
    """Bytes, what they take on disks, and the number of rows."""

    bytes: int = 0
    replicated_bytes: int = 0
    rows: int = 0

    def __add__(self, other: Amount) -> Amount:
        return Amount(self.bytes + other.bytes, self.replicated_bytes + other.replicated_bytes, self.rows + other.rows)


NOTHING = Amount()
NOT_LOOKED_FOR_WITHOUT_A_STORE = (
    "snapshotUsedBytes and snapshotUsedNamespace were not compared with the rows: a snapshot's database is missing.",
    "Orphans were not looked for: a directory that leads to them may be in the database that is missing.",
)
"""If the database of a snapshot of the bucket is missing."""


OWN_SIZES_DIFFER = (
    "exclusiveSize is what Ozone's garbage collection counted in its last passes: it is right only after a pass over "
    "each snapshot. referencedSize also counts files below directories that were deleted before the snapshot. All "
    "other columns are counted from the rows."
)


def own_sizes_note(figures: Mapping[str, int], sizes: Mapping[str, tuple[int, int]]) -> tuple[str, ...]:
    """Return a note if Ozone's own figures of a snapshot are not its referenced and exclusive bytes, by its name."""
    is_different = any(
        figures.get(f"{name}/{own_name}", size_bytes) != size_bytes
        for name, ours in sizes.items()
        for own_name, size_bytes in zip(("referencedSize", "exclusiveSize"), ours, strict=True)
    )
    return (OWN_SIZES_DIFFER,) if is_different else ()


@dataclass(frozen=True, slots=True)
class BucketSums:
    """Sums over the rows of a bucket in all stores of its chain."""

    used: Amount = NOTHING
    """Rows of the live tables in the active store, by the size and replication of the key."""
    parts: Amount = NOTHING
    """Committed parts of uploads."""
    directories: int = 0
    snapshot_used: Amount = NOTHING
    """Committed versions in ``deletedTable`` of all stores, by their blocks."""
    is_every_store_there: bool = True


def compared(
    bucket: str, figures: Mapping[str, int], sums: BucketSums, *, is_file_system: bool
) -> Iterator[LensFinding]:
    """Yield a finding for each of Ozone's figures that the rows contradict."""
    used = sums.used + sums.parts
    yield from _different(
        bucket, figures, "usedBytes", used.replicated_bytes, "wrong-used-bytes", "ozone repair om quota counts it again"
    )
    if sums.is_every_store_there:
        yield from _different(
            bucket,
            figures,
            "snapshotUsedBytes",
            sums.snapshot_used.replicated_bytes,
            "wrong-snapshot-used-bytes",
            "it counts against the quota until ozone repair om quota counts it again",
        )
    yield from _different(
        bucket, figures, "usedNamespace", sums.used.rows + sums.directories, "wrong-used-namespace", ""
    )
    pending = figures.get("snapshotUsedNamespace", 0)
    if pending < 0:
        yield LensFinding(
            "negative-namespace",
            bucket,
            "",
            "",
            0,
            0,
            f"snapshotUsedNamespace is {pending}: Ozone subtracts each deleted directory without having added it.",
        )
    elif sums.is_every_store_there and not is_file_system:
        yield from _different(
            bucket, figures, "snapshotUsedNamespace", sums.snapshot_used.rows, "wrong-snapshot-used-namespace", ""
        )


def _different(
    bucket: str, figures: Mapping[str, int], name: str, by_rows: int, kind: str, remedy: str
) -> Iterator[LensFinding]:
    said = figures.get(name)
    if said is None or said == by_rows:
        return
    size = by_rows - said if name.endswith("Bytes") else 0
    sentence = f"{name} is {said}, and the rows add up to {by_rows}" + (f": {remedy}." if remedy else ".")
    yield LensFinding(kind, bucket, "", "", size, size, sentence)


def unreachable(bucket: str, amount: Amount, snapshot: str) -> LensFinding:
    """Return the finding of files below directories that were deleted before a snapshot; "" is the present state."""
    files = counted(amount.rows, "file")
    if snapshot:
        sentence = (
            f"fileTable, usedBytes and the referencedSize of {snapshot} still include {files} below directories that "
            f"were deleted before snapshot {snapshot}. Only older snapshots show and hold such files."
        )
    else:
        sentence = (
            f"fileTable and usedBytes still include {files} below deleted directories. Only snapshots show and hold "
            f"such files; those that no snapshot holds are pending."
        )
    return LensFinding("unreachable-file", bucket, "", snapshot, amount.bytes, amount.replicated_bytes, sentence)


SENTENCES = {
    "orphaned-file": "No directory leads to this file, and none that waits to be deleted: Ozone never frees it. "
    "ozone repair om fso-tree repairs buckets without snapshots.",
    "orphaned-directory": "Nothing leads to this directory, and it does not wait to be deleted: it stays for ever.",
    "read-but-freed": "Ozone will free blocks that a snapshot still reads, since its row and the deleted one differ.",
}
