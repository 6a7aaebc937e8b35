"""The output lines for the space operations of a workload.

Every figure of a line is exact. While a deleted directory waits for its expansion the plane's answer is not exact: the
plane is then settled and asked again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from services.client.tasks.space_view import BucketView, NamedSnapshots, held_by_path, held_by_snapshot
from services.workloads import workload

SpaceOperation = workload.WhatIf | workload.Plan | workload.Explain
Line = dict[str, Any]


@dataclass(frozen=True, slots=True)
class SpaceLines:
    """Sends a workload's space queries to a plane, converting snapshot names in both directions."""

    plane_name: Callable[[str], str]
    workload_name: Callable[[str], str]
    settle: Callable[[], object]

    def answer(self, view: BucketView, operation: SpaceOperation) -> Line:
        """Return the fields of a line apart from its number; raise PlaneError when the plane refuses the query."""
        line, is_exact = self._ask(view, operation)
        if not is_exact:
            self.settle()
            line, _ = self._ask(view, operation)
        return line

    def _ask(self, view: BucketView, operation: SpaceOperation) -> tuple[Line, bool]:
        snapshots = view.snapshots()
        match operation:
            case workload.WhatIf():
                freed = view.what_if(snapshots, map(self.plane_name, operation.snapshots))
                return {"freed_bytes": freed.freed_bytes, "freed_versions": freed.freed_versions}, freed.is_exact
            case workload.Plan():
                plan = view.plan(snapshots, operation.free_bytes)
                names = self._names(snapshots.names_of(plan.snapshot_ids))
                return {"snapshots": names, "freed_bytes": plan.freed_bytes}, plan.is_exact
            case workload.Explain():
                return self._explain(view, snapshots, operation)

    def _explain(self, view: BucketView, snapshots: NamedSnapshots, operation: workload.Explain) -> tuple[Line, bool]:
        if operation.snapshot:
            (snapshot_id,) = snapshots.ids_of([self.plane_name(operation.snapshot)])
            spaces = view.spaces()
            held = held_by_snapshot(snapshots, spaces, snapshot_id)
            is_exact = all(space.is_referenced_exact and space.is_exclusive_exact for space in spaces.snapshots)
        else:
            explanation = view.path(operation.path)
            held = held_by_path(snapshots, explanation)
            # A snapshot that is being deleted still counts towards the bytes below a directory.
            is_leaving = bool(explanation.directories and snapshots.leaving_ids)
            is_exact = explanation.is_exact and not is_leaving
        return {"held_by": self._names(info.name for info in held.holders), "bytes": held.bytes}, is_exact

    def _names(self, names: Any) -> list[str]:
        return [self.workload_name(name) for name in names]
