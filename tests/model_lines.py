"""The lines that a replay must write for a workload, as the model has them."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from services.workloads.judge.model_bucket import OperationRefusedError, Version
from services.workloads.judge.namespace_model import NamespaceModel
from services.workloads.workload import Observe, Operation, has_quotas, has_replication, has_wide_observations


def lines_of(operations: Iterable[tuple[int, Operation]]) -> list[Any]:
    """All lines of a workload, as they are read back."""
    operations = list(operations)
    model = NamespaceModel(has_quotas=has_quotas(operations))
    wide, replicated = has_wide_observations(operations), has_replication(operations)
    lines = [
        line for one in operations for line in operation_lines(model, *one, is_wide=wide, has_replication=replicated)
    ]
    return list(json.loads(json.dumps(lines)))


def operation_lines(
    model: NamespaceModel,
    number: int,
    operation: Operation,
    *,
    is_wide: bool = False,
    has_replication: bool = False,
) -> list[dict[str, object]]:
    """Apply an operation and return its lines."""
    try:
        answer = model.apply(number, operation)
    except OperationRefusedError as refusal:
        return [{"op": number, "error": refusal.code}]
    if isinstance(operation, Observe):
        return [observe(model, number, operation.label, is_wide=is_wide, has_replication=has_replication)]
    return [{"op": number, **answer}] if answer else []


def reclaimed_versions(model: NamespaceModel) -> list[Version]:
    """All versions whose blocks a settled plane has deleted, in the order of their puts."""
    held = model.held_versions()
    return [one for one in model.versions.values() if one.size_bytes and one.number not in held]


def observe(
    model: NamespaceModel, number: int, label: str, *, is_wide: bool = False, has_replication: bool = False
) -> dict[str, object]:
    """What a settled plane shows."""
    buckets = {place: _observe_bucket(model, *place) for place in model._buckets}
    if is_wide:
        buckets = {place: seen | model.used(*place) | model.observe_steps(*place) for place, seen in buckets.items()}
    if has_replication:
        buckets = {place: seen | model.replicated(*place) for place, seen in buckets.items()}
    links = model.observe_links()
    return {
        "op": number,
        "label": label,
        "buckets": {f"{volume}/{bucket}": seen for (volume, bucket), seen in buckets.items()},
        "reclaimed": model.reclaimed(),
        **({"links": links} if links else {}),
    }


def _observe_bucket(model: NamespaceModel, volume: str, name: str) -> dict[str, object]:
    bucket = model._buckets[volume, name]
    views = {"active": bucket.view(), **bucket.snapshots}
    chain = list(bucket.snapshots)
    exclusive, referenced = model.exclusive_bytes(volume, name), model.referenced_bytes(volume, name)
    return {
        "layout": "FSO" if bucket.has_directories else "OBS",
        "chain": chain,
        "snapshots": {
            snapshot: {
                "previous": previous,
                "exclusive_bytes": exclusive[snapshot],
                "referenced_bytes": referenced[snapshot],
                "deep_cleaned_keys": True,
                "deep_cleaned_directories": True,
            }
            for previous, snapshot in zip([None, *chain], chain, strict=False)
        },
        "listing": {
            view_name: {path: {"tag": one.tag, "bytes": one.size_bytes} for path, one in view.keys.items()}
            for view_name, view in views.items()
        },
        "directories": (
            {view_name: list(view.directories) for view_name, view in views.items()} if bucket.has_directories else {}
        ),
        "unreclaimed_bytes": model.stored_bytes(volume, name),
    }
