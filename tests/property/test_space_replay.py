"""What a replay answers about space equals a recount by sets, on random workloads that never wait for anything."""

from __future__ import annotations

from collections.abc import Set
from itertools import combinations
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from schemas.records import BucketLayout
from services.plane.in_memory.client import InMemoryClient
from services.plane.in_memory.plane import InMemoryPlane
from services.workloads import workload
from services.workloads.judge.model_bucket import OperationRefusedError
from services.workloads.judge.namespace_model import NamespaceModel
from services.workloads.replay import Replay

PLACE = ("v", "b")
PATHS = ("x", "d/x", "d/y", "d/e/x", "f/x")
SNAPSHOTS = ("s1", "s2", "s3", "s4")
SIZES = (0, 1, 100, 3_000)

_paths, _names = st.sampled_from(PATHS), st.sampled_from(SNAPSHOTS)
_changes = st.one_of(
    st.builds(lambda path, size: workload.PutKey(*PLACE, path, size, "t"), _paths, st.sampled_from(SIZES)),
    st.builds(lambda path: workload.DeleteKey(*PLACE, path), _paths),
    st.builds(lambda path: workload.DeleteDirectory(*PLACE, path), st.sampled_from(["d", "d/e", "f"])),
    st.builds(lambda name: workload.CreateSnapshot(*PLACE, name), _names),
    st.builds(lambda name: workload.DeleteSnapshot(*PLACE, name), _names),
)
_renames = st.one_of(
    st.builds(lambda a, b: workload.RenameKey(*PLACE, a, b), _paths, _paths).filter(
        lambda op: op.from_key != op.to_key
    ),
    st.just(workload.RenameDirectory(*PLACE, "d", "f/d")),
)
_questions = st.one_of(
    st.builds(lambda names: workload.WhatIf(*PLACE, tuple(names)), st.lists(_names, unique=True, max_size=3)),
    st.builds(lambda size: workload.Plan(*PLACE, size), st.sampled_from([0, 1, 101, 3_000, 10_000])),
    st.builds(lambda path: workload.Explain(*PLACE, path=path), st.sampled_from([*PATHS, "d", "d/e"])),
    st.builds(lambda name: workload.Explain(*PLACE, snapshot=name), _names),
)


class Recount:
    """The answers by sets of versions."""

    def __init__(self, model: NamespaceModel, *, is_tree: bool) -> None:
        self._views = {name: view.keys for name, view in model.snapshots(*PLACE).items()}
        self._directories = {name: set(view.directories) for name, view in model.snapshots(*PLACE).items()}
        self._is_tree = is_tree
        self._active = model.active(*PLACE).keys
        self._sizes = {version.number: version.size_bytes for version in model.versions.values()}
        self._held = {name: {version.number for version in keys.values()} for name, keys in self._views.items()}

    def bytes_of(self, numbers: set[int]) -> int:
        return sum(self._sizes[number] for number in numbers)

    def freed(self, names: tuple[str, ...]) -> set[int]:
        others = {version.number for version in self._active.values()}
        others = others.union(*(held for name, held in self._held.items() if name not in names))
        dropped = set[int]().union(*(self._held[name] for name in names))
        return {number for number in dropped - others if self._sizes[number]}

    def answer(self, operation: Any) -> dict[str, Any]:
        named = getattr(operation, "snapshots", ()) or tuple(filter(None, [getattr(operation, "snapshot", "")]))
        if any(name not in self._views for name in named):
            return {"error": "FILE_NOT_FOUND"}
        match operation:
            case workload.WhatIf():
                freed = self.freed(operation.snapshots)
                return {"freed_bytes": self.bytes_of(freed), "freed_versions": len(freed)}
            case workload.Plan():
                return self.plan(operation.free_bytes)
            case workload.Explain(snapshot=""):
                below = f"{operation.path}/" if self._is_tree else None
                numbers = {
                    version.number
                    for keys in (self._active, *self._views.values())
                    for path, version in keys.items()
                    if path == operation.path or (below and path.startswith(below))
                }
                return self.explain(numbers, "", self._holding_directory(operation.path))
            case _:
                return self.explain(self._held[operation.snapshot], operation.snapshot)

    def plan(self, free_bytes: int) -> dict[str, Any]:
        names = tuple(self._views)
        wanted = min(free_bytes, self.bytes_of(self.freed(names)))
        for count in range(len(names) + 1):
            for chosen in combinations(names, count):
                if self.bytes_of(self.freed(chosen)) >= wanted:
                    return {"snapshots": list(chosen), "freed_bytes": self.bytes_of(self.freed(chosen))}
        raise AssertionError(names)

    def _holding_directory(self, path: str) -> set[str]:
        return {name for name, directories in self._directories.items() if path in directories}

    def explain(self, numbers: set[int], snapshot: str, others: Set[str] = frozenset()) -> dict[str, Any]:
        """A snapshot shares what has bytes; a path may be a version of none, or a directory."""
        shared = {number for number in numbers if self._sizes[number]} if snapshot else numbers
        held_by = [name for name, held in self._held.items() if name in {snapshot, *others} or held & shared]
        return {"held_by": held_by, "bytes": self.bytes_of(numbers)}


