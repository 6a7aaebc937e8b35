"""A diff of two states of a bucket as a tree of directories, in which each directory counts what changed below it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from services.domain.snapshot_diff import DiffEntry, DiffKind

MOST_ENTRIES = 5_000
"""Most differences in one tree: a browser shows no more without delay."""


@dataclass(slots=True)
class DiffNode:
    """A directory or key of the tree."""

    name: str
    marks: list[tuple[str, str]] = field(default_factory=list)
    """What happened to itself: the kind in words, and for a renamed one the former path."""
    below: Counter[DiffKind] = field(default_factory=Counter)
    """How many differences lie below it, by kind."""
    children: dict[str, DiffNode] = field(default_factory=dict)


def diff_tree(entries: Iterable[DiffEntry]) -> DiffNode:
    """Return the root of the tree of some differences. A renamed object stands where it is now."""
    root = DiffNode("")
    for entry in entries:
        node = root
        for name in entry.path.strip("/").split("/"):
            node.below[entry.kind] += 1
            node = node.children.setdefault(name, DiffNode(name))
        node.marks.append((entry.kind.name.lower(), entry.old_path))
    return root


def counts_text(counts: Counter[DiffKind]) -> str:
    """Return numbers of differences by kind as text, in the order of a diff."""
    return ", ".join(f"{counts[kind]:,} {kind.name.lower()}" for kind in DiffKind if counts[kind])


def tree_rows(root: DiffNode) -> list[dict[str, Any]]:
    """Return the nodes below a root, each before what is below it, by name, with its depth from 0.

    They are a list, since a path may be deeper than what a JSON encoder follows.
    """
    rows: list[dict[str, Any]] = []
    waiting = [(child, 0) for child in _reversed_children(root)]
    while waiting:
        node, depth = waiting.pop()
        rows.append(
            {
                "depth": depth,
                "name": node.name,
                "marks": [{"kind": kind, "from": old} for kind, old in node.marks],
                "below": counts_text(node.below),
            }
        )
        waiting += [(child, depth + 1) for child in _reversed_children(node)]
    return rows


def _reversed_children(node: DiffNode) -> list[DiffNode]:
    return [node.children[name] for name in sorted(node.children, reverse=True)]
