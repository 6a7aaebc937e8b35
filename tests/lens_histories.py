"""Random git histories for the lens, and what git lists of them."""

from __future__ import annotations

from pathlib import Path
from random import Random

from tests.git_builder import FILE, Revision, Tree, build_repository, listed_by_git


def random_repository(path: Path, random: Random, commits: int = 12) -> Path:
    """Make a repository whose files come, change, return to an earlier content and go; each third commit has a tag."""
    contents = [b"x" * random.randrange(1, 3_000) for _ in range(6)]
    tree: dict[bytes, bytes] = {}
    revisions = []
    for number in range(commits):
        for name in random.sample([b"a", b"b", b"d/c", b"d/e", b"d/f/g"], 3):
            tree.pop(name, None)
            if random.random() < 0.8:
                tree[name] = random.choice(contents)
        whole: Tree = {name: (FILE, content) for name, content in {b"kept": b"kept", **tree}.items()}
        revisions.append(Revision(whole, tag=None if number % 3 else f"v{number}"))
    return build_repository(path, revisions)


def sizes_in_git(repository: Path, commit: str) -> dict[tuple[str, str], int]:
    """Path and blob → size, as ``git ls-tree`` says."""
    return {(path, blob): size for path, (blob, size) in listed_by_git(repository, commit).items()}
