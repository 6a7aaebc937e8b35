"""Faults of what was added to the workloads of chaos, found by a model that shares no rule with the services."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from schemas.records import BucketRow
from services.domain import retention
from services.domain.coming_back import Return
from services.domain.table_keys import bucket_id_key
from services.metadata.collecting import claims, collection_commands, undelete
from services.metadata.namespace import keys
from services.metadata.state.tables import BUCKET_ID_TABLE
from services.metadata.state.transaction import Transaction
from services.snapshots.retention import expiry
from tests.faults.fault import Fault

CAUGHT_BY = "tests/property/test_chaos_workloads.py::test_what_was_added_to_the_workloads_does_happen"


def expiry_passes_over_no_tag(patch: pytest.MonkeyPatch) -> None:
    """A snapshot that a tag holds expired."""
    decide = retention.decide_expiry
    patch.setattr(
        expiry,
        "decide_expiry",
        lambda policy, snapshots, consumers, _tags, now_ms: decide(policy, snapshots, consumers, (), now_ms),
    )


def an_undelete_does_not_ask_for_snapshots(patch: pytest.MonkeyPatch) -> None:
    """What a snapshot holds came back as itself though another one was taken since it died."""
    patch.setattr(undelete, "return_of_key", lambda *_arguments: Return.ITSELF)


def a_bulk_delete_stops_at_a_refusal(patch: pytest.MonkeyPatch) -> None:
    """Keys behind one that could not be deleted were left as well."""
    each: Callable[..., Iterator[Any]] = keys._each_removed

    def up_to_the_first_refusal(transaction: Transaction, bucket: BucketRow, names: Sequence[str]) -> Iterator[Any]:
        for taken in each(transaction, bucket, names):
            yield taken
            if isinstance(taken, str):
                return

    patch.setattr(keys, "_each_removed", up_to_the_first_refusal)


def a_deleted_bucket_is_not_collected(patch: pytest.MonkeyPatch) -> None:
    """What had died in a bucket waited for ever once the bucket was deleted."""
    is_suspended = collection_commands.is_suspended

    def or_deleted(transaction: Transaction, bucket_id: int) -> bool:
        identity = transaction.work.table(BUCKET_ID_TABLE).get(bucket_id_key(bucket_id))
        return is_suspended(transaction, bucket_id) or (identity is not None and identity.is_deleted)

    patch.setattr(claims, "is_suspended", or_deleted)


FAULTS = (
    Fault(expiry_passes_over_no_tag, CAUGHT_BY, r"differs from the model: \[\d+\]\.expired"),
    Fault(an_undelete_does_not_ask_for_snapshots, CAUGHT_BY, "differs from the model: "),
    Fault(a_bulk_delete_stops_at_a_refusal, CAUGHT_BY, "differs from the model: "),
    Fault(a_deleted_bucket_is_not_collected, CAUGHT_BY, "differs from the model: .*reclaimed"),
)
