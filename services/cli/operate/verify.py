"""``deepclean verify``: check every record of a freed version against the command log."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from schemas.topics import METADATA_COMMANDS
from services.cli.exit_status import ExitStatus
from services.cli.operate.plane_log import log_of
from services.cli.output import print_fields, print_json, print_table
from services.cli.progress import Progress, counting, shown_progress
from services.cli.session import JsonOption, session_of
from services.cli.terminal import say
from services.client.kafka_plane import KafkaPlane
from services.client.plane import Plane
from services.domain.words import counted
from services.log.port import Log
from services.plane.upkeep.verification import replay_by_parts
from services.verifier.report import FindingKind, VerifyReport
from services.verifier.run import compared_with_store, replay_shard, require_beginning
from services.wording.figures import bytes_text

COMMANDS_FOR_SPARK = 10_000_000
"""A smaller log is replayed in this process: with a million commands, Spark on two cores did not end earlier."""
MAX_SHOWN = 20
_MEANING = {
    FindingKind.FREED_WHILE_LIVE: "freed while the active namespace showed them",
    FindingKind.FREED_WHILE_HELD: "freed while a snapshot held them",
    FindingKind.UNKNOWN_VERSION: "freed, but no command of the log created them",
    FindingKind.BROUGHT_BACK: "undeletes that should have been refused",
    FindingKind.NOT_CLAIMED: "freed, but their claim did not name them",
    FindingKind.TWICE: "more than one record of a version",
    FindingKind.NOT_FINISHED: "recorded, but no command finished them",
    FindingKind.DIFFERENT: "fields of records that differ from the log",
    FindingKind.UNREADABLE: "messages that are no records",
    FindingKind.MISSING: "finished, but without a record",
    FindingKind.BYTES: "the block store has deleted more or fewer bytes than the ledger says",
}


def verify(
    context: typer.Context,
    shard: Annotated[list[int] | None, typer.Option(help="Verify this shard; may be repeated. By default all.")] = None,
    scratch: Annotated[
        Path | None, typer.Option(help="Directory for the state of the replay: some 300 bytes a command.")
    ] = None,
    spark: Annotated[
        bool | None,
        typer.Option(
            "--spark/--no-spark",
            help=f"Replay by buckets on Spark. By default for a log of {COMMANDS_FOR_SPARK:,} commands or more.",
        ),
    ] = None,
    master: Annotated[str, typer.Option(help="Spark's master.")] = "local[*]",
    heap: Annotated[str, typer.Option(help="Heap of Spark's driver.")] = "1g",
    as_json: JsonOption = False,
) -> None:
    """Replay the command log with independent code and compare the result with the ledger.

    Exit status: 0 the ledger agrees with the log; 1 it could not be verified; 2 wrong options; 3 a version was freed
    that was still needed or never existed; 4 the ledger differs otherwise.
    """
    with session_of(context) as session:
        plane = session.connected()
        shards = session.shards(shard)
        log = log_of(session, "deepclean.verify", is_whole=True)
        if spark and not isinstance(plane, KafkaPlane):
            raise typer.BadParameter("a plane in memory has no broker for Spark to read", param_hint="--spark")
        spark_servers = plane.address.bootstrap_servers if isinstance(plane, KafkaPlane) and spark is not False else ""
        replays = _Replays(log, session.home, scratch, spark_servers, is_forced=spark is True, master=master, heap=heap)
        reports = [_verified(replays, plane, one) for one in shards]
    if as_json:
        print_json(reports)
    else:
        for report in reports:
            _print(report)
    if any(report.has_losses for report in reports):
        raise typer.Exit(ExitStatus.LOSS)
    if not all(report.is_clean for report in reports):
        raise typer.Exit(ExitStatus.DIFFERENCE)


@dataclass(frozen=True, slots=True)
class _Replays:
    """Replays shards: a large one on Spark, any other one in this process."""

    log: Log
    home: Path
    scratch: Path | None
    spark_servers: str
    """The brokers, if Spark may be used."""
    is_forced: bool
    """Whether it is used for small logs, too."""
    master: str
    heap: str

    def way(self, shard: int, progress: Progress) -> Callable[[], VerifyReport]:
        """Return what replays a shard and compares its ledger."""
        told = counting(progress, "replaying", "command")
        require_beginning(self.log, shard)
        is_large = self.is_forced or self.log.end_offset(METADATA_COMMANDS.name, shard) >= COMMANDS_FOR_SPARK
        if not (is_large and self.spark_servers):
            return partial(replay_shard, self.log, shard, self.scratch, told)
        return partial(
            replay_by_parts,
            *(self.spark_servers, self.home, shard, self.scratch, told),
            say_how=lambda text: print(f"shard {shard}: {text}", file=sys.stderr, flush=True),
            master=self.master,
            heap=self.heap,
        )


def _verified(replays: _Replays, plane: Plane, shard: int) -> VerifyReport:
    with shown_progress(f"shard {shard}") as progress:
        return compared_with_store(replays.way(shard, progress), partial(_deleted_bytes, plane, shard))


def _deleted_bytes(plane: Plane, shard: int) -> int:
    return plane.scm(shard).totals().deleted_bytes


def _print(report: VerifyReport) -> None:
    commands = counted(report.commands, "command")
    say(f"Shard {report.shard}: {commands}, from the beginning of the log up to txn {report.txn}.", "")
    amounts = f"{counted(report.rows, 'version')}, {counted(report.blocks, 'block')}"
    found = [(kind, report.findings[kind]) for kind in FindingKind if kind in report.findings]
    print_fields(
        [
            ("in the ledger", f"{amounts}, {bytes_text(report.size_bytes)}"),
            ("claimed, not in the ledger yet", f"{report.unfinished_rows:,} ({bytes_text(report.unfinished_bytes)})"),
            ("undeleted", f"{report.undeletes:,}"),
            ("deleted by the block store", bytes_text(report.deleted_bytes_after or 0)),
            *((kind.value.lower().replace("_", " "), f"{count:,}: {_MEANING[kind]}") for kind, count in found),
        ]
    )
    if report.lost_tail_offset is not None:
        say(
            "",
            f"The log lost its tail before offset {report.lost_tail_offset}: what followed cannot be replayed, and "
            f"{counted(report.beyond_rows, 'row')} could not be verified.",
        )
    if report.examples:
        _print_examples(report)
    say("", verdict_text(report), "")


def _print_examples(report: VerifyReport) -> None:
    say("")
    print_table(
        ["FINDING", "BUCKET", "OBJECT", "BIRTH", "DEATH", "CLAIM", "FINISH", "WHY"],
        (
            (
                *(one.kind.value, one.bucket_id, one.object_id, one.birth, one.death),
                *(one.claim_txn, one.finish_txn, one.reason),
            )
            for one in report.examples[:MAX_SHOWN]
        ),
        numbers=["BUCKET", "OBJECT", "BIRTH", "DEATH", "CLAIM", "FINISH"],
    )
    if len(report.examples) > MAX_SHOWN:
        say(f"… {len(report.examples) - MAX_SHOWN:,} more with --json")
    if any(one.object_id and one.kind is not FindingKind.MISSING for one in report.examples):
        say("", f"The record of one: deepclean ledger show OBJECT --shard {report.shard}")


def verdict_text(report: VerifyReport) -> str:
    """Return the meaning of a report and the operator's action, in one sentence."""
    if report.is_clean:
        return "No freed version was live or held, and the ledger agrees with the log."
    if report.has_losses:
        return (
            "A version was freed that was needed, or of which the log does not show that it was free: stop claims, "
            "audit (deepclean audit) and find out why."
        )
    return "No needed version was freed, but the ledger disagrees with the log: keep both, and find out why."
