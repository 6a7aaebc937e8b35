"""``deepclean retention``: set, show and preview a bucket's retention policy, and run it now."""

from __future__ import annotations

from dataclasses import replace
from enum import StrEnum
from typing import Annotated, Any

import typer

from schemas.records import (
    ExecutionMode,
    ExpireSnapshots,
    RetentionPolicy,
    RetentionRow,
    SetRetention,
    UnsetRetention,
)
from services.cli.amounts import duration_ms
from services.cli.arguments import BucketArgument
from services.cli.confirmation import YesOption, confirm
from services.cli.output import print_fields, print_json, print_result
from services.cli.session import JsonOption, Session, bucket_path, request, session_of
from services.cli.space_lines import print_preview
from services.cli.terminal import say
from services.client.errors import PlaneError
from services.domain.words import counted
from services.wording.amounts import duration_text
from services.wording.figures import time_text
from services.wording.space import expiry_sentence

app = typer.Typer(
    no_args_is_help=True,
    help="Set the retention policy of a bucket, preview which snapshots would expire, and expire them.",
)
_DEFAULT = RetentionPolicy()
_FIGURES = ("num_retained_min", "num_retained_max", "time_retained_ms", "expire_limit", "consumer_expiration_ms")


class Mode(StrEnum):
    """Whether snapshots expire during the creation of a snapshot or after it."""

    SYNC = "sync"
    ASYNC = "async"


MinimumOption = Annotated[
    int | None, typer.Option("--num-retained-min", help="Never expire the newest N snapshots [10].")
]
MaximumOption = Annotated[
    int | None,
    typer.Option("--num-retained-max", help="Expire all but the newest N snapshots, whatever their age; 0: off [0]."),
]
AgeOption = Annotated[
    str | None, typer.Option("--time-retained", help="A snapshot may expire once the next one is older than this [1h].")
]
LimitOption = Annotated[
    int | None, typer.Option("--expire-limit", help="One run considers at most the N oldest snapshots [50].")
]
ForgetOption = Annotated[
    str | None,
    typer.Option(
        "--consumer-expiration", help="Remove consumers whose position has not been set for this long; 0: never [0]."
    ),
]


@app.command("set")
def set_policy(
    context: typer.Context,
    bucket: BucketArgument,
    num_retained_min: MinimumOption = None,
    num_retained_max: MaximumOption = None,
    time_retained: AgeOption = None,
    expire_limit: LimitOption = None,
    consumer_expiration: ForgetOption = None,
    mode: Annotated[
        Mode, typer.Option(help="sync: expire with each creation of a snapshot; async: after it.")
    ] = Mode.SYNC,
    snapshot_every: Annotated[
        str, typer.Option(help="Create a snapshot auto-TIME at the start of each such period; 0: none.")
    ] = "0",
    tag_every: Annotated[str, typer.Option(help="Tag the first snapshot of each such period; 0: none.")] = "0",
    tag_num_retained_max: Annotated[int, typer.Option(help="Keep at most N automatic tags; 0: all.")] = 0,
    tag_time_retained: Annotated[str, typer.Option(help="Lifetime of an automatic tag; 0: unlimited.")] = "0",
    is_confirmed: YesOption = False,
    as_json: JsonOption = False,
) -> None:
    """Set the bucket's policy, replacing the present one. Options that are left out get their defaults.

    If snapshots expire with its first run, which is a minute later, the command says which, and asks.
    """
    figures = _figures(_DEFAULT, num_retained_min, num_retained_max, time_retained, expire_limit, consumer_expiration)
    policy = replace(
        figures,
        execution_mode=ExecutionMode(mode.name),
        snapshot_every_ms=duration_ms(snapshot_every),
        tag_every_ms=duration_ms(tag_every),
        tag_num_retained_max=tag_num_retained_max,
        tag_time_retained_ms=duration_ms(tag_time_retained),
    )
    volume_name, bucket_name = bucket_path(bucket)
    with session_of(context) as session:
        found = session.metadata(volume_name).bucket(volume_name, bucket_name)  # raises for a missing bucket
        if not is_confirmed:
            plan = session.snapshots(volume_name).retention_preview(found.volume, found.bucket, policy=policy)
            if plan.expired:
                confirm(f"the first run, a minute from now, {expiry_sentence(plan)}.", is_confirmed=False)
        shard = session.volumes().shard_of(volume_name)
        session.request(shard, SetRetention(volume_name, bucket_name, policy))
    made = {"volume": volume_name, "bucket": bucket_name, "policy": policy}
    print_result(made, f"{bucket}: {_sentence(policy)}", as_json=as_json)


@app.command("unset")
def unset_policy(context: typer.Context, bucket: BucketArgument, as_json: JsonOption = False) -> None:
    """Remove a bucket's policy. Its snapshots no longer expire."""
    volume_name, bucket_name = bucket_path(bucket)
    request(context, volume_name, UnsetRetention(volume_name, bucket_name))
    left = {"volume": volume_name, "bucket": bucket_name, "policy": None}
    print_result(left, f"{bucket} has no retention policy any more", as_json=as_json)


