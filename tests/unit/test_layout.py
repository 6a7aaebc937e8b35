"""Imports point one way, without circles, and every module says what it is for."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = ("bench", "deepclean", "schemas", "services", "streaming")
MODULES = sorted(path for folder in PACKAGES for path in (ROOT / folder).rglob("*.py"))
SERVICES = ("metadata", "snapshots", "key_deletion", "directory_deletion", "mock_scm", "datanode")
PURE_MODULES = {
    "__future__", "bisect", "collections", "dataclasses", "enum", "functools", "heapq", "itertools", "math",
    "operator", "re", "typing",
}  # fmt: skip
"""What the rules may use of the standard library: nothing that has a clock, a random source or IO."""
BASE = ("schemas", "services.domain")
SHARED = (*BASE, "services.storage", "services.log", "services.runtime")
CLIENT = (*BASE, "services.log", "services.client")
WORDING = (*CLIENT, "services.wording")
CLI = (
    *WORDING,
    *(
        f"services.cli.{name}"
        for name in (
            *("amounts", "arguments", "bucket_view", "collection_lines", "confirmation", "exit_status", "output"),
            *("holders", "progress", "session", "space_lines", "terminal"),
        )
    ),
)
WORK = tuple(f"services.workloads.{name}" for name in ("git_command", "source", "workload"))
ALLOWED = {
    "bench": ("bench", "deepclean", "schemas", "services", "streaming"),
    "deepclean": (*CLIENT, "deepclean", "services.plane.stack.stack.running_client"),
    "services.cli.lens": (
        *CLI,
        "services.cli.lens",
        "services.lens",
        "services.page.assets",
        "services.page.picture",
        "services.plane.machine.spark_jobs",
        "services.workloads.git_command",
    ),
    "services.cli.store": (*CLI, "services.cli.store"),
    "services.cli.collection": (*CLI, "services.cli.collection"),
    "services.cli.operate": (
        *CLI,
        "services.cli.operate",
        "services.page",
        "services.plane",
        "services.tracing",
        "services.verifier",
    ),
    "services.cli.workloads": (*CLI, "services.cli.workloads", "services.plane", "services.workloads"),
    "services.cli": ("schemas", "services"),
    "services.page": (*WORDING, "services.page", "services.plane", "services.runtime.http"),
    "services.wording": WORDING,
    "services.plane": ("schemas", "services", "streaming"),
    "services.workloads.judge": (*BASE, *WORK, "services.workloads.judge"),
    "services.workloads": (*CLIENT, "services.workloads"),
    **{f"services.{service}": (*SHARED, f"services.{service}") for service in SERVICES},
    "services.lens": (*BASE, "services.lens"),
    "services.runtime": SHARED,
    "services.tracing": (*BASE, "services.log", "services.tracing"),
    "services.verifier": (*BASE, "services.log", "services.verifier"),
    "services.client": CLIENT,
    "services.log": (*BASE, "services.log"),
    "services.storage": (*BASE, "services.storage"),
    "streaming.verify": (*BASE, "services.log", "services.verifier", "streaming"),
    "streaming.lens": (*BASE, *WORK, "services.workloads.git_history", "services.lens", "streaming"),
    "streaming": (*BASE, "services.log", "streaming"),
    "services.domain": ("schemas.error_codes", "schemas.records", "services.domain"),
    "schemas": ("schemas",),
}
"""By the beginning of a module's name, the first that fits, what it may import of the project. Only the plane, which
puts the services together, and the door of the command may import all services."""
ROOMS = {
    "services.metadata": ("state", "namespace", "collecting", "checkpoints", "reads", "diffs", "recovery"),
    "services.snapshots": ("state", "lifecycle", "retention", "reads"),
    "services.runtime": ("loop", "http", "copies", "parts", "process"),
    "services.plane": ("machine", "broker", "stack", "upkeep", "in_memory"),
    "services.client": ("wire", "tasks"),
    "streaming": (
        "spark",
        "rocksdb",
        "reclaiming",
        "audit",
        "diff",
        "ledger_export",
        "tables",
        "verify",
        "lens",
        "submit",
    ),
}
"""Rooms of a package, lowest first: a module imports from its own room and from those before it."""


def _name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


NAMES = frozenset(map(_name, MODULES))


@cache
def _imports(path: Path) -> frozenset[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return frozenset(found)


def _is_in(module: str, place: str) -> bool:
    return f"{module}.".startswith(f"{place}.")


def _allowed(module: str) -> tuple[str, ...]:
    return next((allowed for start, allowed in ALLOWED.items() if _is_in(module, start)), ())


def _module_of(imported: str) -> str:
    """The module of the project from which a name is imported; empty when it is from elsewhere."""
    while imported and imported not in NAMES:
        imported = imported.rpartition(".")[0]
    return imported


def _circle(graph: Mapping[str, Iterable[str]]) -> list[str]:
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


@pytest.mark.parametrize("path", MODULES, ids=_name)
def test_imports_point_one_way(path: Path) -> None:
    ours = {name for name in _imports(path) if name.split(".")[0] in (*PACKAGES, "tests")}
    allowed = _allowed(_name(path))
    wrong = sorted(name for name in ours if not any(_is_in(name, one) for one in allowed))
    assert not wrong, f"{_name(path)} may import {allowed} only"


@pytest.mark.parametrize("package", ROOMS)
def test_rooms_lie_one_above_the_other(package: str) -> None:
    rooms = [f"{package}.{room}" for room in ROOMS[package]]
    folders = {_name(path) for path in (ROOT / package.replace(".", "/")).glob("*/__init__.py")}
    assert folders == set(rooms), "name each room, and where it lies"
    for path in MODULES:
        height = next((number for number, room in enumerate(rooms) if _is_in(_name(path), room)), len(rooms))
        above = sorted(name for name in _imports(path) if any(_is_in(name, room) for room in rooms[height + 1 :]))
        assert not above, f"{_name(path)} imports what lies above it"


def test_modules_import_in_no_circle() -> None:
    graph = {_name(path): {_module_of(name) for name in _imports(path)} - {"", _name(path)} for path in MODULES}
    assert "services.domain.errors" in graph["services.storage.store"], "imports were not followed"
    assert _circle(graph) == []


@pytest.mark.parametrize("path", [p for p in MODULES if _name(p).startswith("services.domain")], ids=_name)
def test_rules_are_pure(path: Path) -> None:
    others = {name.split(".")[0] for name in _imports(path)} - {"schemas", "services"}
    assert others <= PURE_MODULES


@pytest.mark.parametrize("path", MODULES, ids=_name)
def test_a_module_says_what_it_is_for(path: Path) -> None:
    assert ast.get_docstring(ast.parse(path.read_text("utf-8")))
