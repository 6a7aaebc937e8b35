"""``deepclean status``: processes, throughput, backlog by age and bytes, lag, dead letters, disk."""

from __future__ import annotations

from typing import Annotated

import typer

from schemas.records import CollectionState
from services.cli.exit_status import ExitStatus
from services.cli.output import print_fields, print_json, print_table
from services.cli.session import JsonOption, made_session
from services.cli.terminal import say
from services.domain.words import counted
from services.plane.stack.plane_file import PlaneState, known_plane
from services.plane.upkeep.observed import observe_plane
from services.plane.upkeep.status import Backlog, LastAudit, PlaneStatus, ProcessStatus, SuspendedCollection
from services.wording.figures import amount_in_words, bytes_text, time_text

MOST_SUSPENDED = 10
RUNS = "running"
END_OF_STOP = "deepclean gc resume --chain-is-mended"
SecondsOption = Annotated[float, typer.Option(min=0.1, max=60, help="Number of seconds over which rates are measured.")]


def status(
    context: typer.Context,
    seconds: SecondsOption = 1.0,
    as_json: JsonOption = False,
) -> None:
    """Show the plane's state: processes, throughput, backlog, lag, dead letters, disk."""
    observed = observe_plane(known_plane(made_session(context).home), seconds)
    if as_json:
        print_json(observed)
    else:
        _print(observed)
    if observed.state != PlaneState.RUNNING or not all(process.is_alive for process in observed.processes):
        raise typer.Exit(ExitStatus.FAILED)


def _print(plane: PlaneStatus) -> None:
    shards = counted(plane.shards, "shard")
    say(f"The plane on {plane.home} is {plane.state} ({shards}).")
    if plane.reason:
        say(plane.reason)
    say("")
    print_table(
        ["PROCESS", "PID", "STATE", "RESTARTS", "MESSAGES/S", "LAG", "LAG AGE", "DEAD LETTERS", "WHERE"],
        (
            (
                process.name,
                process.pid or "elsewhere",
                process_state(process),
                process.restarts if process.is_here else "",
                f"{process.messages_per_second:,.0f}",
                f"{process.lag_messages:,}",
                f"{process.lag_seconds:.1f} s",
                process.dead_letters,
                process.url,
            )
            for process in plane.processes
        ),
        numbers=["PID", "RESTARTS", "MESSAGES/S", "LAG", "LAG AGE", "DEAD LETTERS"],
    )
    for process in plane.processes:
        if process.reason:
            say("", f"The plane starts {process.name} again after a pause. {process.reason}")
    rates, waiting, disk = plane.throughput, plane.backlog, plane.disk
    for title, fields in {
        "throughput, per second": [
            ("commands applied", f"{rates.commands_applied:,.0f}"),
            ("deleted entries judged", f"{rates.entries_judged:,.0f}"),
            ("versions deleted from the store", f"{rates.groups_deleted:,.0f} ({bytes_text(rates.bytes_deleted)})"),
        ],
        "backlog": [
            ("oldest message not applied", f"{waiting.oldest_seconds:.1f} s"),
            ("not held, not claimed", _amount(waiting, "pending")),
            ("claimed, not confirmed", _amount(waiting, "claimed")),
            ("deleted directories in progress", f"{waiting.directories_in_progress:,}"),
            ("garbage ranges to sweep", f"{waiting.garbage_ranges_to_sweep:,}"),
            ("purge requests in their undo window", f"{waiting.purges_in_undo_window:,}"),
            ("purge requests throttled by hours or rate", f"{waiting.purges_throttled:,}"),
        ],
        "collection": collection_fields(plane.suspended_collections),
        "deleted so far": [
            ("held by snapshots", _amount(waiting, "held")),
            ("freed", _amount(waiting, "freed")),
        ],
        "disk": [
            ("log", _bytes_here(disk.log_bytes)),
            ("databases", bytes_text(disk.database_bytes)),
            (f"checkpoints ({disk.checkpoints:,})", bytes_text(disk.checkpoint_bytes)),
            ("Spark's state", _bytes_here(disk.spark_bytes)),
            ("logs of the processes", bytes_text(disk.process_log_bytes)),
            ("free", bytes_text(disk.free_bytes)),
            ("newest backup here", _backup_text(plane)),
        ],
        "last audit": [(f"shard {one.shard}", _audit_text(one)) for one in plane.audits] or [("none yet", "")],
    }.items():
        say("", title)
        print_fields((f"  {name}", value) for name, value in fields)


def _amount(waiting: Backlog, state: str) -> str:
    size_bytes, versions, replicated_bytes = (
        getattr(waiting, f"{state}_{unit}") for unit in ("bytes", "versions", "replicated_bytes")
    )
    return amount_in_words(size_bytes, versions, replicated_bytes)


def collection_fields(lines: tuple[SuspendedCollection, ...] | None) -> list[tuple[str, str]]:
    """Return the suspended collections and how to resume them, as status prints them."""
    if lines is None:
        return [("not known", "metadata does not answer")]
    if not lines:
        return [("running", "")]
    shown = [(line.bucket or f"all of shard {line.shard}", _suspended_text(line)) for line in lines[:MOST_SUSPENDED]]
    more = len(lines) - len(shown)
    return [*shown, (f"and {more} more" if more else "see", "deepclean gc status: what waits, and how to resume")]


def _suspended_text(line: SuspendedCollection) -> str:
    text = f"{line.state} since {time_text(line.since_ms)}" if line.since_ms >= 0 else line.state
    text += f": {line.reason}" if line.reason else ""
    return f"{text} (once that is mended: {END_OF_STOP})" if line.state == CollectionState.STOPPED.lower() else text


def _bytes_here(size_bytes: int | None) -> str:
    return "not on this host" if size_bytes is None else bytes_text(size_bytes)


def _backup_text(plane: PlaneStatus) -> str:
    if plane.backups_trouble:
        return f"not known: {plane.backups_trouble}"
    if not plane.newest_backup:
        return "none"
    hours, seconds = divmod(int(plane.newest_backup_age_seconds), 3_600)
    return f"{plane.newest_backup}, {hours} h {seconds // 60} min old"


def _audit_text(audit: LastAudit) -> str:
    found = [f"{count:,} {kind.lower().replace('_', ' ')}" for kind, count in audit.findings.items()]
    if audit.figures_not_confirmed:
        found.append(f"{counted(audit.figures_not_confirmed, 'figure')} not confirmed")
    return f"{', '.join(found) or 'clean'} ({time_text(audit.started_ms)}, txn {audit.txn:,})"


def process_state(process: ProcessStatus) -> str:
    """Return the state of a process in a word or two: ``RUNS`` or what is wrong."""
    if not process.is_alive:
        return "not running"
    return RUNS if process.is_answering or process.name == "broker" else "silent"
