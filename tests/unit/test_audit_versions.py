"""An audit of a bucket that keeps versions: each is found where it is, and a lost one is reported by its path."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from schemas.audit_report import FindingKind
from schemas.records import InventoryRow
from services.mock_scm.tables import INVENTORY_TABLE
from services.plane.in_memory.client import InMemoryClient
from services.plane.in_memory.plane import InMemoryPlane
from services.storage.tables import TablesReader
from streaming.audit import facts
from tests.audited_plane import audit_at_once, lose
from tests.unit.test_command_line import CommandLine

KEY = "vol1/tree/dir/k"


@pytest.fixture
def line(tmp_path: Path) -> CommandLine:
    """A key with three versions, the older two of them in a snapshot."""
    line = CommandLine(tmp_path, 1)
    line.client = InMemoryClient(InMemoryPlane())
    line.run("volume", "create", "vol1")
    line.run("bucket", "create", "vol1/tree")
    line.run("bucket", "versioning", "vol1/tree", "enabled")
    for size in (10, 20):
        line.run("key", "put", KEY, "--size", str(size))
    line.run("snapshot", "create", "vol1/tree", "snap")
    line.run("key", "put", KEY, "--size", "40")
    return line


def _versions(line: CommandLine) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = line.json("key", "versions", KEY)
    return rows


def _inventory(line: CommandLine) -> list[InventoryRow]:
    plane = line.client.plane
    return [row for _, row in TablesReader(plane.processes["mock_scm", 0].store).table(INVENTORY_TABLE).scan()]


def test_versions_are_where_they_are_whatever_becomes_of_them(line: CommandLine) -> None:
    newest, middle, oldest = (str(row["version"]) for row in _versions(line))
    steps = (
        ("key", "delete", KEY, "--version", middle),
        ("key", "rename", KEY, "dir/moved"),
        ("key", "delete", "vol1/tree/dir/moved", "--version", newest),
        ("key", "delete", "vol1/tree/dir/moved", "--version", oldest),
        ("snapshot", "delete", "--yes", "vol1/tree", "snap"),
    )
    for step in steps:
        line.run(*step)
        while line.client.plane.step():
            pass
        report = audit_at_once(line.client.plane)
        assert report.is_clean, (step, report.examples, report.differences)
    assert _inventory(line) == []


def test_a_lost_noncurrent_version_is_found_by_the_path_of_its_key(line: CommandLine) -> None:
    (lost,) = [row for row in _inventory(line) if row.blocks.size_bytes == 10]
    lose(line.client.plane.processes["mock_scm", 0].store, lost.blocks)
    (found,) = audit_at_once(line.client.plane).examples
    assert (found.kind, found.path, found.size_bytes) == (FindingKind.DANGLING, "dir/k", 10)


def test_without_the_versions_of_keys_the_audit_takes_their_blocks_for_orphans(
    line: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(facts, "_behind_the_first", lambda *_: iter(()))
    assert FindingKind.ORPHANED in audit_at_once(line.client.plane).findings
