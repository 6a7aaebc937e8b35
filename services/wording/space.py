"""What is said of bytes, versions, snapshots and retention: in tables of commands and on the page."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from schemas.answers import BucketSpace, RetentionPreview, RetentionReason
from schemas.space_answers import BlockExplanation, ExplainedDirectory, SnapshotSpace, VersionStage
from services.domain.table_keys import local_id_shard
from services.domain.words import counted
from services.wording.figures import amount_in_words, size_text, time_text

if TYPE_CHECKING:  # the lens shows such lines without a client of a plane
    from services.client.tasks.space_view import KeepReasons

_MOST_NAMES = 4
NO_MORE = "every other snapshot is protected or kept, or holds nothing more"
"""Why a plan frees less than is wanted."""
NOTHING_LEFT = "Nothing of it is left: it was freed, or never there. What is claimed has no name; ask for its block"
"""What is said of a path without any version."""
Sizes = tuple[int, int]
"""Bytes, and what they take on disks."""


SIZES = ("referenced", "exclusive", "shared_with_previous", "shared_with_next")
"""The sizes of a snapshot, in the order in which they are shown."""


def sizes_of(one: object) -> list[Sizes]:
    """Return the sizes of a snapshot, a record with ``referenced_bytes``, ``referenced_replicated_bytes`` and so on."""
    return [(getattr(one, f"{size}_bytes"), getattr(one, f"{size}_replicated_bytes")) for size in SIZES]


def amounts_of(space: object, state: str) -> tuple[int, int, int]:
    """Return bytes, what they take on disks, and versions in a state: ``live_bytes``, ``live_replicated_bytes`` …"""
    size_bytes, replicated_bytes, versions = (
        getattr(space, f"{state}_{unit}") for unit in ("bytes", "replicated_bytes", "versions")
    )
    return size_bytes, replicated_bytes, versions


def states_of(space: BucketSpace, suspended: str) -> Iterator[tuple[str, int, int, int | str, str]]:
    """Yield for each state its bytes, what they take on disks, the versions, and when it ends.

    ``suspended`` is the reason why claims are suspended, empty if they are not.
    """
    pending = "an operator resumes collection (see deepclean gc status)" if suspended else "it is judged and claimed"
    yield "live", space.live_bytes, space.live_replicated_bytes, "", "it is deleted and no snapshot holds it"
    for state, goes in (
        ("held", "the snapshots that hold it are deleted"),
        ("pending", pending),
        ("claimed", "the block store has confirmed it"),
    ):
        yield state, *amounts_of(space, state), goes
    yield "in the store", accounted_bytes(space), accounted_replicated_bytes(space), "", "sum of the four rows above"
    yield "freed", space.freed_bytes, space.freed_replicated_bytes, space.freed_versions, "already freed"


def accounted_bytes(space: BucketSpace) -> int:
    """Return the bytes of a bucket that the block store must have while no command is in progress."""
    return space.live_bytes + space.held_bytes + space.pending_bytes + space.claimed_bytes


def accounted_replicated_bytes(space: BucketSpace) -> int:
    """Return what these bytes take on disks."""
    of_garbage = space.held_replicated_bytes + space.pending_replicated_bytes + space.claimed_replicated_bytes
    return space.live_replicated_bytes + of_garbage


def snapshot_texts(one: SnapshotSpace) -> list[str]:
    """Return the sizes of a snapshot as text: referenced, exclusive, shared with previous, shared with next."""
    are_exact = (
        one.is_referenced_exact,
        one.is_exclusive_exact,
        one.is_referenced_exact,
        one.is_shared_with_next_exact,
    )
    return [size_text(*sizes, is_exact=is_exact) for sizes, is_exact in zip(sizes_of(one), are_exact, strict=True)]


def freed_text(size_bytes: int, replicated_bytes: int, versions: int, *, is_exact: bool) -> str:
    """Return what a deletion of snapshots would free."""
    return f"{size_text(size_bytes, replicated_bytes, is_exact=is_exact)}, {counted(versions, 'version')}"


def goes_when(stage: VersionStage, holders: list[str], suspended: str) -> str:
    """Return the event after which a version's blocks are freed, as a clause.

    ``suspended`` is the reason why claims are suspended, empty if they are not.
    """
    last = f"{names_text(holders)} {'are' if len(holders) > 1 else 'is'} deleted"
    if stage is VersionStage.LIVE:
        return f"it is deleted, and {last}" if holders else "it is deleted"
    if stage is VersionStage.CLAIMED:
        return "the block store confirms"
    if holders:
        return last
    if suspended:
        return f"an operator resumes collection: {suspended}"
    if stage is VersionStage.UNEXPANDED:
        return "the directory above it is expanded, and it is judged and claimed automatically"
    return "it is judged and claimed automatically"


def directory_text(directory: ExplainedDirectory, holders: list[str]) -> str:
    """Return what is known of a directory itself, and when its entry goes, as a clause."""
    state = "live" if not directory.death else f"deleted at txn {directory.death}"
    waits = ", not expanded yet" if directory.death and not directory.is_expanded else ""
    first = "everything below it is removed" if directory.death else "it is deleted and everything below it is removed"
    last = f", and {names_text(holders)} {'are' if len(holders) > 1 else 'is'} deleted" if holders else ""
    return f"a directory, {state}{waits}; held by {names_text(holders) or 'no snapshot'}; goes when {first}{last}"


def block_fields(
    found: BlockExplanation, local_id: int, searched: str, holders: list[str], suspended: str
) -> list[tuple[str, str]]:
    """Return what is known of a block, as names and texts, when the search for its owner is over.

    ``searched`` is the bucket in which it was searched, empty for the whole shard; ``holders`` are the snapshots that
    hold its version, and ``suspended`` is the reason why claims are suspended, empty if they are not.
    """
    version = found.version
    shown = [
        ("block", f"{local_id} of shard {local_id_shard(local_id)}"),
        ("as of", f"txn {found.txn}, chain version {found.chain_version}"),
        ("written", f"at txn {found.birth}"),
    ]
    if version is None:
        where = f" of {searched}" if searched else ""
        freed = f"it was freed (deepclean ledger show {local_id} --block says why)"
        reasons = f"{freed}, that txn wrote no such block, or an open key or a part of an upload has it"
        return [*shown, ("owner", f"no existing version{where}: {reasons}")]
    return [
        *shown,
        ("bucket", f"{found.volume}/{found.bucket}"),
        ("path", found.path or f"…/{version.name}"),
        ("bytes of the version", size_text(version.size_bytes, version.replicated_bytes, is_exact=True)),
        ("stage", version.stage.lower()),
        ("held by", names_text(holders) or "no snapshot"),
        ("goes when", goes_when(version.stage, holders, suspended)),
    ]


def names_text(names: list[str]) -> str:
    """Return the names as one text. If there are more than ``_MOST_NAMES``, give only some and the number."""
    if len(names) <= _MOST_NAMES:
        return ", ".join(names)
    return f"{names[0]}, {names[1]} … {names[-1]} ({counted(len(names), 'snapshot')})"


def expiry_sentence(plan: RetentionPreview) -> str:
    """Return which snapshots a run of retention expires, and what that frees, as the end of a sentence."""
    return f"expires {', '.join(one.snapshot for one in plan.expired)}: {what_it_frees(plan)}"


def what_it_frees(plan: RetentionPreview) -> str:
    """Return what a run of retention frees, as a clause."""
    mark = "" if plan.is_exact else "~"
    return f"that frees {mark}{amount_in_words(plan.freed_bytes, plan.freed_versions, plan.freed_replicated_bytes)}"


def reasons_text(reasons: Iterable[RetentionReason]) -> str:
    """Return the reasons for which a snapshot is kept, as clauses."""
    return "; ".join(map(_reason_text, reasons))


def _reason_text(reason: RetentionReason) -> str:
    match reason.reason:
        case "MINIMUM":
            return f"one of the newest {reason.bound}"
        case "CONSUMER":
            return f"still to be read by {', '.join(reason.names)}"
        case "TAG" | "PROTECTED":
            return f"{'tagged' if reason.reason == 'TAG' else 'protected by'} {', '.join(reason.names)}"
        case "LIMIT":
            return f"not among the oldest {reason.bound}, which one run considers"
        case _ if reason.until_ms < 0:
            return "no later snapshot exists"
        case _:
            return f"the next snapshot is too young until {time_text(reason.until_ms)}"


def why_it_stays(of_all: KeepReasons, snapshot_id: str, reasons: tuple[RetentionReason, ...]) -> str:
    """Return the reasons that keep a snapshot, or, without one, the run of retention that will expire it."""
    if reasons:
        return reasons_text(reasons)
    if not of_all.has_policy:
        return "its bucket has no retention policy"
    if any(expiring.snapshot_id == snapshot_id for expiring in of_all.preview.expired):
        return "no run of retention has considered it yet: the next run expires it"
    return "older snapshots expire first: a later run of retention expires it"