@app.command()
def show(context: typer.Context, bucket: BucketArgument, as_json: JsonOption = False) -> None:
    """Show a bucket's policy and the result of its last run."""
    volume_name, bucket_name = bucket_path(bucket)
    with session_of(context) as session:
        row = session.snapshots(volume_name).retention(*session.bucket_of(volume_name, bucket_name))
    if as_json:
        print_json(row)
    else:
        print_fields(_fields(row))


@app.command()
def preview(
    context: typer.Context,
    bucket: BucketArgument,
    num_retained_min: MinimumOption = None,
    num_retained_max: MaximumOption = None,
    time_retained: AgeOption = None,
    expire_limit: LimitOption = None,
    consumer_expiration: ForgetOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show what a run would expire now, what that frees, and why each other snapshot stays. Nothing is changed.

    Options replace the values of the policy for this preview.
    """
    volume_name, bucket_name = bucket_path(bucket)
    given = (num_retained_min, num_retained_max, time_retained, expire_limit, consumer_expiration)
    with session_of(context) as session:
        found = session.metadata(volume_name).bucket(volume_name, bucket_name)  # raises for a missing bucket
        policy = None if given == (None,) * len(given) else _figures(_base(session, found.volume, found.bucket), *given)
        plan = session.snapshots(volume_name).retention_preview(found.volume, found.bucket, policy=policy)
    if as_json:
        print_json(plan)
    else:
        print_preview(plan)


@app.command()
def run(context: typer.Context, bucket: BucketArgument, as_json: JsonOption = False) -> None:
    """Apply the bucket's policy now. With mode sync the command waits until expired snapshots are dropped."""
    volume_name, bucket_name = bucket_path(bucket)
    outcome = request(context, volume_name, ExpireSnapshots(volume_name, bucket_name)).expired
    if as_json:
        print_json(outcome)
        return
    names = outcome.snapshots if outcome else ()
    say(f"expired: {', '.join(names)}" if names else "nothing expires now (deepclean retention preview says why)")
    if outcome and outcome.previous_failure:
        say(f"the run before had failed: {outcome.previous_failure}", err=True)


def _base(session: Session, volume: str, bucket: str) -> RetentionPolicy:
    """Return the bucket's policy, or the default policy if it has none."""
    try:
        return session.snapshots(volume).retention(volume, bucket).policy
    except PlaneError as error:
        if error.code != "RETENTION_NOT_FOUND":
            raise
        return _DEFAULT


def _figures(base: RetentionPolicy, *given: int | str | None) -> RetentionPolicy:
    """Return a policy with values from the command line, in the order of ``_FIGURES``; None keeps that of ``base``."""
    named: dict[str, Any] = {
        name: duration_ms(value) if isinstance(value, str) else value
        for name, value in zip(_FIGURES, given, strict=True)
        if value is not None
    }
    return replace(base, **named)


def _sentence(policy: RetentionPolicy) -> str:
    minimum, maximum = policy.num_retained_min, policy.num_retained_max
    newest = "the newest snapshot stays" if minimum == 1 else f"the newest {counted(minimum, 'snapshot')} stay"
    if maximum == minimum:
        return f"{newest}; all others expire with the next run"
    beyond = f"; with the next run, all beyond the newest {maximum}" if maximum else ""
    return (
        f"{newest}; others expire when the next snapshot is older than {duration_text(policy.time_retained_ms)}{beyond}"
    )


def _fields(row: RetentionRow) -> list[tuple[str, object]]:
    policy = row.policy
    return [
        ("bucket", f"{row.volume}/{row.bucket}"),
        ("minimum", policy.num_retained_min),
        ("maximum", policy.num_retained_max or "none"),
        ("time retained", duration_text(policy.time_retained_ms)),
        ("limit of a run", policy.expire_limit),
        ("mode", policy.execution_mode.lower()),
        ("consumers dropped after", _duration_or(policy.consumer_expiration_ms, "never")),
        ("snapshot every", _duration_or(policy.snapshot_every_ms, "no automatic snapshots")),
        ("tag every", _duration_or(policy.tag_every_ms, "no automatic tags")),
        ("automatic tags kept", policy.tag_num_retained_max or "all"),
        ("lifetime of automatic tags", _duration_or(policy.tag_time_retained_ms, "no end")),
        (
            "last run",
            f"{time_text(row.last_run_ms)}, {row.last_expired} expired" if row.last_run_ms >= 0 else "none yet",
        ),
        ("next run", time_text(row.next_run_ms)),
        ("failure", f"{time_text(row.failure_time_ms)}: {row.failure}" if row.failure else "none"),
    ]


def _duration_or(milliseconds: int, otherwise: str) -> str:
    return duration_text(milliseconds) if milliseconds else otherwise
