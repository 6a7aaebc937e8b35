"""``deepclean trace``: when a deletion came where, read from the plane's topics."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from functools import cache
from heapq import nlargest
from typing import Annotated, Any

import typer

from services.cli.amounts import duration_ms
from services.cli.bucket_view import view_of
from services.cli.operate.plane_log import log_of
from services.cli.output import print_fields, print_json, print_result, print_table
from services.cli.session import JsonOption, Session, bucket_path, key_path, session_of
from services.cli.terminal import say
from services.client.errors import PlaneError
from services.domain.words import counted
from services.log.clock import SystemClock
from services.tracing.followed import FollowedShard
from services.tracing.requests import Requests
from services.tracing.trace_ids import trace_id_text
from services.tracing.ways import Way
from services.wording.figures import bytes_text, time_text

app = typer.Typer(
    no_args_is_help=True,
    help="Follow deletions through all processes: when each process got them, and what they wait for.",
)
READER = "deepclean.trace"
DEFAULT_SINCE = "1h"
MOST_SHOWN = 20

SinceOption = Annotated[str, typer.Option(metavar="DURATION", help="Read what happened since then: 15m, 2h, 7d.")]
ShardsOption = Annotated[list[int] | None, typer.Option("--shard", help="Only this shard; may be repeated.")]


@app.command("list")
def list_ways(
    context: typer.Context,
    bucket: Annotated[str, typer.Argument(metavar="[VOLUME/BUCKET]", help="Only deletions of this bucket.")] = "",
    shard: ShardsOption = None,
    since: SinceOption = DEFAULT_SINCE,
    is_open: Annotated[bool, typer.Option("--open", help="Only those that are not over.")] = False,
    limit: Annotated[int, typer.Option(min=1, help="Maximum number of deletions.")] = 50,
    as_json: JsonOption = False,
) -> None:
    """List deletions since a time, those that took longest first: where each is, and where it spent its time."""
    if bucket and shard:
        raise typer.BadParameter("VOLUME/BUCKET has its own: leave --shard out", param_hint="--shard")
    with session_of(context) as session:
        followed = _of_bucket(session, bucket, since) if bucket else _of_shards(session, shard, since)
        total = 0

        def found() -> Iterator[tuple[FollowedShard, Way]]:
            nonlocal total
            for one in followed:
                for way in one.all():
                    # The rest of one that was given up is no second deletion.
                    is_rest = one.ways.given_up and not way.has_beginning
                    if not is_rest and not (is_open and way.is_over):
                        total += 1
                        yield one, way

        shown = nlargest(limit, found(), key=lambda pair: pair[1].total_ms)
    given_up = sum(one.ways.given_up for one in followed)
    if as_json:
        print_json({"deletions": [_fields(*one) for one in shown], "found": total, "given_up": given_up})
        return
    print_table(
        ["BEGAN (UTC)", "KIND", "WHAT", "SHARD", "DIED", "BYTES", "TOOK", "LONGEST", "STATE"],
        (_cells(*one) for one in shown),
        numbers=["SHARD", "DIED", "BYTES", "TOOK"],
    )
    if total > len(shown):
        say("", f"{counted(total, 'deletion')} in all; these took longest. More with --limit.")
    _say_given_up(given_up)


@app.command()
def show(
    context: typer.Context,
    target: Annotated[
        str, typer.Argument(metavar="TARGET", help="VOLUME/BUCKET/PATH, or the txn of a deletion (with --shard).")
    ],
    shard: Annotated[int | None, typer.Option(min=0, help="Shard of the txn [0].")] = None,
    since: SinceOption = DEFAULT_SINCE,
    as_json: JsonOption = False,
) -> None:
    """Show each step of a deletion: when it came where, in which message, and how long that took."""
    with session_of(context) as session:
        if target.isdecimal():
            (one,) = _of_shards(session, [shard or 0], since, death=int(target))
            found = list(one.all())
        else:
            if shard is not None:
                raise typer.BadParameter("a path has its own: leave --shard out", param_hint="--shard")
            volume, bucket, path = key_path(target)
            (one,) = _of_bucket(session, f"{volume}/{bucket}", since)
            wanted = _with_path(session, volume, bucket, path)
            found = [way for way in one.all() if wanted(one.reader.requests, way)]
    if as_json:
        print_json([_fields(one, way) for way in found])
        return
    if not found:
        say(f"Nothing of {target} died since then. Look further back with --since; who holds it: deepclean explain.")
    for way in found[:MOST_SHOWN]:
        _print(one, way)
    if len(found) > MOST_SHOWN:
        say(f"{counted(len(found) - MOST_SHOWN, 'more version')} died there: --json shows all.")
    _say_given_up(one.ways.given_up)


@app.command()
def export(
    context: typer.Context,
    endpoint: Annotated[
        str,
        typer.Option(
            envvar="OTEL_EXPORTER_OTLP_ENDPOINT",
            help="The collector's endpoint for OTLP over HTTP, such as http://127.0.0.1:4318.",
        ),
    ] = "http://127.0.0.1:4318",
    share: Annotated[
        float,
        typer.Option(
            min=0, max=1, help="Share of the deletions to send. Exporters with the same share send the same deletions."
        ),
    ] = 1.0,
    shard: ShardsOption = None,
    since: Annotated[
        str,
        typer.Option(
            metavar="DURATION",
            help="Read what happened since then: 15m, 2h, 7d. By default 1h; with --follow only what comes.",
        ),
    ] = "",
    follows: Annotated[
        bool, typer.Option("--follow", "-f", help="Send deletions when they are over, until Ctrl-C.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Send deletions as OpenTelemetry traces to a collector: Jaeger, Tempo, or any other that speaks OTLP over HTTP.

    Without --follow, send all deletions since --since, in their present state.
    """
    if not endpoint.startswith(("http://", "https://")):
        raise typer.BadParameter(f"{endpoint!r} is not a URL: write http://127.0.0.1:4318", param_hint="--endpoint")
    from services.cli.operate.trace_sending import send  # noqa: PLC0415  it needs an extra that nothing else does

    with session_of(context) as session:
        followed = _of_shards(session, shard, since or ("0" if follows else DEFAULT_SINCE), share)
        sent = send(endpoint, followed, follows=follows)
    print_result({"deletions": sent}, f"{counted(sent, 'deletion')} sent to {endpoint}", as_json=as_json)


