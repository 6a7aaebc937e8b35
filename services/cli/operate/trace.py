"""``deepclean trace``: when a deletion came where, read from the plane's topics."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from heapq import nlargest
from typing import TYPE_CHECKING, Annotated, Any

import typer

from services.cli.amounts import duration_ms
from services.cli.bucket_view import view_of
from services.cli.operate.plane_log import log_of
from services.cli.output import bytes_text, counted, print_fields, print_json, print_result, print_table, time_text
from services.cli.session import JsonOption, Session, bucket_path, key_path, session_of
from services.cli.terminal import say
from services.client.errors import PlaneError
from services.domain.errors import RetryableError
from services.log.port import DatedLog
from services.tracing.followed import FollowedShard
from services.tracing.requests import Requests
from services.tracing.trace_ids import trace_id_text
from services.tracing.ways import Way

if TYPE_CHECKING:
    from services.tracing.spans import Collector

app = typer.Typer(
    no_args_is_help=True, help="Follow deletions through all processes: when each came where, and what it waits for."
)
READER = "deepclean.trace"
ROUND_SECONDS = 1.0
MOST_SHOWN = 20

SinceOption = Annotated[
    int, typer.Option(parser=duration_ms, metavar="DURATION", help="Read what happened since then: 15m, 2h, 7d.")
]
ShardsOption = Annotated[list[int] | None, typer.Option("--shard", help="Only this shard; may be repeated.")]


@app.command("list")
def list_ways(
    context: typer.Context,
    bucket: Annotated[str, typer.Argument(metavar="[VOLUME/BUCKET]", help="Only deletions of this bucket.")] = "",
    shard: ShardsOption = None,
    since: SinceOption = "1h",  # type: ignore[assignment]
    is_open: Annotated[bool, typer.Option("--open", help="Only those that are not over.")] = False,
    limit: Annotated[int, typer.Option(min=1, help="Maximum number of deletions.")] = 50,
    as_json: JsonOption = False,
) -> None:
    """List deletions since a time, those that took longest first: where each is, and where it spent its time."""
    if bucket and shard:
        raise typer.BadParameter("VOLUME/BUCKET has its own: leave --shard out", param_hint="--shard")
    with session_of(context) as session:
        followed = _of_bucket(session, bucket, since) if bucket else _of_shards(session, shard, since)
        forgotten = _read_all(followed)
    found = [(one, way) for one in followed for way in one.all() if not (is_open and way.is_over)]
    shown = nlargest(limit, found, key=lambda pair: pair[1].total_ms)
    if as_json:
        print_json({"deletions": [_fields(*one) for one in shown], "found": len(found), "forgotten": forgotten})
        return
    print_table(
        ["BEGAN (UTC)", "KIND", "WHAT", "SHARD", "DIED", "BYTES", "TOOK", "LONGEST", "STATE"],
        (_cells(*one) for one in shown),
        numbers=["SHARD", "DIED", "BYTES", "TOOK"],
    )
    if len(found) > len(shown):
        say("", f"{counted(len(found), 'deletion')} in all; these took longest. More with --limit.")
    if forgotten:
        say("", f"{counted(forgotten, 'earlier deletion')} had to be left out: ask for a shorter time with --since.")


@app.command()
def show(
    context: typer.Context,
    target: Annotated[
        str, typer.Argument(metavar="TARGET", help="VOLUME/BUCKET/PATH, or the txn of a deletion (with --shard).")
    ],
    shard: Annotated[int, typer.Option(min=0, help="Shard of the txn.")] = 0,
    since: SinceOption = "1h",  # type: ignore[assignment]
    as_json: JsonOption = False,
) -> None:
    """Show each step of a deletion: when it came where, in which message, and how long that took."""
    with session_of(context) as session:
        if target.isdecimal():
            (one,), wanted = _of_shards(session, [shard], since), _died_at(int(target))
        else:
            volume, bucket, path = key_path(target)
            (one,) = _of_bucket(session, f"{volume}/{bucket}", since)
            wanted = _with_path(session, volume, bucket, path)
        _read_all([one])
    found = [way for way in one.all() if wanted(one.reader.requests, way)]
    if as_json:
        print_json([_fields(one, way) for way in found])
        return
    if not found:
        say(
            f"Nothing of {target} died since then. Look further back with --since; who holds it: deepclean explain.",
        )
    for way in found[:MOST_SHOWN]:
        _print(one, way)
    if len(found) > MOST_SHOWN:
        say(f"{counted(len(found) - MOST_SHOWN, 'more version')} died there: --json shows all.")


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
        float, typer.Option(min=0, max=1, help="Share of the deletions; the same ones wherever it is chosen.")
    ] = 1.0,
    shard: ShardsOption = None,
    since: SinceOption = "0",  # type: ignore[assignment]
    follows: Annotated[
        bool, typer.Option("--follow", "-f", help="Go on with what happens from now on, until Ctrl-C.")
    ] = False,
    quiet: Annotated[
        int,
        typer.Option(
            parser=duration_ms,
            metavar="DURATION",
            help="With --follow: send a deletion that stands still for so long as it is. The rest follows when it goes "
            "on.",
        ),
    ] = "15m",  # type: ignore[assignment]
    as_json: JsonOption = False,
) -> None:
    """Send deletions as OpenTelemetry traces to a collector: Jaeger, Tempo, or any other that speaks OTLP over HTTP.

    Without --follow, all since a time, as they are now.
    """
    from services.tracing.spans import Collector  # noqa: PLC0415  of an extra that nothing else needs

    collector, sent = Collector(endpoint), 0
    try:
        with session_of(context) as session:
            followed = _of_shards(session, shard, since, share)
            if not follows:
                _read_all(followed)
                sent = sum(_send(collector, one, list(one.all())) for one in followed)
            else:
                for number in _rounds(collector, followed, quiet):
                    sent += number
    finally:
        collector.close()
    print_result({"deletions": sent}, f"{counted(sent, 'deletion')} sent to {endpoint}", as_json=as_json)


# Reading


def _of_shards(session: Session, shards: Sequence[int] | None, since: int, share: float = 1.0) -> list[FollowedShard]:
    chosen = session.shards(shards)
    log = log_of(session, READER, is_whole=True)
    return [FollowedShard(log, one, _since_ms(since), share=share) for one in chosen]


def _of_bucket(session: Session, bucket: str, since: int) -> list[FollowedShard]:
    volume, name = session.bucket_of(*bucket_path(bucket))
    found = session.metadata(volume).bucket(volume, name).object_id
    log: DatedLog = log_of(session, READER, is_whole=True)
    return [FollowedShard(log, session.volumes().shard_of(volume), _since_ms(since), bucket_id=found)]


def _since_ms(milliseconds: int) -> int:
    return max(0, int(time.time() * 1000) - milliseconds)


def _read_all(followed: Sequence[FollowedShard]) -> int:
    """Read each shard to its present end; return the number of ways that had to be given up."""
    return sum(len(one.read()) for one in followed)


def _rounds(collector: Collector, followed: Sequence[FollowedShard], quiet_ms: int) -> Iterator[int]:
    """Send what is over, or stands still, round by round until Ctrl-C; yield the number of deletions of each."""
    try:
        while True:
            for one in followed:
                ways = [*_tried(one.read), *one.over(_since_ms(quiet_ms))]
                while not _is_sent(collector, one, ways):
                    _pause()
                yield len(ways)
            _pause()
    except KeyboardInterrupt:
        return


def _tried(read: Callable[[], list[Way]]) -> list[Way]:
    try:
        return read()
    except RetryableError as error:
        say(f"tried again: {error}", err=True)
        return []


def _is_sent(collector: Collector, one: FollowedShard, ways: Sequence[Way]) -> bool:
    try:
        _send(collector, one, ways)
    except RetryableError as error:
        say(f"tried again: {error}", err=True)
        return False
    return True


def _send(collector: Collector, one: FollowedShard, ways: Sequence[Way]) -> int:
    from services.tracing.spans import spans_of  # noqa: PLC0415  of an extra that nothing else needs

    collector.send([span for way in ways for span in spans_of(one.shard, way)])
    return len(ways)


def _pause() -> None:
    threading.Event().wait(ROUND_SECONDS)


# What is wanted

Wanted = Callable[[Requests, Way], bool]


def _died_at(txn: int) -> Wanted:
    return lambda _, way: way.version.death == txn


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

    def is_wanted(requests: Requests, way: Way) -> bool:
        version = way.version
        if (version.object_id, version.death) in named:
            return True
        request = requests.at(version.death)
        if request is None or (request.volume, request.bucket) != (volume, bucket):
            return False
        if request.paths == (path,) and request.name != "DeleteDirectory":
            return requests.object_id(version.death) in (0, version.object_id)
        return any(path == one or path.startswith(f"{one}/") for one in request.paths)

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
