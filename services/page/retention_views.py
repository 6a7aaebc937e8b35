"""What the page shows of retention: the bucket's policy, and what a run by it, or by another policy, would do now."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from schemas.answers import ExpiringSnapshot, RetainedSnapshot
from schemas.records import RetentionPolicy
from services.client.errors import PlaneError
from services.client.tasks.space_view import BucketView
from services.domain.words import counted
from services.wording.amounts import AmountError, duration_ms, duration_text
from services.wording.figures import amount_in_words, time_text
from services.wording.space import reasons_text

NUMBERS = ("num_retained_min", "num_retained_max", "expire_limit")
MOST_DIGITS = 18
TIMES = ("time_retained_ms", "consumer_expiration_ms")


def retention_answer(view: BucketView, asked: Mapping[str, str]) -> dict[str, Any]:
    """Return the policy and the preview of a run now; ``asked`` replaces values of the policy for this preview.

    Raises:
        PlaneError: BUCKET_NOT_FOUND; INVALID_REQUEST for a policy that breaks a rule.
        AmountError: a duration or a number that cannot be read.
    """
    view.plane.metadata(view.shard).bucket(view.volume, view.bucket)
    reads = view.plane.snapshots(view.shard)
    row = None
    try:
        row = reads.retention(view.volume, view.bucket)
    except PlaneError as error:
        if error.code != "RETENTION_NOT_FOUND":
            raise
    tried = _changed(row.policy if row else RetentionPolicy(), asked)
    plan = reads.retention_preview(view.volume, view.bucket, policy=tried)
    amount = amount_in_words(plan.freed_bytes, plan.freed_versions, plan.freed_replicated_bytes)
    listed: list[ExpiringSnapshot | RetainedSnapshot] = [*plan.expired, *plan.kept]
    return {
        "has_policy": row is not None,
        "is_changed": row is None or tried != row.policy,
        "last_run": f"{time_text(row.last_run_ms)}, {row.last_expired} expired" if row and row.last_run_ms >= 0 else "",
        "next_run": time_text(row.next_run_ms) if row else "",
        "failure": row.failure if row else "",
        "policy": {name: getattr(tried, name) for name in NUMBERS}
        | {name.removesuffix("_ms"): duration_text(getattr(tried, name)) for name in TIMES},
        "sentence": f"{counted(len(plan.expired), 'snapshot')} would expire; that frees "
        f"{'' if plan.is_exact else 'about '}{amount}.",
        "freed_bytes": plan.freed_bytes,
        "expired": [one.snapshot for one in plan.expired],
        "leaving": [
            *(f"consumer {one}" for one in plan.dropped_consumers),
            *(f"tag {one}" for one in plan.dropped_tags),
        ],
        "snapshots": [_line(one) for one in sorted(listed, key=lambda one: one.create_txn)],
    }


def _changed(policy: RetentionPolicy, asked: Mapping[str, str]) -> RetentionPolicy:
    values: dict[str, Any] = {name: _whole(asked[name]) for name in NUMBERS if asked.get(name)}
    for name in TIMES:
        text = asked.get(name.removesuffix("_ms"))
        if text:
            values[name] = duration_ms(text)
    return replace(policy, **values)


def _whole(text: str) -> int:
    if not (text.isascii() and text.isdigit()) or len(text) > MOST_DIGITS:
        raise AmountError(f"{text[:MOST_DIGITS]!r} is not a whole number")
    return int(text)


def _line(one: ExpiringSnapshot | RetainedSnapshot) -> dict[str, str]:
    stays = isinstance(one, RetainedSnapshot)
    return {
        "name": one.snapshot,
        "created": time_text(one.creation_time_ms),
        "outcome": "stays" if stays else "expires",
        "why": reasons_text(one.reasons) if isinstance(one, RetainedSnapshot) else "",
    }
