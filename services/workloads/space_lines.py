"""The lines with which a replay answers questions about space.

Every figure of a line is exact. While a deleted directory waits for its expansion some are not, so the plane is given
the time to settle, and asked again.
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
    """Asks one plane on behalf of a workload, whose names of snapshots may be others than the plane's."""

    plane_name: Callable[[str], str]
    workload_name: Callable[[str], str]
    settle: Callable[[], object]

    def answer(self, view: BucketView, operation: SpaceOperation) -> Line:
        """What a line says beside its number; raises PlaneError when the plane refuses."""
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
            # What is below a directory in a snapshot that is leaving would still be counted.
            is_leaving = bool(explanation.directories and snapshots.leaving_ids)
            is_exact = explanation.is_exact and not is_leaving
        return {"held_by": self._names(info.name for info in held.holders), "bytes": held.bytes}, is_exact

    def _names(self, names: Any) -> list[str]:
        return [self.workload_name(name) for name in names]
