"""``deepclean gc``: pause and resume the collector, for one bucket or for everything, and see what waits."""

from __future__ import annotations

from typing import Annotated

import typer

from schemas.answers import CollectorStatus
from schemas.records import CollectorState, SetCollector
from services.client.commands.output import bytes_text, print_json, print_table, time_text
from services.client.commands.session import JsonOption, Session, bucket_path, session_of

app = typer.Typer(
    no_args_is_help=True, help="Hold the collector back, for one bucket or for everything, and let it go on."
)
BucketArgument = Annotated[
    str, typer.Argument(metavar="[VOLUME/BUCKET]", help="One bucket; by default everything, new buckets included.")
]
ReasonOption = Annotated[str, typer.Option(help="Why: shown to whoever looks.")]


@app.command()
def pause(context: typer.Context, bucket: BucketArgument = "", reason: ReasonOption = "") -> None:
    """Claim nothing more. Deletions go on being taken in and wait; trees that were deleted can come back whole.

    What was claimed before goes on to its end: its blocks are promised to the block store.
    """
    with session_of(context) as session:
        _set(session, bucket, CollectorState.PAUSED, reason)
        lines = _status(session, bucket)
    typer.echo(f"{bucket or 'everything'} is paused from now on: nothing more of it is claimed")
    claimed = sum(line.claimed_versions for line in lines if bool(line.bucket) is bool(bucket))
    if claimed:
        typer.echo(f"claimed before, and on its way to the block store: {claimed:,} versions")
    typer.echo(f"let it go on with: deepclean gc resume{f' {bucket}' if bucket else ''}")


@app.command()
def resume(
    context: typer.Context,
    bucket: BucketArgument = "",
    reason: ReasonOption = "",
    ends_stop: Annotated[
        bool, typer.Option("--chain-is-mended", help="End a stop of all claims, too: only once its cause is mended.")
    ] = False,
) -> None:
    """Let the collector go on: what has waited is judged once more, and goes if still nobody holds it.

    Buckets that were paused by themselves stay so when everything is resumed; a bucket that is resumed
    while everything is paused goes on when everything does.
    """
    with session_of(context) as session:
        _set(session, bucket, CollectorState.RUNNING, reason, ends_stop=ends_stop)
        lines = _status(session, bucket)
    held_back = [line for line in lines if line.effective_state is not CollectorState.RUNNING]
    if bucket and held_back:
        typer.echo(f"{bucket} is not held back by itself any more, but everything is: {_words(lines[0])}")
        return
    if not any(line.effective_state is not CollectorState.RUNNING and not line.bucket for line in lines):
        typer.echo(f"{bucket or 'everything'} goes on")
    for line in held_back:
        typer.echo(f"still held back: {_scope(line)}, {_words(line)}")


@app.command()
def status(context: typer.Context, bucket: BucketArgument = "", as_json: JsonOption = False) -> None:
    """Show what is held back, since when, by whom and why, and how much waits."""
    with session_of(context) as session:
        lines = _status(session, bucket)
    if as_json:
        print_json(lines)
        return
    print_table(
        ["WHAT", "STATE", "WAITS", "VERSIONS", "TREES", "CLAIMED", "SINCE", "BY", "WHY"],
        (
            (
                _scope(line),
                line.effective_state.lower(),
                bytes_text(line.pending_bytes),
                line.pending_versions,
                "" if line.unexpanded_directories < 0 else line.unexpanded_directories,
                bytes_text(line.claimed_bytes),
                time_text(line.changed_ms),
                line.changed_by,
                line.reason,
            )
            for line in lines
        ),
        numbers=["WAITS", "VERSIONS", "TREES", "CLAIMED"],
    )
    typer.echo(_advice(lines))


def _set(session: Session, bucket: str, state: CollectorState, reason: str, *, ends_stop: bool = False) -> None:
    if bucket:
        volume, name = bucket_path(bucket)
        session.execute(session.volumes().shard_of(volume), SetCollector(volume, name, state, reason, ends_stop))
        return
    for shard in range(session.connected().shards):
        session.execute(shard, SetCollector("", "", state, reason, ends_stop))


def _status(session: Session, bucket: str) -> list[CollectorStatus]:
    """Of all shards, or of the one that has the bucket."""
    plane = session.connected()
    if bucket:
        volume, name = bucket_path(bucket)
        return plane.metadata(session.volumes().shard_of(volume)).collector(volume, name)
    return [line for shard in range(plane.shards) for line in plane.metadata(shard).collector()]


def _scope(line: CollectorStatus) -> str:
    if not line.bucket:
        return "everything"
    return f"{line.volume}/{line.bucket}{' (deleted)' if line.is_deleted else ''}"


def _words(line: CollectorStatus) -> str:
    """A state with its story, in one line."""
    by = f" by {line.changed_by}" if line.changed_by else ""
    because = f": {line.reason}" if line.reason else ""
    return f"{line.effective_state.lower()} since {time_text(line.changed_ms)}{by}{because}"


def _advice(lines: list[CollectorStatus]) -> str:
    if any(line.state is CollectorState.STOPPED for line in lines):
        return "Claims were stopped: mend the cause, then deepclean gc resume --chain-is-mended"
    held_back = [line for line in lines if line.state is not CollectorState.RUNNING]
    if not held_back:
        return "Nothing is held back: what waits is on its way."
    return "\n".join(
        f"Let it go on with: deepclean gc resume{f' {line.volume}/{line.bucket}' if line.bucket else ''}"
        for line in {(line.volume, line.bucket): line for line in held_back}.values()
    )
