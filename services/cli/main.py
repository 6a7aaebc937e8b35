"""The ``deepclean`` command: its sub-commands by name, with the module of each."""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import Annotated, Any

import typer

from schemas.compiled import unused_modules
from schemas.private_files import keep_files_private
from services.cli.lazy import SubCommand, lazy_commands
from services.cli.one_line_errors import OneLineErrors
from services.cli.terminal import say
from services.plane.machine.home import home_directory
from services.plane.machine.signals import stopping_on_signals

SUB_COMMANDS = {
    "Data": (
        SubCommand("volume", "store.volume:app", "Create, delete and list volumes."),
        SubCommand("bucket", "store.bucket:app", "Create, delete and list buckets, and show their bytes by state."),
        SubCommand("key", "store.key:app", "Put, get, delete, rename, list and show keys."),
        SubCommand(
            "dir", "store.directory:app", "Create, delete, rename and list directories (FILE_SYSTEM_OPTIMIZED)."
        ),
        SubCommand(
            "snapshot", "store.snapshot:app", "Create, delete, rename, list, compare and roll back to snapshots."
        ),
        SubCommand("tag", "collection.tag:app", "Protect snapshots by named tags."),
        SubCommand(
            "consumer", "collection.consumer:app", "Protect the snapshots that a named consumer has not read yet."
        ),
        SubCommand(
            "deleted", "store.deleted:app", "List deletions that are not claimed yet, and how each can be undone."
        ),
        SubCommand(
            "undelete",
            "store.deleted:undelete",
            "Undelete a key, an overwritten version or a whole directory, with its blocks, unless it is claimed.",
        ),
        SubCommand(
            "restore",
            "store.restore:restore",
            "Copy a key or a directory out of a snapshot, with new blocks. Existing keys are overwritten.",
        ),
    ),
    "Space": (
        SubCommand(
            "space",
            "collection.space:app",
            "Show the bytes of VOLUME/BUCKET by state and by snapshot, and how many a deletion of snapshots would "
            "free.",
        ),
        SubCommand(
            "explain",
            "collection.explain:explain",
            "Show who holds a path, a snapshot, a bucket or a block, since when, how many bytes, and what frees it.",
        ),
        SubCommand(
            "retention",
            "collection.retention:app",
            "Set the retention policy of a bucket, preview which snapshots would expire, and expire them.",
        ),
    ),
    "Health": (
        SubCommand(
            "doctor",
            "operate.doctor:doctor",
            "Show what is wrong with the plane now, urgent things first, and what to do. Exit status 1 for urgent "
            "ones.",
        ),
        SubCommand(
            "status",
            "operate.status:status",
            "Show the plane's state: processes, throughput, backlog, lag, dead letters, disk.",
        ),
        SubCommand(
            "top",
            "operate.top:top",
            "Show the way of deletions through the plane, live, until Ctrl-C.",
        ),
        SubCommand("page", "operate.page:page", "Serve a page that shows the plane in a browser, until Ctrl-C."),
        SubCommand(
            "logs",
            "operate.logs:logs",
            "Show what the plane's processes have logged, merged by time.",
        ),
        SubCommand("gc", "collection.gc:app", "Pause and resume garbage collection, for one bucket or for everything."),
        SubCommand(
            "breaker",
            "collection.breaker:app",
            "Set limits that suspend claims of a bucket when far more is to be freed than usual, and reset the "
            "breaker.",
        ),
        SubCommand(
            "blocks",
            "operate.blocks:app",
            "Show the datanodes, deletions that they do not acknowledge, and blocks that are lost.",
        ),
        SubCommand(
            "dead-letters",
            "operate.dead_letters:app",
            "Show messages that could not be read or applied, and resolve them.",
        ),
    ),
    "History and proof": (
        SubCommand(
            "trace",
            "operate.trace:app",
            "Follow deletions through all processes: when each process got them, and what they wait for.",
        ),
        SubCommand(
            "ledger", "operate.ledger:app", "Show why and when versions were freed; each record is kept forever."
        ),
        SubCommand(
            "audit",
            "operate.audit:audit",
            "Recount live, held and deletable blocks from every table and checkpoint, and compare with the block "
            "store.",
        ),
        SubCommand(
            "verify",
            "operate.verify:verify",
            "Replay the command log with independent code and compare the result with the ledger.",
        ),
        SubCommand(
            "export",
            "operate.export:export",
            "Write changes since the last export to Iceberg tables that any engine reads. Readers see each change "
            "whole.",
        ),
        SubCommand("tables", "operate.tables:app", "Show the rows of any table of a plane's databases, read-only."),
    ),
    "The plane": (
        SubCommand(
            "up",
            "operate.up_down:up",
            "Start a plane in the background: broker, services, Spark. With an existing home it resumes its work.",
        ),
        SubCommand(
            "down", "operate.up_down:down", "Stop the plane: Spark, the services, the broker. All data is kept."
        ),
        SubCommand("shards", "operate.shards:app", "Show the shards of a plane, and add shards to it while it runs."),
        SubCommand("topics", "operate.topics:app", "Check and make the topics of a plane on any Kafka cluster."),
        SubCommand(
            "size",
            "operate.size:size",
            "Estimate shards, cores, memory, disk and log of a plane, from measured costs. It needs no plane.",
        ),
        SubCommand("upgrade", "operate.upgrade:app", "Show which programs a plane runs, and make an upgrade final."),
        SubCommand(
            "completion",
            "completion:completion",
            'Print the script that completes commands in a shell: eval "$(deepclean completion bash)".',
        ),
    ),
    "Backups and recovery": (
        SubCommand(
            "backup",
            "operate.recovery:backup",
            "Copy the state of every service that runs on this host, with its position in the log, while the plane "
            "runs.",
        ),
        SubCommand("backups", "operate.backups:app", "List backups, and delete those that newer ones replace."),
        SubCommand(
            "restore-backup",
            "operate.recovery:restore",
            "Restore the databases of a stopped plane from a backup. At the next start the services replay newer "
            "messages.",
        ),
        SubCommand(
            "rebuild",
            "operate.recovery:rebuild",
            "Rebuild a shard of metadata from the log, with its snapshots, and verify the result by digest.",
        ),
        SubCommand(
            "digest",
            "operate.recovery:digest",
            "Print the digest of a shard of metadata: of its tables and of every live snapshot's checkpoint.",
        ),
        SubCommand(
            "trim-log",
            "operate.trim_log:trim_log",
            "Delete log records that no reader, backup or unfinished work of metadata needs.",
        ),
        SubCommand(
            "accept-lost-tail",
            "operate.lost_tail:accept",
            "Show which messages a broker lost after services had read them. --yes accepts the loss.",
        ),
    ),
    "Rights": (
        SubCommand("acl", "store.acl:app", "Show and change who may do what with an object."),
        SubCommand("tenant", "operate.tenant:app", "Create tenants, and give users access to them."),
        SubCommand("token", "operate.token:app", "Get, renew and cancel delegation tokens."),
        SubCommand("secret", "operate.secret:app", "Register the secrets that may sign commands on a secure plane."),
    ),
    "Other stores and workloads": (
        SubCommand(
            "lens",
            "lens.command:app",
            "Show what snapshots cost and what their deletion frees, in Apache Ozone, Iceberg, Paimon or git. "
            "Read-only.",
        ),
        SubCommand(
            "import", "lens.import_command:app", "Import another system's buckets and snapshots into the plane."
        ),
        SubCommand(
            "replay",
            "workloads.replay:replay",
            "Execute a workload; snapshots may be renamed (as in the recorded cases).",
        ),
        SubCommand(
            "git",
            "workloads.git:git",
            "Replay a git history, delete some snapshots and a tree, settle, and check everything against git itself.",
        ),
    ),
}
"""By the group in which the listing shows them."""


