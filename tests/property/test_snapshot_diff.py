"""The diff of two states equals a full comparison from the root down, and applied to the one it gives the other."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from services.domain.snapshot_diff import DiffEntry, DiffKind, NamespaceObject, difference, reachable

ROOT = 1
Rows = dict[int, NamespaceObject]


@dataclass
class Tree:
    """A namespace as metadata keeps it: rows by parent and name; what is below a deleted directory stays as rows."""

    random: Random
    is_flat: bool
    rows: Rows = field(default_factory=dict)
    txn: int = 100

    def step(self) -> None:
        self.txn += 1
        live = [one.row for one in reachable(self.rows.values(), ROOT)]
        action = self.random.choice(["make", "make", "put", "put", "delete", "rename", "rename", "expand"])
        if action == "make" and not self.is_flat:
            self._add(live, is_directory=True)
        elif action == "put":
            self._add(live, is_directory=False)
        elif action == "delete" and live:
            del self.rows[self.random.choice(live).object_id]
        elif action == "rename" and live:
            self._rename(self.random.choice(live), live)
        elif action == "expand":
            self.rows = {row.object_id: row for row in live}

    def _parent(self, live: list[NamespaceObject]) -> int:
        return self.random.choice([ROOT, *(row.object_id for row in live if row.is_directory)])

    def _at(self, live: list[NamespaceObject], parent_id: int, name: str) -> NamespaceObject | None:
        return next((row for row in live if (row.parent_id, row.name) == (parent_id, name)), None)

    def _add(self, live: list[NamespaceObject], *, is_directory: bool) -> None:
        parent_id, name = self._parent(live), self.random.choice("abc")
        there = self._at(live, parent_id, name)
        version = (0, 0) if is_directory else (self.txn, 1)
        if there is None:
            self.rows[self.txn] = NamespaceObject(self.txn, parent_id, name, is_directory, version)
        elif not is_directory and not there.is_directory:
            self.rows[there.object_id] = replace(there, version=version)

    def _rename(self, row: NamespaceObject, live: list[NamespaceObject]) -> None:
        parent_id, name = self._parent(live), self.random.choice("abc")
        above = parent_id
        while above != ROOT:  # nothing moves below itself
            if above == row.object_id:
                return
            above = self.rows[above].parent_id
        if self._at(live, parent_id, name) is None:
            self.rows[row.object_id] = replace(row, parent_id=parent_id, name=name)


def states(seed: int, *, is_flat: bool) -> tuple[Rows, Rows]:
    """Two states of one random history; the second may also be the older one."""
    random = Random(seed)
    tree = Tree(random, is_flat)
    for _ in range(random.randrange(30)):
        tree.step()
    first = dict(tree.rows)
    for _ in range(random.randrange(15)):
        tree.step()
    both = (first, dict(tree.rows))
    return both if random.random() < 0.7 else (both[1], both[0])


def from_the_root(rows: Rows) -> dict[int, tuple[NamespaceObject, str]]:
    """Objects with their paths, found by going down from the root level by level."""
    found: dict[int, tuple[NamespaceObject, str]] = {}
    level = {ROOT: ""}
    while level:
        children = {
            row.object_id: (row, level[row.parent_id] + row.name) for row in rows.values() if row.parent_id in level
        }
        found |= children
        level = {object_id: f"{path}/" for object_id, (row, path) in children.items() if row.is_directory}
    return found


def compared_in_full(before: Rows, after: Rows) -> list[tuple[str, ...]]:
    """The truth: every object of either state is looked at."""
    old, new = from_the_root(before), from_the_root(after)
    lines: list[tuple[str, ...]] = []
    for object_id in old.keys() | new.keys():
        was, now = old.get(object_id), new.get(object_id)
        if now is None:
            assert was
            lines.append(("0-", was[1]))
        elif was is None:
            lines.append(("2+", now[1]))
        else:
            if (was[0].parent_id, was[0].name) != (now[0].parent_id, now[0].name):
                lines.append(("1R", was[1], now[1]))
            if was[0].version != now[0].version:
                lines.append(("3M", now[1]))
    return [(line[0][1], *line[1:]) for line in sorted(lines)]


def as_lines(entries: Iterable[DiffEntry]) -> list[tuple[str, ...]]:
    return [
        (entry.kind.value, entry.old_path, entry.path)
        if entry.kind is DiffKind.RENAMED
        else (entry.kind.value, entry.path)
        for entry in entries
    ]


@given(st.integers(0, 2**32), st.booleans())
def test_the_diff_equals_a_full_comparison(seed: int, is_flat: bool) -> None:
    before, after = states(seed, is_flat=is_flat)
    entries = difference(reachable(before.values(), ROOT), reachable(after.values(), ROOT))
    assert as_lines(entries) == compared_in_full(before, after)


@given(st.integers(0, 2**32))
def test_what_is_the_same_on_both_sides_may_be_left_out(seed: int) -> None:
    before, after = states(seed, is_flat=False)
    old, new = list(reachable(before.values(), ROOT)), list(reachable(after.values(), ROOT))
    same = {one.row for one in old} & {one.row for one in new}
    left_out = difference((one for one in old if one.row not in same), (one for one in new if one.row not in same))
    assert left_out == difference(old, new)


class Model:
    """A namespace of paths, to which a person applies a diff: directories move with all that is in them."""

    def __init__(self, rows: Rows) -> None:
        self.nodes = {
            path: (row.object_id, row.is_directory, row.version) for row, path in from_the_root(rows).values()
        }

    def apply(self, entries: list[DiffEntry], after: Rows) -> None:
        truth = {path: row for row, path in from_the_root(after).values()}
        moving = [entry for entry in entries if entry.kind is DiffKind.RENAMED]
        for entry in entries:
            if entry.kind is DiffKind.DELETED:
                del self.nodes[entry.path]
        # Deepest first, so that what leaves a directory does so before the directory itself moves.
        taken = {}
        for entry in sorted(moving, key=lambda one: one.old_path.count("/"), reverse=True):
            taken[entry] = self._take(entry.old_path)
        arriving = [entry for entry in entries if entry.kind in (DiffKind.CREATED, DiffKind.RENAMED)]
        for entry in sorted(arriving, key=lambda one: one.path.count("/")):
            assert entry.path not in self.nodes, f"{entry.path} is taken"
            if entry.kind is DiffKind.CREATED:
                row = truth[entry.path]
                self.nodes[entry.path] = (row.object_id, row.is_directory, row.version)
            else:
                self.nodes |= {entry.path + below: node for below, node in taken[entry].items()}
        for entry in entries:
            if entry.kind is DiffKind.MODIFIED:
                object_id, is_directory, _ = self.nodes[entry.path]
                self.nodes[entry.path] = (object_id, is_directory, truth[entry.path].version)

    def _take(self, path: str) -> dict[str, tuple[int, bool, tuple[int, int]]]:
        below = {key: node for key, node in self.nodes.items() if key == path or key.startswith(f"{path}/")}
        for key in below:
            del self.nodes[key]
        return {key[len(path) :]: node for key, node in below.items()}


@given(st.integers(0, 2**32))
def test_a_diff_that_is_applied_gives_the_other_state(seed: int) -> None:
    """Nothing is missing: whoever has one state and the diff has the other one."""
    before, after = states(seed, is_flat=False)
    entries = difference(reachable(before.values(), ROOT), reachable(after.values(), ROOT))
    model = Model(before)
    model.apply(entries, after)
    assert model.nodes == Model(after).nodes