def play(operations: list[Any], layout: BucketLayout) -> list[tuple[Any, dict[str, Any], dict[str, Any]]]:
    """Questions with what the plane answered and what a recount gives."""
    model, replay = NamespaceModel(), Replay(InMemoryClient(InMemoryPlane()))
    asked = []
    removed: set[str] = set()
    start = [workload.CreateVolume("v"), workload.CreateBucket(*PLACE, layout)]
    for number, operation in enumerate([*start, *operations]):
        if isinstance(operation, workload.CreateSnapshot) and operation.snapshot in removed:
            replay.settle()  # a name is free again after the purge
        if isinstance(operation, workload.DeleteSnapshot):
            removed.add(operation.snapshot)
        expected: dict[str, Any] = {}
        try:
            model.apply(number, operation)
        except OperationRefusedError as refusal:
            expected = {"error": refusal.code}
        lines = [*replay.execute(number, operation), *replay.collect()]
        if isinstance(operation, workload.WhatIf | workload.Plan | workload.Explain):
            (line,) = lines
            assert line.pop("op") == number
            asked.append(
                (
                    operation,
                    line,
                    Recount(model, is_tree=layout is BucketLayout.FILE_SYSTEM_OPTIMIZED).answer(operation),
                )
            )
        else:
            assert lines == ([{"op": number, **expected}] if expected else [])
    return asked


@given(st.lists(st.one_of(_changes, _changes, _questions), max_size=40), st.sampled_from(["FSO", "OBS"]))
@settings(max_examples=150, deadline=None)
def test_answers_equal_a_recount_by_sets(operations: list[Any], layout: str) -> None:
    tree = layout == "FSO"
    if not tree:
        operations = [op for op in operations if not isinstance(op, workload.DeleteDirectory)]
    played = play(operations, BucketLayout.FILE_SYSTEM_OPTIMIZED if tree else BucketLayout.OBJECT_STORE)
    for operation, found, expected in played:
        assert found == expected, operation


@given(st.lists(st.one_of(_changes, _renames, _questions), max_size=40))
@settings(max_examples=150, deadline=None)
def test_renames_do_not_matter_to_what_is_freed(operations: list[Any]) -> None:
    """A path that something was renamed to tells more than its name would: the snapshots that hold it elsewhere."""
    for operation, found, expected in play(operations, BucketLayout.FILE_SYSTEM_OPTIMIZED):
        if isinstance(operation, workload.Explain) and operation.path:
            assert set(found["held_by"]) >= set(expected["held_by"])
            assert found["bytes"] >= expected["bytes"]
        else:
            assert found == expected, operation
