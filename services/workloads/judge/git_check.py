"""Expected listings from git: a view must list the files that ``git ls-tree`` lists."""

from collections.abc import Iterable

from services.workloads.git_command import GitRepository, key_of
from services.workloads.judge.outcome_check import ListedKey, Listing
from services.workloads.source import SnapshotPoint


class GitTruth:
    """The expected listings of a replayed history. The active namespace lacks the directory deleted at the end."""

    def __init__(
        self,
        repository: GitRepository,
        snapshots: Iterable[SnapshotPoint],
        last_commit: str,
        removed_directory: str | None = None,
    ) -> None:
        self._repository = repository
        self._commits = {point.name: point.commit for point in snapshots}
        self._last_commit = last_commit
        self._removed_prefix = None if removed_directory is None else f"{removed_directory}/"
        self.skipped_paths_count = 0

    def snapshot(self, name: str) -> Listing:
        """Return the expected listing of a snapshot."""
        return self._tree(self._commits[name])

    def active(self) -> Listing:
        """Return the expected listing of the active namespace."""
        tree = self._tree(self._last_commit)
        if self._removed_prefix is None:
            return tree
        return {path: key for path, key in tree.items() if not path.startswith(self._removed_prefix)}

    def _tree(self, commit: str) -> dict[str, ListedKey]:
        listing: dict[str, ListedKey] = {}
        for file in self._repository.tree(commit):
            key = key_of(file.path)
            if key is None:
                self.skipped_paths_count += 1
            else:
                listing[key] = ListedKey(file.blob, file.size_bytes)
        return listing
