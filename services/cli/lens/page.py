"""Writes a report as one self-contained HTML page: tables, the chain as a timeline, the space matrix as a picture.

The tables are in the page as they are. A script draws timeline and matrix from the cells, and sums up the cells that
lie within the snapshots that a reader chooses, as a what-if does. Where there are too many cells to draw, neighbouring
snapshots become groups, which are chosen as a whole: the sums stay exact.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from importlib import resources
from pathlib import Path
from typing import Any

from services.cli.output import bytes_text, counted, time_text
from services.cli.space_lines import amounts_of
from services.domain.run_space import Runs, renumbered
from services.domain.space_matrix import SpaceCell, total
from services.lens.questions import BucketQuestions, LensSnapshot, LensSpace, orphans, questions
from services.lens.relation import Ref
from services.lens.report import Report

MOST_CELLS = 5_000
MOST_BUCKETS = 20
MOST_FINDINGS = 1_000
_TEMPLATE = "page.html"


@dataclass(frozen=True, slots=True)
class Picture:
    """What the script draws of a bucket."""

    groups: tuple[tuple[Ref, ...], ...]
    """All references but the active one, in their order; a group is chosen as a whole."""
    cells: tuple[tuple[Runs, SpaceCell], ...]
    """What the active namespace does not hold, by runs of groups; the largest first."""
    left_out: SpaceCell
    """What is too small and too scattered to be drawn: dropping snapshots may free up to this much more."""


def write_page(report: Report, bucket: str, file: Path) -> None:
    """Write the page of a bucket, or of all buckets of a report."""
    file.write_text(page_of(report, bucket), "utf-8")


def page_of(report: Report, bucket: str = "") -> str:
    """Return the page.

    Raises:
        QuestionError: the report has no such bucket.
    """
    asked = [(one, one.space()) for one in questions(report, bucket)]
    largest = sorted(asked, key=lambda one: -(one[1].held_bytes + one[1].pending_bytes))[:MOST_BUCKETS]
    shown = {one.bucket.name for one, _ in largest}
    head = report.head
    notes = list(head.notes)
    if len(asked) > len(shown):
        notes.append(
            f"Of {counted(len(asked), 'bucket')} the {len(shown)} with most bytes that are not live are shown; "
            f"--bucket shows another one."
        )
    made = f"read from {head.source} {head.location} at {time_text(head.made_at_ms)} by {head.program}"
    parts = {
        "title": escape(f"{bucket or head.location}: what its snapshots hold"),
        "made": escape(made),
        "notes": _notes(notes),
        "buckets": "\n".join(_section(one, space) for one, space in asked if one.bucket.name in shown),
        "findings": _findings(report, bucket),
    }
    text = resources.files("services.cli.lens").joinpath(_TEMPLATE).read_text("utf-8")
    before, *rest = text.split("{{")
    pieces = [before]
    for piece in rest:  # not one replacement after the other: a name may look like a place of the template
        name, _, after = piece.partition("}}")
        pieces += [parts[name], after]
    return "".join(pieces)


def picture_of(questions: BucketQuestions, most_cells: int = MOST_CELLS) -> Picture:
    """Return what to draw of a bucket: each reference by itself, or groups as large as it takes."""
    cells = dict(questions.matrix.held_cells())
    groups = [[ref] for ref in questions.bucket.refs[: questions.bucket.active_place]]
    while len(cells) > most_cells:
        pairs, number = _paired(groups)
        if len(pairs) == len(groups):
            break
        groups, cells = pairs, renumbered(cells.items(), number)
    largest = sorted(cells.items(), key=lambda one: (-one[1].replicated_bytes, one[0]))
    left_out = total(cell for _, cell in largest[most_cells:])
    return Picture(tuple(map(tuple, groups)), tuple(largest[:most_cells]), left_out)


def _paired(groups: Sequence[Sequence[Ref]]) -> tuple[list[list[Ref]], dict[int, int]]:
    """Return groups of two neighbours each, and each one's new number; what cannot be dropped stays by itself."""
    pairs: list[list[Ref]] = []
    number: dict[int, int] = {}
    is_open = False
    for index, group in enumerate(groups):
        if is_open and group[0].is_droppable and pairs[-1][0].is_droppable:
            pairs[-1] += group
            is_open = False
        else:
            pairs.append(list(group))
            is_open = True
        number[index] = len(pairs) - 1
    return pairs, number


