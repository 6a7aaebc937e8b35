"""Writes a report as one self-contained HTML page: tables, the chain as a timeline, the space matrix as a picture.

The tables are in the page as they are. Timeline and matrix are those of the page of a plane (``services.page``): a
script draws them from the cells, and sums up the cells that lie within the snapshots that a reader chooses, as a
what-if does; those of an answer are chosen from the start.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from importlib import resources
from pathlib import Path, PurePosixPath
from typing import Any

from services.domain.words import counted
from services.lens.questions import BucketQuestions, LensSnapshot, LensSpace, orphans, questions
from services.lens.relation import LensFinding, Ref
from services.lens.report import Report, ReportHead
from services.page.assets import asset, inlined
from services.page.picture import MOST_CELLS, Picture, draw, script_data
from services.wording.figures import bytes_text, time_text
from services.wording.space import amounts_of

MOST_BUCKETS = 20
MOST_FINDINGS = 1_000
_TEMPLATE = "page.html"
_KINDS = {"git": "Git repository", "iceberg": "Iceberg table", "ozone": "Ozone bucket", "paimon": "Paimon table"}


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table."""

    title: str
    css_class: str = ""
    """``text`` and ``sentence`` are on the left and may take several lines; what has none is a number."""


def write_page(report: Report, bucket: str, file: Path, chosen: Collection[str] = ()) -> None:
    """Write the page of a bucket, or of all buckets of a report; ``chosen`` snapshots are chosen when it opens."""
    file.write_text(page_of(report, bucket, chosen), "utf-8")


def page_of(report: Report, bucket: str = "", chosen: Collection[str] = ()) -> str:
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
            f"Of {counted(len(asked), head.noun)} the {len(shown)} with most bytes that are not live are shown; "
            f"--bucket shows another one."
        )
    made = f"Read from {head.source} {head.location} at {time_text(head.made_at_ms)} by {head.program}."
    parts = {
        "title": escape(_title(head, [one.bucket.name for one, _ in asked])),
        "made": escape(made),
        "notes": _notes(notes),
        "buckets": "\n".join(_section(one, space, chosen) for one, space in asked if one.bucket.name in shown),
        "findings": _findings(report, bucket),
        "style": asset("base.css").rstrip(),
        "script": inlined("elements.js", "matrix.js", "picture.js", "lens.js"),
    }
    before, *rest = _asset(_TEMPLATE).split("{{")
    pieces = [before]
    for piece in rest:  # not one replacement after the other: a name may look like a place of the template
        name, _, after = piece.partition("}}")
        pieces += [parts[name], after]
    return "".join(pieces)


def _title(head: ReportHead, buckets: Sequence[str]) -> str:
    """Return what was read as people call it. The buckets of a git repository are views of it, and not its name."""
    kind = _KINDS.get(head.source, head.source)
    if head.source == "git":
        return f"{kind} {PurePosixPath(head.location).name}".rstrip()
    return f"{kind} {buckets[0]}" if len(buckets) == 1 else counted(len(buckets), kind)


def _asset(name: str) -> str:
    return resources.files("services.cli.lens").joinpath(name).read_text("utf-8").rstrip("\n")


def picture_of(questions: BucketQuestions, most_cells: int = MOST_CELLS, chosen: Collection[str] = ()) -> Picture[Ref]:
    """Return what to draw of a bucket: each reference by itself, or groups as large as it takes."""
    refs = questions.bucket.refs[: questions.bucket.active_place]
    return draw(refs, dict(questions.matrix.held_cells()), most_cells, chosen)


