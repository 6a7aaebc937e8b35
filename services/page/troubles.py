"""What is wrong with a plane now, most urgent first, and what to do about each: a rule over the plane's status."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from schemas.records import CollectionState
from services.domain.words import counted
from services.plane.stack.plane_file import PlaneState
from services.plane.stack.process_names import BROKER, SERVICES
from services.plane.upkeep.status import PlaneStatus, SuspendedCollection
from services.wording.figures import bytes_text, time_text

LAG_SECONDS = 60.0
LEAST_FREE_BYTES = 2 * 1024**3
OLDEST_BACKUP_SECONDS = 36 * 3_600.0


@dataclass(frozen=True, slots=True)
class Trouble:
    """Something that is wrong, or that somebody has to know."""

    is_urgent: bool
    what: str
    """A sentence."""
    action: str
    """A sentence: what to do."""
    command: str = ""
    """The command that shows more, or that does it; empty if there is none."""


def troubles(plane: PlaneStatus) -> tuple[Trouble, ...]:
    """Return what is wrong, the urgent things first."""
    found = [*_of_processes(plane), *_of_collection(plane), *_of_data(plane), *_of_care(plane)]
    return tuple(sorted(found, key=lambda one: not one.is_urgent))


def _of_processes(plane: PlaneStatus) -> Iterator[Trouble]:
    if plane.state != PlaneState.RUNNING:
        reason = f": {plane.reason}" if plane.reason else ""
        yield Trouble(True, f"The plane is {plane.state}{reason}.", "See what runs.", "deepclean status")
    for process in plane.processes:
        if not process.is_here and not process.is_answering:
            yield Trouble(
                True,
                f"{process.name} on another host ({process.url}) does not answer.",
                "See whether it runs there, and whether this host reaches it.",
            )
        elif not process.is_alive:
            why = f" {process.reason}" if process.reason else ""
            yield Trouble(
                True,
                f"{process.name} does not run; the plane starts it again after a pause.{why}",
                f"If it does not come back, read its log ({process.name}.log).",
                "deepclean status",
            )
        elif not process.is_answering and process.name != BROKER:
            yield Trouble(
                True,
                f"{process.name} runs, but does not answer.",
                f"Read its log ({process.name}.log), and end it: the plane starts it again.",
                "deepclean status",
            )
        if process.lag_seconds > LAG_SECONDS:
            name = process.name if process.is_here else f"{process.name} at {process.url}"
            yield Trouble(
                False,
                f"{name} is {process.lag_seconds:,.0f} s behind: {counted(process.lag_messages, 'message')}.",
                "Wait while it catches up; if the lag grows, add shards or give it more processor time.",
                "deepclean status",
            )


def _of_collection(plane: PlaneStatus) -> Iterator[Trouble]:
    if plane.unknown_shards:
        shards = ", ".join(map(str, plane.unknown_shards))
        yield Trouble(
            True,
            f"Who owns these shards of metadata is not known on this host, or does not answer: {shards}. The backlog "
            f"lacks them, and whether their claims are suspended is not known.",
            "See that the brokers answer, and what runs on the other hosts.",
            "deepclean status",
        )
    if plane.suspended_collections is None:
        yield Trouble(
            True, "Whether claims are suspended is not known: metadata does not answer.", "See what runs.",
            "deepclean status",
        )  # fmt: skip
        return
    for one in plane.suspended_collections:
        yield _suspended(one)


def _suspended(one: SuspendedCollection) -> Trouble:
    what = one.bucket or f"Shard {one.shard}"
    since = f" since {time_text(one.since_ms)}" if one.since_ms >= 0 else ""
    because = f": {one.reason}" if one.reason else ""
    group = f" {one.bucket}" if one.bucket else ""
    match one.state.upper():
        case CollectionState.STOPPED:
            return Trouble(
                True,
                f"All claims of shard {one.shard} are stopped{since}{because}.",
                "Repair the cause first, then resume.",
                "deepclean gc resume --chain-is-mended",
            )
        case CollectionState.TRIPPED:
            return Trouble(
                True,
                f"The breaker of {what} has tripped{since}{because}.",
                "See what would be freed; if it is meant, reset the breaker.",
                f"deepclean breaker reset{group}",
            )
    return Trouble(
        False,
        f"Collection of {what} is {one.state}{since}{because}.",
        "Nothing is freed there until a user resumes it.",
        f"deepclean gc resume{group}",
    )


def _of_data(plane: PlaneStatus) -> Iterator[Trouble]:
    if plane.dead_letters:
        yield Trouble(
            True,
            f"{counted(plane.dead_letters, 'dead letter')} open: messages that could not be read or applied.",
            "Read each one and its advice, then retry or drop it.",
            "deepclean dead-letters list",
        )
    for audit in plane.audits:
        kinds = ", ".join(f"{count:,} {kind.lower().replace('_', ' ')}" for kind, count in audit.findings.items())
        if kinds or audit.figures_not_confirmed:
            figures = f"{counted(audit.figures_not_confirmed, 'figure')} not confirmed"
            found = ", ".join(filter(None, (kinds, figures if audit.figures_not_confirmed else "")))
            yield Trouble(
                True,
                f"The last audit of shard {audit.shard} ({time_text(audit.started_ms)}) found: {found}.",
                "Look up each finding in the operations manual, under Audit findings; then audit again.",
                "deepclean audit",
            )


def _of_care(plane: PlaneStatus) -> Iterator[Trouble]:
    if plane.disk.free_bytes < LEAST_FREE_BYTES:
        yield Trouble(
            True,
            f"The disk of the plane has {bytes_text(plane.disk.free_bytes)} left.",
            "Trim the log, delete snapshots, or make room.",
            "deepclean trim-log",
        )
    if not any(one.is_here and one.name in SERVICES for one in plane.processes):
        return  # no database is on this host, so a backup is made on others
    if not plane.newest_backup:
        yield Trouble(False, "The home has no backup.", "Make one, and keep a copy elsewhere.", "deepclean backup")
    elif plane.newest_backup_age_seconds > OLDEST_BACKUP_SECONDS:
        hours = round(plane.newest_backup_age_seconds / 3_600)
        yield Trouble(
            False, f"The newest backup in the home is {counted(hours, 'hour')} old.", "Make one.", "deepclean backup"
        )