def script_data(picture: Picture, *, is_exact: bool) -> dict[str, Any]:
    """Return what the script reads. Bytes are text, since its numbers are exact up to 8 PiB only."""
    return {
        "groups": [_group_data(group) for group in picture.groups],
        "cells": [
            [[list(run) for run in runs], str(cell.bytes), str(cell.replicated_bytes), cell.versions]
            for runs, cell in picture.cells
        ],
        "leftOut": str(picture.left_out.bytes),
        "isExact": is_exact,
    }


def _group_data(group: Sequence[Ref]) -> dict[str, Any]:
    first, last = group[0], group[-1]
    return {
        "name": first.name if len(group) == 1 else f"{first.name} … {last.name}",
        "count": len(group),
        "from": time_text(first.time_ms),
        "time": time_text(last.time_ms),
        "isDroppable": first.is_droppable,
        "protectedBy": sorted({name for ref in group for name in ref.protected_by}),
    }


def _section(questions: BucketQuestions, space: LensSpace) -> str:
    picture = picture_of(questions)
    grouped = sum(len(group) > 1 for group in picture.groups)
    notes = list(questions.bucket.all_notes)
    if grouped:
        notes.append(
            f"{counted(len(space.snapshots), 'snapshot')} are too many to draw: timeline and matrix show groups of "
            f"neighbours, and what a choice of whole groups frees is exact. The command answers for single ones."
        )
    if picture.left_out.bytes:
        notes.append(f"The smallest cells are not drawn: up to {bytes_text(picture.left_out.bytes)} more may be freed.")
    mark = "" if space.is_exact else "~"
    states = [(state, *amounts_of(space, state)) for state in ("live", "held", "pending")]
    return "\n".join(
        [
            f'<section class="bucket"><h2>{escape(space.bucket)}</h2>',
            _notes(notes),
            _table(
                ("where", "bytes", "on disks", "versions"),
                (
                    (state, mark + bytes_text(size), mark + bytes_text(replicated), f"{versions:,}")
                    for state, size, replicated, versions in states
                ),
            ),
            '<div class="picture"></div>',
            f'<script type="application/json">{_json(script_data(picture, is_exact=space.is_exact))}</script>',
            "<h3>Snapshots</h3>",
            _table(
                ("snapshot", "created", "referenced", "exclusive", "shared with previous", "shared with next", ""),
                (_row(one, mark) for one in space.snapshots),
            ),
            "</section>",
        ]
    )


def _row(one: LensSnapshot, mark: str) -> tuple[str, ...]:
    sizes = (one.referenced_bytes, one.exclusive_bytes, one.shared_with_previous_bytes, one.shared_with_next_bytes)
    protection = f"protected by {', '.join(one.protected_by)}" if one.protected_by else ""
    return one.name, time_text(one.time_ms), *(mark + bytes_text(size) for size in sizes), protection


def _findings(report: Report, bucket: str) -> str:
    found = orphans(report, bucket).findings
    if not found:
        return ""
    rows = ((one.kind, one.bucket, one.path, bytes_text(one.bytes), one.sentence) for one in found[:MOST_FINDINGS])
    more = len(found) - MOST_FINDINGS
    left_out = _notes([f"{more:,} more are not shown: the command orphans lists all."]) if more > 0 else ""
    table = _table(("finding", "bucket", "path", "bytes", "why"), rows)
    return f'<section class="findings"><h2>Findings</h2>{left_out}\n{table}</section>'


def _notes(notes: Iterable[str]) -> str:
    return "".join(f'<p class="note">{escape(note)}</p>' for note in notes)


def _table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    def line(cells: Sequence[str], tag: str) -> str:
        return f"<tr>{''.join(f'<{tag}>{escape(cell)}</{tag}>' for cell in cells)}</tr>"

    body = "\n".join(line(row, "td") for row in rows)
    return f'<div class="wide"><table><thead>{line(columns, "th")}</thead><tbody>\n{body}</tbody></table></div>'


def _json(value: Mapping[str, Any]) -> str:
    """Return JSON that can stand in a script element, whatever names contain."""
    return json.dumps(value, separators=(",", ":")).replace("<", "\\u003c").replace("&", "\\u0026")
