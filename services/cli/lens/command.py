"""``deepclean lens``: what snapshots cost, who holds what, and what goes, in data that others wrote. Read-only."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from schemas.records import RetentionPolicy
from services.cli.amounts import duration_ms, parse_size
from services.cli.lens.lines import (
    print_explanation,
    print_freed,
    print_orphans,
    print_plan,
    print_retention,
    print_spaces,
)
from services.cli.lens.page import write_page
from services.cli.lens.reading import Reading, Source, report_of
from services.cli.output import print_json
from services.lens.questions import SOURCES_OF_MANY, one_bucket, orphans, questions
from services.lens.report import Report
from services.wording.amounts import duration_text, typed_size_text


class QuestionsOnALocation(TyperGroup):
    """The group of questions, which stand behind two arguments: without a question its errors and help list them."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read SOURCE and LOCATION. In their places an option for help is no location."""
        if any(word in ctx.help_option_names for word in args[:2]):
            return super().parse_args(ctx, ["--help"])
        if len(args) == 2:
            ctx.fail(f"Name a question behind the location: {', '.join(self.list_commands(ctx))}.")
        return super().parse_args(ctx, args)


app = typer.Typer(cls=QuestionsOnALocation, no_args_is_help=True)
MASTER, HEAP = "local[*]", "1g"
_DEFAULT = RetentionPolicy()
BucketOption = Annotated[
    str, typer.Option(metavar="VOLUME/BUCKET", help="This bucket alone. Only space and orphans answer for several.")
]
ReportOption = Annotated[
    Path | None, typer.Option(metavar="DIR", help="Keep the report in DIR; deepclean lens report DIR reads it again.")
]
HtmlOption = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Also write one self-contained page with tables and pictures.")
]
MasterOption = Annotated[str, typer.Option(help="Spark's master.")]
HeapOption = Annotated[str, typer.Option(help="Heap of Spark's driver.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]


@app.callback()
def lens(
    context: typer.Context,
    source: Annotated[
        Source, typer.Argument(metavar="SOURCE", help="ozone, iceberg, paimon, git, or report for an earlier report.")
    ],
    location: Annotated[
        str, typer.Argument(metavar="LOCATION", help="A directory, file, address or table (docs/lens.md).")
    ],
) -> None:
    """Show what snapshots cost and what their deletion frees, in Apache Ozone, Iceberg, Paimon or git. Read-only.

    The question follows the location, as in: deepclean lens git . space
    """
    context.obj = (source, location)


@dataclass(slots=True)
class _Asking:
    """A report, and the snapshots that the page shows as chosen: those of the answer."""

    report: Report
    chosen: tuple[str, ...] = ()


@contextmanager
def _report(
    context: typer.Context, bucket: str, kept: Path | None, html: Path | None, master: str, heap: str
) -> Iterator[_Asking]:
    source, location = context.obj
    if source is Source.REPORT and kept:
        raise typer.BadParameter("the report exists: leave --report out", param_hint="--report")
    if html:
        _check_writable(html)
    with report_of(Reading(source, location, bucket, kept, master, heap)) as found:
        asking = _Asking(found)
        yield asking
        if html:
            write_page(found, bucket, html, asking.chosen)


def _check_writable(html: Path) -> None:
    """Fail before the source is read, which may take minutes, and not with its answer."""
    if html.is_dir() or not os.access(html if html.exists() else html.parent, os.W_OK):
        raise typer.BadParameter(f"{html} cannot be written: name a file in a directory of yours", param_hint="--html")


@app.command()
def space(
    context: typer.Context,
    bucket: BucketOption = "",
    report: ReportOption = None,
    html: HtmlOption = None,
    master: MasterOption = MASTER,
    heap: HeapOption = HEAP,
    as_json: JsonOption = False,
) -> None:
    """Show where the bytes are, and what each snapshot refers to, holds alone and shares."""
    with _report(context, bucket, report, html, master, heap) as asking:
        found = asking.report
        is_one = bool(bucket) or found.head.source not in SOURCES_OF_MANY
        asked = [one_bucket(found, bucket)] if is_one else questions(found)
        spaces = [one.space() for one in asked]
        findings = found.finding_sums()
    if as_json:
        print_json(spaces[0] if is_one else spaces)
    else:
        print_spaces(found.head, spaces, findings)


@app.command("what-if")
def what_if(
    context: typer.Context,
    names: Annotated[list[str], typer.Argument(metavar="SNAPSHOT…", help="Names or ids of snapshots, tags, branches.")],
    bucket: BucketOption = "",
    report: ReportOption = None,
    html: HtmlOption = None,
    master: MasterOption = MASTER,
    heap: HeapOption = HEAP,
    as_json: JsonOption = False,
) -> None:
    """Show exactly how much dropping some snapshots together would free. Nothing is dropped."""
    with _report(context, bucket, report, html, master, heap) as asking:
        freed = one_bucket(asking.report, bucket).what_if(names)
        asking.chosen = freed.snapshots
    if as_json:
        print_json(freed)
    else:
        print_freed(freed)


@app.command()
def plan(
    context: typer.Context,
    free: Annotated[str, typer.Option(metavar="SIZE", help="Bytes to free, at least: 10GiB, 500MB, 4096.")],
    keep: Annotated[
        list[str] | None, typer.Option(metavar="SNAPSHOT", help="Do not drop this snapshot; may be repeated.")
    ] = None,
    is_replicated: Annotated[
        bool, typer.Option("--on-disks", help="SIZE is the size on disks, with all copies and parity.")
    ] = False,
    bucket: BucketOption = "",
    report: ReportOption = None,
    html: HtmlOption = None,
    master: MasterOption = MASTER,
    heap: HeapOption = HEAP,
    as_json: JsonOption = False,
) -> None:
    """Show the smallest set of snapshots, older ones first, whose drop frees at least SIZE. Nothing is dropped."""
    wanted_bytes = parse_size(free)
    if not wanted_bytes:
        raise typer.BadParameter("name the bytes to free, more than 0", param_hint="--free")
    with _report(context, bucket, report, html, master, heap) as asking:
        planned = one_bucket(asking.report, bucket).plan(wanted_bytes, keep or (), is_replicated=is_replicated)
        asking.chosen = planned.snapshots
    if as_json:
        print_json(planned)
    else:
        print_plan(planned, typed_size_text(free, is_replicated=is_replicated))


@app.command()
def explain(
    context: typer.Context,
    what: Annotated[str, typer.Argument(metavar="PATH|ID", help="A path as the source has it, or an id.")],
    bucket: BucketOption = "",
    report: ReportOption = None,
    html: HtmlOption = None,
    master: MasterOption = MASTER,
    heap: HeapOption = HEAP,
    as_json: JsonOption = False,
) -> None:
    """Show who holds each version of a path, or the thing with an id, and what frees it."""
    with _report(context, bucket, report, html, master, heap) as asking:
        explanation = one_bucket(asking.report, bucket).explain(what)
    if as_json:
        print_json(explanation)
    else:
        print_explanation(what, explanation)


@app.command("orphans")
def show_orphans(
    context: typer.Context,
    bucket: BucketOption = "",
    report: ReportOption = None,
    html: HtmlOption = None,
    master: MasterOption = MASTER,
    heap: HeapOption = HEAP,
    as_json: JsonOption = False,
) -> None:
    """Show what the source's own tools do not: orphaned files and directories, stuck rows, wrong figures."""
    with _report(context, bucket, report, html, master, heap) as asking:
        answer = orphans(asking.report, bucket)
    if as_json:
        print_json(answer)
    else:
        print_orphans(asking.report.head, answer)


@app.command()
def retention(
    context: typer.Context,
    num_retained_min: Annotated[
        int, typer.Option("--num-retained-min", help="Never expire the newest N snapshots.")
    ] = _DEFAULT.num_retained_min,
    num_retained_max: Annotated[
        int, typer.Option("--num-retained-max", help="Expire all but the newest N, whatever their age; 0: off.")
    ] = _DEFAULT.num_retained_max,
    time_retained: Annotated[
        str, typer.Option("--time-retained", help="A snapshot may expire once the next one is older than this.")
    ] = duration_text(_DEFAULT.time_retained_ms),
    expire_limit: Annotated[
        int, typer.Option("--expire-limit", help="One run considers at most the N oldest snapshots.")
    ] = _DEFAULT.expire_limit,
    bucket: BucketOption = "",
    report: ReportOption = None,
    html: HtmlOption = None,
    master: MasterOption = MASTER,
    heap: HeapOption = HEAP,
    as_json: JsonOption = False,
) -> None:
    """Show which snapshots a policy of retention would expire now, why others stay, and what that would free."""
    policy = RetentionPolicy(
        num_retained_min=num_retained_min,
        num_retained_max=num_retained_max,
        time_retained_ms=duration_ms(time_retained),
        expire_limit=expire_limit,
    )
    with _report(context, bucket, report, html, master, heap) as asking:
        answer = one_bucket(asking.report, bucket).retention(policy, time.time_ns() // 1_000_000)
        asking.chosen = answer.expired
    if as_json:
        print_json({"bucket": answer.bucket, **asdict(answer.preview), "notes": answer.notes})
    else:
        print_retention(answer)
