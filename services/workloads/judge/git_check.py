"""Expected listings from git: a view must list the files that ``git ls-tree`` lists."""

from collections.abc import Iterable

from services.workloads.git_command import GitRepository, key_of
from services.workloads.judge.outcome_check import ListedKey, Listing, Truth
from services.workloads.source import SnapshotPoint


def git_truth(
    repository: GitRepository,
    snapshots: Iterable[SnapshotPoint],
    last_commit: str,
    removed_directory: str | None = None,
) -> Truth:
    """Return the truth of a replayed history. The active namespace lacks the directory deleted at the end."""
    commits = {point.name: point.commit for point in snapshots}

    def truth(name: str) -> Listing:
        tree = ((key_of(file.path), file) for file in repository.tree(commits[name] if name else last_commit))
        return {
            key: ListedKey(file.blob, file.size_bytes)
            for key, file in tree
            if key is not None and (name or removed_directory is None or not key.startswith(f"{removed_directory}/"))
        }

    return truth
