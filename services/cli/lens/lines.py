"""What ``deepclean lens`` prints of its answers: the words and tables of ``deepclean space``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from schemas.records import SnapshotStatus
from schemas.space_answers import VersionStage
from services.cli.output import bytes_text, counted, print_fields, print_table, size_text, time_text
from services.cli.space_lines import (
    amounts_of,
    freed_text,
    goes_when,
    names_text,
    print_preview,
    print_snapshots,
    print_states,
    say_plan,
    sizes_of,
)
from services.cli.terminal import say
from services.lens.questions import (
    LensExplanation,
    LensFreed,
    LensOrphans,
    LensPlan,
    LensRetention,
    LensSpace,
    LensVersion,
)
from services.lens.report import ReportHead

ORDINARY = SnapshotStatus.SNAPSHOT_ACTIVE.value
"""The status that is not worth a column."""


def print_spaces(head: ReportHead, spaces: Sequence[LensSpace], findings: Mapping[str, int]) -> None:
    """Print where the bytes of each bucket are, what each snapshot refers to, holds alone and shares, and the number of
    findings by bucket.
    """
    if not spaces:
        say(f"{head.location} has no bucket.")
    for number, space in enumerate(spaces):
        if number:
            say("")
        _print_space(head, space)
        if found := findings[space.bucket]:
            say("", f"{counted(found, 'finding')} beside that: ask for orphans.")


def _print_space(head: ReportHead, space: LensSpace) -> None:
    print_fields(
        [
            ("bucket", space.bucket),
            ("read from", f"{head.source} {head.location}"),
            ("as of", time_text(head.made_at_ms)),
            ("live snapshots", len(space.snapshots)),
            *((f"{head.source} says {name}", f"{figure:,}") for name, figure in space.figures.items()),
        ]
    )
    say("")
    print_states(_states(space), is_exact=space.is_exact)
    say("")
    _print_snapshots(space)
    _say_notes(space.notes)


def _print_snapshots(space: LensSpace) -> None:
    """Print the snapshots, with their statuses and what protects them if one of them has any."""
    further = {
        "STATUS": ["" if one.status == ORDINARY else one.status for one in space.snapshots],
        "PROTECTED BY": [names_text(list(one.protected_by)) for one in space.snapshots],
    }
    shown = {title: texts for title, texts in further.items() if any(texts)}
    print_snapshots(
        (
            (
                one.name,
                one.time_ms,
                [
                    *(size_text(*sizes, is_exact=space.is_exact) for sizes in sizes_of(one)),
                    *(texts[place] for texts in shown.values()),
                ],
            )
            for place, one in enumerate(space.snapshots)
        ),
        list(shown),
    )


def _states(space: LensSpace) -> Iterator[tuple[str, int, int, int, str]]:
    goes = {
        "live": "it is deleted and no snapshot holds it",
        "held": "the snapshots that hold it are deleted",
        "pending": "it is collected",
    }
    for state, when in goes.items():
        yield state, *amounts_of(space, state), when


def print_freed(freed: LensFreed) -> None:
    """Print what dropping snapshots would free."""
    sizes = (freed.freed_bytes, freed.freed_replicated_bytes, freed.freed_versions)
    say(f"deleting {', '.join(freed.snapshots)} would free {freed_text(*sizes, is_exact=freed.is_exact)}")
    _say_notes(freed.notes)


def print_plan(plan: LensPlan) -> None:
    """Print the snapshots of a plan."""
    freed = freed_text(plan.freed_bytes, plan.freed_replicated_bytes, plan.freed_versions, is_exact=plan.is_exact)
    say_plan(plan.snapshots, freed, plan.wanted_bytes, is_enough=plan.is_enough, is_smallest=plan.is_smallest)
    _say_notes(plan.notes)


def print_explanation(what: str, found: LensExplanation) -> None:
    """Print who holds a path or a thing."""
    holders = (["what is live"] if found.is_live else []) + ([names_text(list(found.held_by))] if found.held_by else [])
    print_fields(
        [
            ("asked for", f"{what} of {found.bucket}"),
            ("held by", " and ".join(holders) or "nobody"),
            ("bytes", size_text(found.bytes, found.replicated_bytes, is_exact=found.is_exact)),
        ]
    )
    say("")
    print_table(
        ["PATH", "ID", "KIND", "BYTES", "ON DISKS", "STAGE", "HELD BY", "GOES WHEN"],
        (
            (
                *(one.path, one.id, one.kind),
                *(size_text(size, is_exact=found.is_exact) for size in (one.bytes, one.replicated_bytes)),
                *(one.stage.lower(), names_text(list(one.held_by)), _goes_when(one)),
            )
            for one in found.versions
        ),
        numbers=["BYTES", "ON DISKS"],
    )
    _say_notes(found.notes)


def _goes_when(version: LensVersion) -> str:
    is_pending = version.stage is VersionStage.PENDING
    return "it is collected" if is_pending else goes_when(version.stage, list(version.held_by), "")


def print_retention(retention: LensRetention) -> None:
    """Print what a policy would expire."""
    print_preview(retention.preview)
    _say_notes(retention.notes)


def print_orphans(orphans: LensOrphans) -> None:
    """Print what the source's own tools do not show."""
    if not orphans.findings:
        nothing = "Nothing was found that the source's own tools do not show."
        say("No finding, but not everything was looked for:" if orphans.not_looked_for else nothing)
    else:
        print_table(
            ["FINDING", "BUCKET", "PATH", "ID", "BYTES", "ON DISKS", "WHY"],
            (
                (
                    *(one.kind, one.bucket, one.path, one.id),
                    *(bytes_text(one.bytes), bytes_text(one.replicated_bytes), one.sentence),
                )
                for one in orphans.findings
            ),
            numbers=["BYTES", "ON DISKS"],
        )
        say("", counted(len(orphans.findings), "finding"))
    _say_notes(orphans.not_looked_for)
    _say_notes(orphans.notes)


def _say_notes(notes: Iterable[str]) -> None:
    for note in notes:
        say(f"note: {note}")
