"""``deepclean breaker``: limit the claims of a bucket per hour, show and reset tripped breakers."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

import typer

from schemas.answers import CollectionStatus
from schemas.records import BreakerCause, BreakerLimits, CollectionState, ResetBreaker, SetBreaker
from services.cli.amounts import parse_size
from services.cli.arguments import BucketArgument
from services.cli.collection_lines import IdOption, collection_lines, order, print_lines, scope, shards_of
from services.cli.output import print_json, print_result
from services.cli.session import JsonOption, Session, bucket_path, execute, session_of
from services.cli.terminal import say
from services.domain.words import counted
from services.wording.collection import trip_words
from services.wording.figures import amount_in_words, bytes_text, time_text

app = typer.Typer(
    no_args_is_help=True,
    help="Set limits that suspend claims of a bucket when far more is to be freed than usual, and reset the breaker.",
)
LimitedBucketArgument = Annotated[
    str, typer.Argument(metavar="VOLUME/BUCKET", help="One bucket; by default all that have no limits of their own.")
]
ShownBucketArgument = Annotated[
    str,
    typer.Argument(
        metavar="VOLUME/BUCKET",
        help="One bucket; by default all that have limits of their own or a tripped breaker, and the general limits.",
    ),
]


@app.command("set")
def set_limits(
    context: typer.Context,
    bucket: LimitedBucketArgument = "",
    share_percent: Annotated[
        int | None,
        typer.Option(
            "--share",
            metavar="PERCENT",
            min=0,
            max=100,
            help="Largest share of the bucket to claim in an hour; 0: unlimited.",
        ),
    ] = None,
    floor: Annotated[
        str | None, typer.Option(metavar="SIZE", help="Bytes that may always be claimed in an hour: 100GiB.")
    ] = None,
    floor_versions: Annotated[
        int | None, typer.Option(metavar="N", min=0, help="Versions that may always be claimed in an hour.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Limit what may be claimed of a bucket within an hour to a share of its bytes and of its versions.

    The share is taken of the live and deleted amount at the start of the hour. The floors are for small buckets: on a
    normal day most of what is in such a bucket may be freed. Options left out keep their values; the first time,
    --share is required and a floor that is left out is 0.
    """
    volume, name = bucket_path(bucket) if bucket else ("", "")
    floor_bytes = None if floor is None else parse_size(floor)
    named = {"share_percent": share_percent, "floor_bytes": floor_bytes, "floor_versions": floor_versions}
    given = {figure: value for figure, value in named.items() if value is not None}
    if not given:
        raise typer.BadParameter("nothing to set: name a share, a floor or both", param_hint="--share")
    with session_of(context) as session:
        shards = shards_of(session, volume)
        limits = {shard: _completed(_limits_now(session, shard, volume, name), given) for shard in shards}
        for shard in shards:
            session.execute(shard, SetBreaker(volume, name, limits[shard]))
    if as_json:
        print_json([{"shard": shard, "bucket": bucket, "limits": limits[shard]} for shard in shards])
        return
    for said in dict.fromkeys(map(_limits_words, limits.values())):
        say(f"{bucket or 'each bucket without limits of its own'}: {said}")


def _limits_now(session: Session, shard: int, volume: str, bucket: str) -> BreakerLimits | None:
    """Return a bucket's own limits, or, without a bucket, the limits for all; None if none are set.

    A bucket without limits of its own gets None, although the limits for all apply to it.
    """
    shard_line, *bucket_lines = session.connected().metadata(shard).collection(volume, bucket)
    if not bucket:
        return shard_line.limits
    return min(bucket_lines, key=lambda line: line.is_deleted).limits


def _completed(now: BreakerLimits | None, given: dict[str, int]) -> BreakerLimits:
    if now is None and "share_percent" not in given:
        raise typer.BadParameter("nothing is set that could stay: name a share", param_hint="--share")
    return replace(now or BreakerLimits(0, 0, 0), **given)


@app.command()
def unset(context: typer.Context, bucket: BucketArgument, as_json: JsonOption = False) -> None:
    """Remove a bucket's own limits. The limits for all buckets apply again."""
    volume, name = bucket_path(bucket)
    execute(context, volume, SetBreaker(volume, name, None))
    print_result({"bucket": bucket}, f"{bucket} has no limits of its own any more", as_json=as_json)