class SubCommands(OneLineErrors):
    """The root group: it imports no sub-command until it is called."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**{**settings, "commands": lazy_commands(SUB_COMMANDS)})


app = typer.Typer(
    cls=SubCommands,
    name="deepclean",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="A snapshot and garbage-collection plane for object stores: it frees deleted data that no snapshot holds.",
    epilog="Is it well? deepclean doctor. What takes the space? deepclean space VOLUME/BUCKET. "
    "Who holds a path? deepclean explain VOLUME/BUCKET/PATH.",
)


def _say_version(is_asked: bool) -> None:
    if is_asked:
        from importlib.metadata import version  # noqa: PLC0415  each command would wait 15 ms for it

        say(f"deepclean {version('deepclean')}")
        raise typer.Exit


@app.callback()
def root(
    context: typer.Context,
    home: Annotated[
        Path | None,
        typer.Option(envvar="DEEPCLEAN_HOME", help="Directory of the plane's data; by default .deepclean."),
    ] = None,
    *,
    is_version_asked: Annotated[  # noqa: ARG001  its callback answers
        bool, typer.Option("--version", callback=_say_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Store the home directory in the context; ``session_of`` opens a session from it when a command needs one."""
    if context.obj is None:
        context.obj = home.resolve() if home is not None else home_directory()


def run() -> None:
    """Run the command line; SIGTERM lets a command stop what it has started, as Ctrl-C does."""
    keep_files_private()
    # Suppress the warnings of connections that retry: the command raises an error when they give up.
    logging.getLogger("services.log").setLevel(logging.ERROR)
    for reason in unused_modules():
        say(f"Warning: {reason}", err=True)
    if "_DEEPCLEAN_COMPLETE" in os.environ:
        from services.cli.completion import learn_shells  # noqa: PLC0415  no command waits for it

        learn_shells()
    with stopping_on_signals():
        app()


if __name__ == "__main__":
    run()
