"""Why each snapshot that holds something stays, and until when: for ``explain``, and for the page."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from schemas.answers import RetentionReason, SnapshotTag
from schemas.records import SnapshotInfo
from services.cli.output import counted, print_table, time_text
from services.cli.space_lines import why_it_stays
from services.cli.terminal import say
from services.client.tasks.space_view import BucketView
from services.domain.retention import KeepReason

MOST_SHOWN = 12
"""More holders are not printed one by one: those in the middle of a line stay for the same reasons."""
_FOR_EVER = -1


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


def until_text(reasons: Iterable[RetentionReason], tags: Mapping[str, SnapshotTag], *, has_policy: bool = True) -> str:
    """Return the time until which the reasons keep a snapshot, as text; what is not known is said.

    ``has_policy``: whether the bucket has a retention policy, which deletes what nothing keeps.
    """
    ends: list[int] = []
    for reason in reasons:
        if reason.reason == KeepReason.TAG:
            ends += [tags[name].expiry_time_ms if name in tags else _FOR_EVER for name in reason.names]
        else:
            ends.append(reason.until_ms)
    if not ends:
        return "somebody deletes it, or a run of retention does" if has_policy else "somebody deletes it"
    return "not known" if _FOR_EVER in ends else time_text(max(ends))


def print_holders(holders: Sequence[Holder]) -> None:
    """Print why holders stay and until when, in chain order: of many, the oldest and the newest."""
    if not holders:
        return
    half = MOST_SHOWN // 2
    left_out = len(holders) - MOST_SHOWN
    shown = holders if left_out <= 0 else [*holders[:half], *holders[-half:]]
    say("")
    print_table(
        ["HOLDER", "CREATED", "STAYS BECAUSE", "UNTIL"], ((one.name, one.created, one.why, one.until) for one in shown)
    )
    if left_out > 0:
        say(f"{counted(left_out, 'holder')} between these are not shown (--json has all)")