@app.command()
def status(context: typer.Context, bucket: ShownBucketArgument = "", as_json: JsonOption = False) -> None:
    """Show the limits, and for which buckets the breaker has tripped, when, why, how much waits, and what to do."""
    with session_of(context) as session:
        lines = collection_lines(session, bucket)
    if as_json:
        print_json(lines)
        return
    print_lines(
        [line for line in lines if bucket or not line.bucket or line.limits or line.trip],
        ["WHAT", "LIMITS", "CLAIMED IN ITS HOUR", "WAITS", "VERSIONS", "TRIPPED"],
        lambda line: (
            scope(line),
            _limits_words(line.limits) if line.limits else "none" if not line.bucket else "as all",
            _hour_words(line),
            bytes_text(line.pending_bytes),
            line.pending_versions,
            time_text(line.trip.at_ms) if line.trip else "no" if line.bucket else "",
        ),
        numbers=["WAITS", "VERSIONS"],
    )
    tripped = [line for line in lines if line.trip]
    for line in tripped:
        say("")
        _print_trip(line)
    if not tripped:
        say("The breaker has not tripped.")


@app.command()
def reset(
    context: typer.Context,
    bucket: Annotated[
        str, typer.Argument(metavar="VOLUME/BUCKET", help="One bucket; by default each for which it has tripped.")
    ] = "",
    reason: Annotated[str, typer.Option(help="Reason, shown by gc status.")] = "",
    bucket_id: IdOption = 0,
    as_json: JsonOption = False,
) -> None:
    """Resume claims where the breaker has tripped. A new hour starts; its limits do not count the rows that wait now.

    Rows that a snapshot holds are kept. A pause, shadow mode or a stop stays in force. On a secured plane the owner may
    reset the breaker of a bucket unless an administrator set the limits, or rows and figures disagree; then only an
    administrator may.
    """
    volume, name = bucket_path(bucket) if bucket else ("", "")
    with session_of(context) as session:
        lines = collection_lines(session, bucket)
        tripped = [line for line in lines if line.trip and bucket_id in (0, line.bucket_id)]
        order(session, ResetBreaker(volume, name, reason, bucket_id))
        after = {(line.shard, scope(line)): line for line in collection_lines(session, bucket)}
    if as_json:
        print_json(list(after.values()))
        return
    for line in tripped:
        everything = after[line.shard, "everything"]
        now = after.get((line.shard, scope(line)), everything).effective_state
        suspended = "" if now is CollectionState.RUNNING else f", once it is no longer {now.lower()}"
        waiting = amount_in_words(line.pending_bytes, line.pending_versions)
        say(f"{scope(line)} resumes{suspended}: {waiting}")
    if not tripped:
        say(f"the breaker has not tripped for {bucket or 'any bucket'}: nothing to do")


def _limits_words(limits: BreakerLimits) -> str:
    if not limits.share_percent:
        return "no limit"
    floor = f"{bytes_text(limits.floor_bytes)} and {counted(limits.floor_versions, 'version')}"
    return f"{limits.share_percent} % in an hour, but always {floor}"


def _hour_words(line: CollectionStatus) -> str:
    if line.hour is None:
        return ""
    of = f"{bytes_text(line.hour.claimed_bytes)} of {bytes_text(line.hour.most_bytes)}"
    released = (
        f", and {bytes_text(line.hour.released_bytes)} that a reset let go" if line.hour.released_versions else ""
    )
    return f"{of} since {time_text(line.hour.began_ms)}{released}"


def _print_trip(line: CollectionStatus) -> None:
    trip = line.trip
    assert trip is not None  # noqa: S101  checked by the caller
    path = f"{line.volume}/{line.bucket}"
    say(f"{scope(line)} tripped at {time_text(trip.at_ms)} (txn {trip.txn:,}): {trip_words(trip)}.")
    say(f"Nothing more of it is claimed; {bytes_text(line.pending_bytes)} wait. Was it meant to be deleted?")
    if trip.cause is not BreakerCause.LIMITS:
        say("Rows or figures are wrong: deepclean audit shows which. Do not reset the breaker before that.")
        return
    say(f"  deepclean deleted list {path}     list the deletions")
    say(f"  deepclean undelete {path}/PATH    undo a deletion")
    say(f"  deepclean breaker reset {path}    free all that waits")
