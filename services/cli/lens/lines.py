"""What ``deepclean lens`` prints of its answers: the words and tables of ``deepclean space``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from operator import attrgetter
from textwrap import wrap

from schemas.records import SnapshotStatus
from services.cli.output import print_fields, print_table
from services.cli.space_lines import print_preview, print_snapshots, print_states, say_plan
from services.cli.terminal import printable, say
from services.domain.words import counted
from services.lens.questions import (
    LensExplanation,
    LensFreed,
    LensOrphans,
    LensPlan,
    LensRetention,
    LensSpace,
    LensVersion,
)
from services.lens.report import FindingSum, ReportHead
from services.wording.figures import bytes_text, size_text, time_text
from services.wording.space import amounts_of, freed_text, names_text, sizes_of

ORDINARY = SnapshotStatus.SNAPSHOT_ACTIVE.value
"""The status that is not worth a column."""
WIDTH = 120
"""Most letters of a line that need not be longer."""
_ID_WIDTH = 22
_BETWEEN = "  "
"""What stands between two columns."""
_GOES_WHEN = {
    "live": "it is deleted and no snapshot holds it",
    "held": "the snapshots that hold it are deleted",
    "pending": "the source's garbage collection runs",
}


def print_spaces(head: ReportHead, spaces: Sequence[LensSpace], findings: Mapping[str, Sequence[FindingSum]]) -> None:
    """Print where the bytes of each bucket are, what each snapshot refers to, holds alone and shares, and the sums of
    the findings by bucket.
    """
    if not spaces:
        say(f"{head.location} has no {head.noun}.")
    for number, space in enumerate(spaces):
        if number:
            say("")
        _print_space(head, space)
        if found := findings.get(space.bucket):
            kinds = "; ".join(map(_sum_text, found))
            number_of_findings = counted(sum(one.count for one in found), "finding")
            say("", f"{number_of_findings}: {kinds}. The question orphans shows the details.")


def _sum_text(one: FindingSum) -> str:
    return f"{one.count:,} {one.kind}" + (f" of {bytes_text(one.bytes)}" if one.bytes else "")


def _print_space(head: ReportHead, space: LensSpace) -> None:
    print_fields(
        [
            (head.noun, space.bucket),
            ("read from", f"{head.source} {head.location}"),
            ("as of", time_text(head.made_at_ms)),
            ("live snapshots", len(space.snapshots)),
            *(
                (f"{head.source} says {name}", _figure_text(name, figure))
                for name, figure in space.figures.items()
                if "/" not in name
            ),
        ]
    )
    say("")
    print_states(_states(space), is_exact=space.is_exact)
    say("")
    _print_snapshots(head.source, space)
    _say_notes(space.notes)


def _figure_text(name: str, figure: int | None) -> str:
    """Return a figure that the source keeps, if it has it: names that end in Bytes and Size are of bytes."""
    if figure is None:
        return ""
    return bytes_text(figure) if name.endswith(("Bytes", "Size")) else f"{figure:,}"


def _print_snapshots(source: str, space: LensSpace) -> None:
    """Print the snapshots, with the source's own figures, their statuses, and what protects them if there is any."""
    own = dict.fromkeys(name.rpartition("/")[2] for name in space.figures if "/" in name)
    further = {
        f"{source}: {name}": [_figure_text(name, space.figures.get(f"{one.name}/{name}")) for one in space.snapshots]
        for name in own
    }
    further |= {
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
    for state, when in _GOES_WHEN.items():
        yield state, *amounts_of(space, state), when


def print_freed(freed: LensFreed) -> None:
    """Print what dropping snapshots would free."""
    sizes = (freed.freed_bytes, freed.freed_replicated_bytes, freed.freed_versions)
    say(f"deleting {', '.join(freed.snapshots)} would free {freed_text(*sizes, is_exact=freed.is_exact)}")
    _say_notes(freed.notes)


def print_plan(plan: LensPlan, wanted: str) -> None:
    """Print the snapshots of a plan. ``wanted``: the size that was asked for, as text."""
    freed = freed_text(plan.freed_bytes, plan.freed_replicated_bytes, plan.freed_versions, is_exact=plan.is_exact)
    say_plan(plan.snapshots, freed, wanted, is_enough=plan.is_enough, is_smallest=plan.is_smallest)
    _say_notes(plan.notes)


def print_explanation(what: str, found: LensExplanation) -> None:
    """Print who holds a path or a thing, in lines of at most ``WIDTH`` letters but for paths: ids are shortened."""
    holders = (["the live state"] if found.is_live else []) + ([_ends(found.held_by)] if found.held_by else [])
    held_by = _lines(" and ".join(holders) or "no snapshot", WIDTH - len("asked for  "))
    print_fields(
        [
            ("asked for", f"{what} of {found.bucket}"),
            *zip(("held by", *[""] * len(held_by)), held_by, strict=False),
            ("bytes", size_text(found.bytes, found.replicated_bytes, is_exact=found.is_exact)),
        ]
    )
    for path, versions in groupby(found.versions, key=attrgetter("path")):
        say("")
        if path != what:
            say(f"{path}:")
        _print_versions(list(versions), is_exact=found.is_exact)
    say("")
    for stage in sorted({one.stage.lower() for one in found.versions}):
        say(f"{stage}: goes when {_GOES_WHEN[stage]}")
    _say_notes(found.notes)


def _print_versions(versions: Sequence[LensVersion], *, is_exact: bool) -> None:
    """Print a table of versions; their holders have the room that other columns leave, in several lines if need be."""
    titles = ("ID", "KIND", "BYTES", "ON DISKS", "STAGE")
    cells = [
        (
            *(_middle_left_out(one.id), one.kind),
            *(size_text(size, is_exact=is_exact) for size in (one.bytes, one.replicated_bytes)),
            one.stage.lower(),
        )
        for one in versions
    ]
    room = WIDTH - sum(len(_BETWEEN) + max(map(len, column)) for column in zip(titles, *cells, strict=True))
    rows = []
    for texts, one in zip(cells, versions, strict=True):
        first, *more = _lines(_ends(one.held_by), room)
        rows += [(*texts, first), *((*[""] * len(titles), text) for text in more)]
    print_table([*titles, "HELD BY"], rows, numbers=["BYTES", "ON DISKS"])


def _ends(names: Sequence[str]) -> str:
    """Return names as one text; if there are more than two, the first, the last and their number."""
    return ", ".join(names) if len(names) <= 2 else f"{names[0]} … {names[-1]} ({len(names):,} in all)"


def _middle_left_out(text: str) -> str:
    """Return an id with at most as many letters as fit its column: its beginning, and more of its end, where ids
    that are alike differ.
    """
    return text if len(text) <= _ID_WIDTH else f"{text[:8]}…{text[9 - _ID_WIDTH :]}"


def _lines(text: str, width: int) -> list[str]:
    """Return a text in lines that are broken at spaces, and in a word only if the word is longer than a line."""
    return wrap(printable(text), width, break_on_hyphens=False) or [""]


def print_retention(retention: LensRetention) -> None:
    """Print what a policy would expire."""
    print_preview(retention.preview)
    _say_notes(retention.notes)


def print_orphans(head: ReportHead, orphans: LensOrphans) -> None:
    """Print what the source's own tools do not show."""
    if not orphans.findings:
        nothing = "Nothing was found that the source's own tools do not show."
        say("Nothing was found, but the search was incomplete:" if orphans.not_looked_for else nothing)
    else:
        print_table(
            ["FINDING", head.noun.upper(), "PATH", "ID", "BYTES", "ON DISKS", "WHY"],
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
        for line in wrap(
            printable(f"note: {note}"), WIDTH, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False
        ):
            say(line)