def _section(questions: BucketQuestions, space: LensSpace, chosen: Collection[str]) -> str:
    picture = picture_of(questions, chosen=chosen)
    bucket = questions.bucket
    notes = [*bucket.notes, *bucket.remarks]
    if len(picture.groups) < len(space.snapshots):
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
                f"Bytes of {space.bucket}",
                [Column("where"), Column("bytes"), Column("on disks"), Column("versions")],
                (
                    (state, mark + bytes_text(size), mark + bytes_text(replicated), f"{versions:,}")
                    for state, size, replicated, versions in states
                ),
            ),
            '<div class="picture"></div>',
            f'<script type="application/json">{_json(script_data(picture, chosen, is_exact=space.is_exact))}</script>',
            "<h3>Snapshots</h3>",
            _table(
                f"Snapshots of {space.bucket}",
                [
                    Column("snapshot", "text"),
                    *map(Column, ("created", "referenced", "exclusive", "shared with previous", "shared with next")),
                    Column("can be dropped", "text"),
                ],
                (_row(ref, one, mark) for ref, one in zip(bucket.refs, space.snapshots, strict=False)),
            ),
            "</section>",
        ]
    )


def _row(ref: Ref, snapshot: LensSnapshot, mark: str) -> tuple[str, ...]:
    sizes = (
        snapshot.referenced_bytes,
        snapshot.exclusive_bytes,
        snapshot.shared_with_previous_bytes,
        snapshot.shared_with_next_bytes,
    )
    return ref.name, time_text(ref.time_ms), *(mark + bytes_text(size) for size in sizes), _can_be_dropped(ref)


def _can_be_dropped(ref: Ref) -> str:
    if not ref.is_droppable:
        return f"no: {ref.status}" if ref.status else "no"
    return f"protected by {', '.join(ref.protected_by)}" if ref.protected_by else "yes"


def _findings(report: Report, bucket: str) -> str:
    """Return the section of findings, which also says that there are none, and what was not looked for."""
    answer = orphans(report, bucket)
    found, not_looked_for = answer.findings, answer.not_looked_for
    intro = "What the source's own tools do not show."
    parts = [f'<section class="findings"><h2>Findings</h2><p class="quiet">{intro}</p>']
    if not found:
        parts.append(f"<p>None found{', but not everything was looked for:' if not_looked_for else '.'}</p>")
    if len(found) > MOST_FINDINGS:
        more = len(found) - MOST_FINDINGS
        parts.append(_notes([f"{more:,} more are not shown: the command orphans lists all."]))
    if found:
        columns = [
            Column("finding", "label"),
            *(Column(title, "text") for title in (report.head.noun, "path", "id")),
            *map(Column, ("bytes", "on disks")),
            Column("why", "sentence"),
        ]
        parts.append(_table("Findings", columns, map(_finding_row, found[:MOST_FINDINGS])))
    return "\n".join([*parts, _notes(not_looked_for), "</section>"])


def _finding_row(one: LensFinding) -> tuple[str, ...]:
    sizes = (bytes_text(one.bytes), bytes_text(one.replicated_bytes))
    return one.kind, one.bucket, one.path, one.id, *sizes, one.sentence


def _notes(notes: Iterable[str]) -> str:
    return "".join(f'<p class="note">{escape(note)}</p>' for note in notes)


def _table(name: str, columns: Sequence[Column], rows: Iterable[Sequence[str]]) -> str:
    """Return a table whose first column names its rows. It scrolls by itself, and with the keyboard, if it is wide."""
    classes = [f' class="{column.css_class}"' if column.css_class else "" for column in columns]

    def line(cells: Sequence[str]) -> str:
        first, *others = (f"{kind}>{escape(cell)}</" for kind, cell in zip(classes, cells, strict=True))
        return f'<tr><th scope="row"{first}th>{"".join(f"<td{other}td>" for other in others)}</tr>'

    titles = "".join(
        f'<th scope="col"{kind}>{escape(column.title)}</th>' for kind, column in zip(classes, columns, strict=True)
    )
    body = "\n".join(map(line, rows))
    return (
        f'<div class="wide" tabindex="0" role="group" aria-label="{escape(name)}"><table>'
        f"<thead><tr>{titles}</tr></thead><tbody>\n{body}</tbody></table></div>"
    )


def _json(value: Mapping[str, Any]) -> str:
    """Return JSON that can stand in a script element, whatever names contain."""
    return json.dumps(value, separators=(",", ":")).replace("<", "\\u003c").replace("&", "\\u0026")
