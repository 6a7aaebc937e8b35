"""Why each snapshot that holds something stays, and until when: for ``explain``, and for the page."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from schemas.answers import RetentionReason, SnapshotTag
from schemas.records import SnapshotInfo
from services.client.tasks.space_view import BucketView
from services.domain.retention import KeepReason
from services.wording.figures import time_text
from services.wording.space import why_it_stays

NEVER = -1
"""The expiry of a tag that does not expire."""
NOT_KNOWN = -1
"""The end of a reason whose end depends on later snapshots, or of a tag that has gone meanwhile."""


@dataclass(frozen=True, slots=True)
class Holder:
    """A snapshot that holds something, with the reason why it stays, and until when, as texts."""

    name: str
    created: str
    why: str
    until: str


def holders_of(view: BucketView, snapshots: Sequence[SnapshotInfo]) -> list[Holder]:
    """Return the holders for these snapshots, in their order; without any, nothing is asked for."""
    if not snapshots:
        return []
    of_all = view.keep_reasons()
    kept = {one.snapshot_id: of_all.of(one) for one in of_all.preview.kept}
    tags = {tag.tag: tag for tag in view.plane.snapshots(view.shard).tags(view.volume, view.bucket)}
    holders = []
    for info in snapshots:
        reasons = kept.get(info.snapshot_id, ())
        why = why_it_stays(of_all, info.snapshot_id, reasons)
        holders.append(
            Holder(
                info.name,
                time_text(info.creation_time_ms),
                why,
                until_text(reasons, tags, has_policy=of_all.has_policy),
            )
        )
    return holders


def until_text(reasons: Iterable[RetentionReason], tags: Mapping[str, SnapshotTag], *, has_policy: bool) -> str:
    """Return until when a snapshot stays, as text; what is not known is said.

    ``has_policy``: whether its bucket has a retention policy, which deletes what nothing keeps any more.
    """
    ends, kept_for_ever = list[int](), list[str]()
    for reason in reasons:
        if reason.reason != KeepReason.TAG:
            ends.append(reason.until_ms)
            continue
        for name in reason.names:
            if name in tags and tags[name].expiry_time_ms == NEVER:
                kept_for_ever.append(name)
            else:
                ends.append(tags[name].expiry_time_ms if name in tags else NOT_KNOWN)
    if NOT_KNOWN in ends:
        return "not known"
    if kept_for_ever:
        what = f"the tag {kept_for_ever[0]}" if len(kept_for_ever) == 1 else f"the tags {', '.join(kept_for_ever)}"
        return f"a user deletes {what}" if has_policy else f"a user deletes {what}, and then the snapshot"
    if not ends:
        return "a user or a run of retention deletes it" if has_policy else "a user deletes it"
    return time_text(max(ends)) if has_policy else f"a user deletes it, at {time_text(max(ends))} at the earliest"
