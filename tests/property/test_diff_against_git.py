"""Git is the judge of diffs: every pair of thirty snapshots of a history, against ``git diff`` of their commits."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path
from random import Random

import pytest

from services.client.tasks.diffs import diff
from services.domain.snapshot_diff import DiffKind
from services.plane.in_memory.client import InMemoryClient
from services.plane.in_memory.plane import InMemoryPlane
from services.workloads.git_history import GitHistory
from services.workloads.judge.diff_check import ChangedKeys, flattened
from services.workloads.observing import list_everything
from services.workloads.replay import Replay
from tests.git_builder import FILE, build_repository, git

pytestmark = pytest.mark.long

SNAPSHOTS = 30
OWN = Path(__file__).parents[2]


def changed_in_git(path: Path, one: str, other: str) -> ChangedKeys:
    """What git says of two commits; a change of the mode alone, or of a submodule, has no content to compare."""
    found: dict[str, set[str]] = {"D": set(), "A": set(), "M": set()}
    raw = git(path, "diff", "--no-renames", "--raw", "--abbrev=40", "-z", one, other).split(b"\0")[:-1]
    for description, name in zip(raw[::2], raw[1::2], strict=True):
        old_mode, new_mode, old_blob, new_blob, status = description.decode().removeprefix(":").split()
        kept = {"D": [old_mode], "A": [new_mode]}.get(status, [old_mode, new_mode])
        if "160000" in kept or old_blob == new_blob:
            continue
        found["M" if status == "T" else status].add(name.decode())
    return ChangedKeys(frozenset(found["D"]), frozenset(found["A"]), frozenset(found["M"]))


def long_history(path: Path) -> Path:
    """A repository of 60 commits: files come, go, move and change, and whole directories with them."""
    random = Random(7)
    tree: dict[str, bytes] = {}
    trees = []
    for commit in range(60):
        for step in range(random.randrange(1, 6)):
            action = random.choice(["add", "add", "change", "delete", "move", "move directory", "delete directory"])
            name = (
                "/".join(random.choices(["app", "lib", "docs", "é"], k=random.randrange(1, 4)))
                + f"/f{random.randrange(9)}"
            )
            existing = random.choice(sorted(tree)) if tree else ""
            directory = existing.rpartition("/")[0]
            if action == "add" or not tree:
                tree[name] = b"".join(b"%d %d\n" % (line, random.randrange(9)) for line in range(12))
            elif action == "change":
                tree[existing] += b"commit %d step %d\n" % (commit, step)
            elif action == "delete":
                del tree[existing]
            elif action == "move":
                tree[name] = tree.pop(existing)
            else:
                inside = {key: tree.pop(key) for key in list(tree) if key.startswith(f"{directory}/")}
                if action == "move directory":
                    tree |= {f"moved-{commit}{key[len(directory) :]}": content for key, content in inside.items()}
        trees.append({key.encode(): (FILE, content) for key, content in tree.items()})
    return build_repository(path, trees)


def has_a_history(path: Path) -> bool:
    """Whether this is a clone with enough commits: not an archive, and not a shallow clone."""
    if not (path / ".git").exists():
        return False
    return int(git(path, "rev-list", "--first-parent", "--count", "HEAD")) >= SNAPSHOTS


@pytest.mark.parametrize("source", ["generated", "this repository"])
def test_every_pair_of_snapshots_differs_as_git_says(source: str, tmp_path: Path) -> None:
    if source != "generated" and not has_a_history(OWN):
        pytest.skip("this checkout has no history to speak of")
    path = long_history(tmp_path / "repository") if source == "generated" else OWN
    commits = int(git(path, "rev-list", "--first-parent", "--count", "HEAD"))
    history = GitHistory(path, every=max(1, commits // SNAPSHOTS))
    client = InMemoryClient(InMemoryPlane())
    lines = list(Replay(client).run(enumerate(history.operations())))
    assert lines == []  # nothing was refused
    reads = client.metadata(0)
    points = history.snapshots[-SNAPSHOTS:]
    assert len(points) >= SNAPSHOTS - 1
    ids = {
        point.name: client.snapshots(0).snapshot(history.volume, history.bucket, point.name).snapshot_id
        for point in points
    }
    listings = {
        name: {
            entry.path: entry.tag
            for entry in list_everything(client, 0, history.volume, history.bucket, snapshot_id)
            if not entry.is_directory
        }
        for name, snapshot_id in ids.items()
    }
    pairs = list(combinations(points, 2))
    kinds = set()
    for older, newer in [*pairs, *((newer, older) for older, newer in pairs[::7])]:
        entries = diff(
            reads, history.volume, history.bucket, from_snapshot_id=ids[older.name], to_snapshot_id=ids[newer.name]
        )
        kinds |= {entry.kind for entry in entries}
        expected = changed_in_git(path, older.commit, newer.commit)
        assert flattened(entries, listings[older.name], listings[newer.name]) == expected, (older, newer)
    assert kinds == set(DiffKind)