# Reading


def _of_shards(
    session: Session, shards: Sequence[int] | None, since: str, share: float = 1.0, death: int = 0
) -> list[FollowedShard]:
    chosen = session.shards(shards)
    log = log_of(session, READER, is_whole=True)
    return [FollowedShard(log, one, _begin_ms(since), death=death, share=share) for one in chosen]


def _of_bucket(session: Session, bucket: str, since: str) -> list[FollowedShard]:
    volume, name = session.bucket_of(*bucket_path(bucket))
    found = session.metadata(volume).bucket(volume, name).object_id
    log = log_of(session, READER, is_whole=True)
    return [FollowedShard(log, session.volumes().shard_of(volume), _begin_ms(since), bucket_id=found)]


def _begin_ms(since: str) -> int:
    return max(0, SystemClock().now_ms() - duration_ms(since))


def _say_given_up(number: int) -> None:
    if number:
        parts = "are shown in parts, since too many were in progress at a time"
        say("", f"{counted(number, 'deletion')} {parts}: ask for a shorter time with --since.")


# What is wanted

Wanted = Callable[[Requests, Way], bool]


def _with_path(session: Session, volume: str, bucket: str, path: str) -> Wanted:
    """Return what tells the versions of a path: by their ids as long as metadata knows them, else by the request."""
    path = path.strip("/")
    try:
        explained = view_of(session, f"{volume}/{bucket}").path(path)
    except PlaneError:
        named = set[tuple[int, int]]()
    else:
        named = {(one.object_id, one.death) for one in explained.versions if one.death}
        named |= {(one.object_id, one.death) for one in explained.directories if one.death}
    here = session.bucket_of(volume, bucket)

    @cache
    def is_here(volume: str, bucket: str) -> bool:
        """Return whether a request went to this bucket, by its name or by a link."""
        try:
            return session.bucket_of(volume, bucket) == here
        except PlaneError:  # there is no such bucket any more
            return False

    def is_wanted(requests: Requests, way: Way) -> bool:
        version = way.version
        if (version.object_id, version.death) in named:
            return True
        request = requests.at(version.death)
        if request is None or not is_here(request.volume, request.bucket):
            return False
        if request.name == "DeleteDirectory":
            return any(path == one or path.startswith(f"{one}/") for one in request.paths)
        return path in request.paths and (len(request.paths) > 1 or request.object_id in (0, version.object_id))

    return is_wanted


# Printing


def _fields(one: FollowedShard, way: Way) -> dict[str, Any]:
    request = one.reader.requests.at(way.version.death)
    return {
        "shard": one.shard,
        **way.version._asdict(),
        "trace_id": trace_id_text(one.shard, way.version),
        "state": way.state,
        "is_over": way.is_over,
        "total_ms": way.total_ms,
        "request": None if request is None else asdict(request),
        "steps": [
            {
                "station": step.station.says,
                "process": step.station.process,
                "time_ms": step.time_ms,
                "wait_ms": wait_ms,
                "topic": step.topic,
                "offset": step.offset,
                **dict(step.facts),
            }
            for step, wait_ms in way.waits()
        ],
    }


def _cells(one: FollowedShard, way: Way) -> list[object]:
    version, (step, wait_ms) = way.version, way.longest()
    size_bytes, request = way.fact("bytes"), one.reader.requests.at(version.death)
    what = request.paths[0] if request and len(request.paths) == 1 else f"object {version.object_id}"
    return [
        *(time_text(way.steps[0].time_ms), version.kind.value, what, one.shard, version.death),
        *(bytes_text(size_bytes) if size_bytes else "", _seconds(way.total_ms)),
        *(f"{step.station.says}, {_seconds(wait_ms)}", way.state),
    ]


def _print(one: FollowedShard, way: Way) -> None:
    version, request = way.version, one.reader.requests.at(way.version.death)
    asked = "not read"
    if request is not None:
        where = "/".join(filter(None, [request.volume, request.bucket, *request.paths[:1]]))
        more = f" and {counted(len(request.paths) - 1, 'more key')}" if len(request.paths) > 1 else ""
        asked = f"{request.name} {where}{more}{f' by {request.user}' if request.user else ''}"
    print_fields(
        [
            ("version", f"{version.kind.value} {version.object_id} of bucket {version.bucket_id}"),
            ("died", f"at txn {version.death} of shard {one.shard}"),
            ("request", asked),
            ("state", way.state),
            ("trace", trace_id_text(one.shard, version)),
        ]
    )
    print_table(
        ["TIME (UTC)", "AFTER", "STATION", "PROCESS", "MESSAGE", "FACTS"],
        (
            [
                *(f"{time_text(step.time_ms)}.{step.time_ms % 1000:03}", _seconds(wait_ms), step.station.says),
                *(step.station.process, f"{step.topic}/{one.shard}/{step.offset}"),
                ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in step.facts),
            ]
            for step, wait_ms in way.waits()
        ),
        numbers=["AFTER"],
    )
    say("")


def _seconds(milliseconds: int) -> str:
    return f"{milliseconds / 1000:,.3f}s"
