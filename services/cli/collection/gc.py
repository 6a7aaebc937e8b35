"""``deepclean gc``: pause and resume garbage collection, for one bucket or for all, and show the waiting rows."""

from __future__ import annotations

from typing import Annotated

import typer

from schemas.answers import CollectionStatus
from schemas.records import CollectionState
from services.cli.collection_lines import (
    IdOption,
    are_of_several_shards,
    collection_lines,
    print_lines,
    scope,
    set_collection,
)
from services.cli.output import print_json, print_table
from services.cli.session import JsonOption, session_of
from services.cli.terminal import say
from services.domain.words import counted
from services.wording.collection import state_words, trip_words
from services.wording.figures import bytes_text, time_text

app = typer.Typer(no_args_is_help=True, help="Pause and resume garbage collection, for one bucket or for everything.")
BucketArgument = Annotated[
    str, typer.Argument(metavar="VOLUME/BUCKET", help="One bucket; by default everything, new buckets included.")
]
ResumedArgument = Annotated[
    str,
    typer.Argument(
        metavar="VOLUME/BUCKET", help="One bucket; by default everything, except buckets that were paused individually."
    ),
]
ShownArgument = Annotated[
    str,
    typer.Argument(
        metavar="VOLUME/BUCKET", help="One bucket; by default everything, and each bucket with a state of its own."
    ),
]
ReasonOption = Annotated[str, typer.Option(help="Reason, shown by gc status.")]


@app.command()
def pause(
    context: typer.Context,
    bucket: BucketArgument = "",
    reason: ReasonOption = "",
    bucket_id: IdOption = 0,
    as_json: JsonOption = False,
) -> None:
    """Suspend claims. Further deletions are accepted and wait; deleted trees can be undeleted whole.

    Rows that were claimed before are still freed, since the block store may already have their blocks.
    """
    with session_of(context) as session:
        set_collection(session, bucket, CollectionState.PAUSED, reason, bucket_id=bucket_id)
        lines = collection_lines(session, bucket)
    if as_json:
        print_json(lines)
        return
    say(f"{bucket or 'everything'} is paused: no further rows are claimed")
    claimed = sum(line.claimed_versions for line in lines if bool(line.bucket) is bool(bucket))
    if claimed:
        say(f"claimed before and still to be freed: {counted(claimed, 'version')}")
    say(f"resume with: deepclean gc resume{f' {bucket}' if bucket else ''}")


@app.command()
def shadow(
    context: typer.Context,
    bucket: BucketArgument = "",
    reason: ReasonOption = "",
    bucket_id: IdOption = 0,
    as_json: JsonOption = False,
) -> None:
    """Judge everything and claim nothing. gc status VOLUME/BUCKET shows by the hour what would have been claimed.

    Deleted trees are expanded, so that their files are counted, too; undelete then restores the files one by one.
    """
    with session_of(context) as session:
        set_collection(session, bucket, CollectionState.SHADOW, reason, bucket_id=bucket_id)
        lines = collection_lines(session, bucket)
    if as_json:
        print_json(lines)
        return
    say(f"{bucket or 'everything'} is in shadow mode: rows are judged and counted, but not claimed")
    say(f"resume with: deepclean gc resume{f' {bucket}' if bucket else ''}")


@app.command()
def resume(
    context: typer.Context,
    bucket: ResumedArgument = "",
    reason: ReasonOption = "",
    bucket_id: IdOption = 0,
    ends_stop: Annotated[
        bool,
        typer.Option(
            "--chain-is-mended", help="Also end a stop of all claims. Use it only after the cause is repaired."
        ),
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Resume claims. Rows that waited are judged again, and freed if no snapshot holds them.

    Buckets that were paused individually stay paused when everything is resumed. A bucket that is resumed
    while everything is paused resumes with everything.
    """
    with session_of(context) as session:
        set_collection(session, bucket, CollectionState.RUNNING, reason, bucket_id=bucket_id, ends_stop=ends_stop)
        lines = collection_lines(session, bucket)
    if as_json:
        print_json(lines)
        return
    suspended = [line for line in lines if line.effective_state is not CollectionState.RUNNING]
    if bucket and suspended:
        say(f"{bucket} itself is resumed, but claims of all buckets are suspended: {state_words(lines[0])}")
        return
    if not any(line.effective_state is not CollectionState.RUNNING and not line.bucket for line in lines):
        say(f"{bucket or 'everything'} is resumed")
    for line in suspended:
        where = f" in shard {line.shard}" if not line.bucket and are_of_several_shards(lines) else ""
        say(f"still suspended: {scope(line)}{where}, {state_words(line)}")


@app.command()
def status(context: typer.Context, bucket: ShownArgument = "", as_json: JsonOption = False) -> None:
    """Show which buckets are suspended, since when, by whom and why, and how much waits."""
    with session_of(context) as session:
        lines = collection_lines(session, bucket)
    if as_json:
        print_json(lines)
        return
    lines = [line for line in lines if bucket or not line.bucket or line.state is not CollectionState.RUNNING]
    print_lines(
        lines,
        ["WHAT", "STATE", "WAITS", "VERSIONS", "TREES", "CLAIMED", "SINCE", "BY", "WHY"],
        lambda line: (
            scope(line),
            line.effective_state.lower(),
            bytes_text(line.pending_bytes),
            line.pending_versions,
            "" if line.unexpanded_directories < 0 else line.unexpanded_directories,
            bytes_text(line.claimed_bytes),
            time_text(line.since_ms(line.effective_state)),
            # changed_by is from the last pause or resume, not from a stop
            "" if line.state is CollectionState.STOPPED else line.changed_by,
            trip_words(line.trip) if line.trip else line.reason,
        ),
        numbers=["WAITS", "VERSIONS", "TREES", "CLAIMED"],
    )
    say(*_advice(lines))
    for line in lines:
        if bucket and line.shadow:
            say("", f"would have been claimed of {scope(line)}, hour by hour:")
            _print_shadow(line)


def _print_shadow(line: CollectionStatus) -> None:
    print_table(
        ["HOUR", "BYTES", "VERSIONS", "OLDEST DELETION", "NEWEST DELETION"],
        (
            (
                time_text(hour.began_ms) if hour.began_ms else "before",
                bytes_text(hour.bytes),
                hour.versions,
                time_text(hour.oldest_deletion_ms),
                time_text(hour.newest_deletion_ms),
            )
            for hour in line.shadow
        ),
        numbers=["BYTES", "VERSIONS"],
    )


def _advice(lines: list[CollectionStatus]) -> list[str]:
    if any(line.state is CollectionState.STOPPED for line in lines):
        return ["Claims are stopped: repair the cause, then run deepclean gc resume --chain-is-mended"]
    suspended = [line for line in lines if line.state is not CollectionState.RUNNING]
    if not suspended:
        return ["No claims are suspended."]
    return list(dict.fromkeys(_advice_on(line) for line in suspended))


def _advice_on(line: CollectionStatus) -> str:
    group, way = ("breaker", "reset") if line.state is CollectionState.TRIPPED else ("gc", "resume")
    return f"Resume with: deepclean {group} {way}{f' {line.volume}/{line.bucket}' if line.bucket else ''}"
