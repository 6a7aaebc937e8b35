"""Tables about bytes that ``space``, ``explain``, ``retention`` and ``lens`` share."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from schemas.answers import ExpiringSnapshot, RetainedSnapshot, RetentionPreview
from services.cli.output import print_table
from services.cli.terminal import say
from services.domain.words import counted
from services.wording.figures import size_text, time_text
from services.wording.space import NO_MORE, SIZES, reasons_text, what_it_frees


def print_states(states: Iterable[tuple[str, int, int, int | str, str]], *, is_exact: bool = True) -> None:
    """Print for each state of versions its bytes, what they take on disks, the versions, and when it ends."""
    print_table(
        ["WHERE", "BYTES", "ON DISKS", "VERSIONS", "GOES WHEN"],
        [
            (
                where,
                size_text(size_bytes, is_exact=is_exact),
                size_text(replicated_bytes, is_exact=is_exact),
                versions,
                goes,
            )
            for where, size_bytes, replicated_bytes, versions, goes in states
        ],
        numbers=["BYTES", "ON DISKS", "VERSIONS"],
    )


def print_snapshots(rows: Iterable[tuple[str, int, Sequence[str]]], more: Sequence[str] = ()) -> None:
    """Print for each snapshot its name, when it was created, and its sizes in the order of ``sizes_of``; then what else
    its texts have, under the titles of ``more``.
    """
    sizes = [size.replace("_", " ").upper() for size in SIZES]
    print_table(
        ["SNAPSHOT", "CREATED", *sizes, *more],
        ((name, time_text(time_ms), *texts) for name, time_ms, texts in rows),
        numbers=sizes,
    )


def say_plan(names: Sequence[str], freed: str, wanted: str, *, is_enough: bool, is_smallest: bool) -> None:
    """Print the snapshots of a plan, and what it would free. ``wanted``: the size that was asked for, as text."""
    for name in names:
        say(name)
    if names:
        what = "this snapshot" if len(names) == 1 else f"these {counted(len(names), 'snapshot')}"
        say(f"deleting {what} would free {freed}")
    if not is_enough:
        say(f"{wanted} cannot be freed: {NO_MORE}")
    elif not is_smallest:
        say("a smaller set may be enough")


def print_preview(plan: RetentionPreview) -> None:
    """Print what a run of retention would expire, what that frees, and why each other snapshot stays."""
    listed: list[ExpiringSnapshot | RetainedSnapshot] = [*plan.expired, *plan.kept]
    chain = sorted(listed, key=lambda one: one.create_txn)
    print_table(
        ["SNAPSHOT", "CREATED", "", "WHY"],
        (
            (one.snapshot, time_text(one.creation_time_ms), "stays", reasons_text(one.reasons))
            if isinstance(one, RetainedSnapshot)
            else (one.snapshot, time_text(one.creation_time_ms), "expires", "")
            for one in chain
        ),
    )
    for kind, names in (("consumers", plan.dropped_consumers), ("tags", plan.dropped_tags)):
        if names:
            say(f"{kind} that the run removes: {', '.join(names)}")
    say(f"{_verb(len(plan.expired), 'expire')}, {_verb(len(plan.kept), 'stay')}; {what_it_frees(plan)}")


def _verb(number: int, verb: str) -> str:
    return f"{number:,} {verb}{'s' if number == 1 else ''}"
