"""``deepclean space``: a bucket's bytes by state, shared by its snapshots, and freed by a deletion of snapshots."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from schemas.answers import BucketSpace
from schemas.space_answers import SnapshotSpaces
from services.cli.amounts import parse_size
from services.cli.arguments import BucketArgument, snapshot_candidates
from services.cli.bucket_view import print_what_if, view_of
from services.cli.output import print_fields, print_json
from services.cli.session import JsonOption, session_of
from services.cli.space_lines import print_snapshots, print_states, say_plan
from services.cli.terminal import say
from services.client.tasks.space_view import BucketView, NamedSnapshots
from services.wording.amounts import typed_size_text
from services.wording.collection import suspended_words
from services.wording.space import accounted_bytes, accounted_replicated_bytes, freed_text, snapshot_texts, states_of

SHOW = "show"


class ShowByDefault(TyperGroup):
    """A command group with a default: if the first word is not a command, ``show`` is run with it."""

    default_command = SHOW

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Insert ``show`` if the first word is not a command."""
        first = next((word for word in args if not word.startswith("-")), None)
        if first is not None and first not in self.commands:
            args = [SHOW, *args]
        return super().parse_args(ctx, args)


app = typer.Typer(
    cls=ShowByDefault,
    no_args_is_help=True,
    help="Show the bytes of VOLUME/BUCKET by state and by snapshot, and how many a deletion of snapshots would free.",
)


@app.command(SHOW)
def show(context: typer.Context, bucket: BucketArgument, as_json: JsonOption = False) -> None:
    """Show where the bytes of a bucket are, and what each snapshot refers to, holds alone and shares. The default.

    REFERENCED is all that a snapshot shows; EXCLUSIVE is what it holds alone, so what deleting it alone would free;
    SHARED WITH is what its neighbour in the chain shows, too. With ~ a figure may change: a deleted directory is not
    expanded yet, so what is below it still counts as live.
    """
    with session_of(context) as session:
        view = view_of(session, bucket)
        snapshots = view.snapshots()
        space = view.plane.metadata(view.shard).space(view.volume, view.bucket)
        spaces = view.spaces()
        suspended = suspended_in(view)
    if as_json:
        print_json({"suspended_because": suspended, **_show_json(space, spaces, snapshots)})
        return
    print_bucket(view, space, suspended)
    say("")
    _print_snapshots(spaces, snapshots)


def suspended_in(view: BucketView) -> str:
    """Return why claims of a bucket are suspended; empty if they are not suspended."""
    return suspended_words(view.plane.metadata(view.shard).collection(view.volume, view.bucket))


def _show_json(space: BucketSpace, spaces: SnapshotSpaces, snapshots: NamedSnapshots) -> dict[str, Any]:
    names = {info.snapshot_id: info.name for info in snapshots.active}
    figures = {name: value for name, value in asdict(space).items() if name != "cells"}
    return {
        **figures,
        "accounted_bytes": accounted_bytes(space),
        "accounted_replicated_bytes": accounted_replicated_bytes(space),
        "snapshots_txn": spaces.txn,
        "snapshots": [{"name": names.get(one.snapshot_id, ""), **asdict(one)} for one in spaces.snapshots],
    }


def print_bucket(view: BucketView, space: BucketSpace, suspended: str) -> None:
    """Print the bytes of a bucket by state, and for each state the event that frees them."""
    print_fields(
        [
            ("bucket", f"{view.volume}/{view.bucket}"),
            ("as of", f"txn {space.txn}, chain version {space.chain_version} of shard {view.shard}"),
            ("live snapshots", space.live_snapshots),
            ("unexpanded directories", space.unexpanded_directories),
        ]
    )
    if space.unexpanded_directories:
        say("What is below an unexpanded directory still counts as live; figures with ~ may still change.")
    if suspended:
        say(f"Nothing is claimed at present: {suspended}")
    say("")
    print_states(states_of(space, suspended))


def _print_snapshots(spaces: SnapshotSpaces, snapshots: NamedSnapshots) -> None:
    names = {info.snapshot_id: info.name for info in snapshots.active}
    print_snapshots(
        (names.get(one.snapshot_id, "(being deleted)"), one.creation_time_ms, snapshot_texts(one))
        for one in spaces.snapshots
    )


@app.command("what-if")
def what_if(
    context: typer.Context,
    bucket: BucketArgument,
    names: Annotated[
        list[str], typer.Argument(metavar="SNAPSHOT…", help="Any of its snapshots.", autocompletion=snapshot_candidates)
    ],
    as_json: JsonOption = False,
) -> None:
    """Show exactly how much deleting some snapshots together would free. Nothing is deleted."""
    with session_of(context) as session:
        view = view_of(session, bucket)
        freed = view.what_if(view.snapshots(), names)
    print_what_if(names, freed, as_json=as_json)


@app.command()
def plan(
    context: typer.Context,
    bucket: BucketArgument,
    free: Annotated[str, typer.Option(metavar="SIZE", help="Bytes to free, at least: 10GiB, 500MB, 4096.")],
    keep: Annotated[
        list[str] | None,
        typer.Option(
            metavar="SNAPSHOT", help="Do not delete this snapshot; may be repeated.", autocompletion=snapshot_candidates
        ),
    ] = None,
    is_replicated: Annotated[
        bool, typer.Option("--on-disks", help="SIZE is what the blocks take on disks, with all copies and parity.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Show the smallest set of snapshots, older ones first, whose deletion frees at least SIZE. Nothing is deleted."""
    wanted_bytes = parse_size(free)
    with session_of(context) as session:
        view = view_of(session, bucket)
        snapshots = view.snapshots()
        found = view.plan(snapshots, wanted_bytes, keep or (), is_replicated=is_replicated)
    names = snapshots.names_of(found.snapshot_ids)
    if as_json:
        print_json({"snapshots": names, "wanted_bytes": wanted_bytes, **asdict(found)})
        return
    sizes = (found.freed_bytes, found.freed_replicated_bytes, found.freed_versions)
    freed = f"{freed_text(*sizes, is_exact=found.is_exact)} (txn {found.txn})"
    wanted = typed_size_text(free, is_replicated=is_replicated)
    say_plan(names, freed, wanted, is_enough=found.is_enough, is_smallest=found.is_smallest)
