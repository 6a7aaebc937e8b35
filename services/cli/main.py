"""The ``deepclean`` command."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Annotated

import typer

from schemas.compiled import set_aside
from schemas.private_files import keep_files_private
from services.cli.collector import breaker, consumer, explain, gc, retention, space, tag
from services.cli.operate import (
    audit,
    dead_letters,
    ledger,
    lost_tail,
    recovery,
    secret,
    status,
    trim_log,
    up_down,
    verify,
)
from services.cli.output import say
from services.cli.session import OneLineErrors, Session
from services.cli.store import bucket, deleted, directory, key, restore, snapshot, volume
from services.cli.workloads import git, replay
from services.plane.machine.home import home_directory
from services.plane.stack.stack import stopping_on_signals

app = typer.Typer(
    cls=OneLineErrors,
    name="deepclean",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="A snapshot and garbage-collection plane for object stores: it frees what nobody holds, and nothing else.",
)
app.command()(up_down.up)
app.command()(up_down.down)
app.command()(status.status)
app.command()(restore.restore)
app.command()(deleted.undelete)
app.command()(recovery.backup)
app.command("restore-backup")(recovery.restore)
app.command()(recovery.rebuild)
app.command()(recovery.digest)
app.command("trim-log")(trim_log.trim_log)
app.command("accept-lost-tail")(lost_tail.accept)
app.command()(replay.replay)
app.command()(git.git)
app.command()(explain.explain)
app.command()(audit.audit)
app.command()(verify.verify)
for group, name in (
    (volume.app, "volume"),
    (bucket.app, "bucket"),
    (key.app, "key"),
    (directory.app, "dir"),
    (snapshot.app, "snapshot"),
    (retention.app, "retention"),
    (tag.app, "tag"),
    (consumer.app, "consumer"),
    (space.app, "space"),
    (ledger.app, "ledger"),
    (secret.app, "secret"),
    (deleted.app, "deleted"),
    (gc.app, "gc"),
    (breaker.app, "breaker"),
    (dead_letters.app, "dead-letters"),
):
    app.add_typer(group, name=name)


@app.callback()
def root(
    context: typer.Context,
    home: Annotated[
        Path | None,
        typer.Option(envvar="DEEPCLEAN_HOME", help="Where the plane keeps everything; by default .deepclean."),
    ] = None,
) -> None:
    """Take what holds for every sub-command."""
    if context.obj is None:
        context.obj = Session(home.resolve() if home is not None else home_directory())


def run() -> None:
    """Run the command line; SIGTERM lets a command stop what it has started, as Ctrl-C does."""
    keep_files_private()
    # What connections say while they try again by themselves; what ends them is an error of the command.
    logging.getLogger("services.log.kafka").setLevel(logging.ERROR)
    for reason in set_aside():
        say(f"Warning: {reason}", err=True)
    with stopping_on_signals():
        app()


if __name__ == "__main__":
    run()
