"""The ``deepclean`` command: what it can do, by name, and where each part lies."""

from __future__ import annotations

import logging
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any

import typer

from schemas.compiled import unused_modules
from schemas.private_files import keep_files_private
from services.cli.errors import OneLineErrors
from services.cli.lazy import SubCommand, lazy_commands
from services.cli.terminal import say
from services.plane.machine.home import home_directory
from services.plane.machine.signals import stopping_on_signals

SUB_COMMANDS = (
    SubCommand(
        "up",
        "services.cli.operate.up_down:up",
        "Start a plane that stays: broker, services, Spark. On the same home it goes on where it was.",
    ),
    SubCommand(
        "down",
        "services.cli.operate.up_down:down",
        "Stop the plane: Spark, the services, the broker. What it keeps stays.",
    ),
    SubCommand(
        "status",
        "services.cli.operate.status:status",
        "Show how the plane does: processes, throughput, backlog, lag, dead letters, disk.",
    ),
    SubCommand(
        "restore",
        "services.cli.store.restore:restore",
        "Copy a key or a directory out of a snapshot, with new blocks, over what is there now.",
    ),
    SubCommand(
        "undelete",
        "services.cli.store.deleted:undelete",
        "Bring back a deleted key, an overwritten version or a whole directory, with its blocks, unless it is claimed.",
    ),
    SubCommand(
        "backup",
        "services.cli.operate.recovery:backup",
        "Copy every service's state, with its position in the log, while the plane runs.",
    ),
    SubCommand(
        "restore-backup",
        "services.cli.operate.recovery:restore",
        "Put a backup's copies where a stopped plane looks for its databases; the log brings the rest at the start.",
    ),
    SubCommand(
        "rebuild",
        "services.cli.operate.recovery:rebuild",
        "Make a shard of metadata again from the log, snapshots and all, and prove by digest that it is the same.",
    ),
    SubCommand(
        "digest",
        "services.cli.operate.recovery:digest",
        "Say what a shard of metadata holds, as one digest: of its tables, and of every live snapshot's checkpoint.",
    ),
    SubCommand(
        "trim-log",
        "services.cli.operate.trim_log:trim_log",
        "Trim the log up to what readers, backups and unfinished transactions still need.",
    ),
    SubCommand(
        "upgrade",
        "services.cli.operate.upgrade:app",
        "Show which programs a plane runs, and make an upgrade final.",
    ),
    SubCommand(
        "accept-lost-tail",
        "services.cli.operate.lost_tail:accept",
        "Show what a broker has lost that was read already, and go on without it: no name that it gave is given again.",
    ),
    SubCommand(
        "replay",
        "services.cli.workloads.replay:replay",
        "Execute a workload; snapshots may be renamed (as in the recorded cases).",
    ),
    SubCommand(
        "git",
        "services.cli.workloads.git:git",
        "Replay a git history, delete some snapshots and a tree, settle, and check everything against git itself.",
    ),
    SubCommand(
        "explain",
        "services.cli.collection.explain:explain",
        "Say who holds a path, a snapshot, a bucket or a block, since when, how many bytes, and what lets it go.",
    ),
    SubCommand(
        "audit",
        "services.cli.operate.audit:audit",
        "Recount what is live, held and owed by reading every table and checkpoint, and compare with the block store.",
    ),
    SubCommand(
        "verify",
        "services.cli.operate.verify:verify",
        "Replay the command log with code of its own, and compare the ledger with what it says.",
    ),
    SubCommand("volume", "services.cli.store.volume:app", "Make, remove and list volumes."),
    SubCommand(
        "bucket",
        "services.cli.store.bucket:app",
        "Make, remove and list buckets, and say where their bytes are.",
    ),
    SubCommand("key", "services.cli.store.key:app", "Put, delete, rename, list and show keys."),
    SubCommand(
        "dir",
        "services.cli.store.directory:app",
        "Make, delete, rename and list directories (FILE_SYSTEM_OPTIMIZED).",
    ),
    SubCommand(
        "snapshot",
        "services.cli.store.snapshot:app",
        "Take, delete, rename, list, compare and roll back to snapshots.",
    ),
    SubCommand(
        "retention",
        "services.cli.collection.retention:app",
        "Say which snapshots of a bucket expire, see what would go, and let it go.",
    ),
    SubCommand("tag", "services.cli.collection.tag:app", "Hold snapshots under names."),
    SubCommand(
        "consumer",
        "services.cli.collection.consumer:app",
        "Say which snapshots a named reader has still to read.",
    ),
    SubCommand(
        "space",
        "services.cli.collection.space:app",
        "Show where the bytes of VOLUME/BUCKET are and what its snapshots share; say what deleting some would free.",
    ),
    SubCommand(
        "ledger",
        "services.cli.operate.ledger:app",
        "Why versions were freed, and when: a record of each, for ever.",
    ),
    SubCommand(
        "secret",
        "services.cli.operate.secret:app",
        "Say who may sign commands, on a plane that refuses strangers.",
    ),
    SubCommand("deleted", "services.cli.store.deleted:app", "See what was deleted and can still be brought back."),
    SubCommand(
        "gc",
        "services.cli.collection.gc:app",
        "Hold the collector back, for one bucket or for everything, and let it go on.",
    ),
    SubCommand(
        "breaker",
        "services.cli.collection.breaker:app",
        "Hold a bucket back by itself when far more of it is to be freed than usual, until a person has looked.",
    ),
    SubCommand(
        "dead-letters",
        "services.cli.operate.dead_letters:app",
        "Look at messages that could not be read or applied, and deal with them.",
    ),
)


class SubCommands(OneLineErrors):
    """The root: it knows its sub-commands by name alone."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**{**settings, "commands": lazy_commands(SUB_COMMANDS)})


app = typer.Typer(
    cls=SubCommands,
    name="deepclean",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="A snapshot and garbage-collection plane for object stores: it frees what nobody holds, and nothing else.",
)


def _say_version(is_asked: bool) -> None:
    if is_asked:
        say(f"deepclean {version('deepclean')}")
        raise typer.Exit


@app.callback()
def root(
    context: typer.Context,
    home: Annotated[
        Path | None,
        typer.Option(envvar="DEEPCLEAN_HOME", help="Where the plane keeps everything; by default .deepclean."),
    ] = None,
    *,
    is_version_asked: Annotated[  # noqa: ARG001  its callback answers
        bool, typer.Option("--version", callback=_say_version, is_eager=True, help="Say which version this is.")
    ] = False,
) -> None:
    """Take what holds for every sub-command; ``session_of`` makes a session of it when one needs the plane."""
    if context.obj is None:
        context.obj = home.resolve() if home is not None else home_directory()


def run() -> None:
    """Run the command line; SIGTERM lets a command stop what it has started, as Ctrl-C does."""
    keep_files_private()
    # What connections say while they try again by themselves; what ends them is an error of the command.
    logging.getLogger("services.log.kafka").setLevel(logging.ERROR)
    for reason in unused_modules():
        say(f"Warning: {reason}", err=True)
    with stopping_on_signals():
        app()


if __name__ == "__main__":
    run()
