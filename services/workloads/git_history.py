"""Convert the first-parent history of a git repository into a workload for a bucket with directories."""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from schemas.records import BucketLayout
from services.workloads.git_command import BlobSizes, Change, Commit, GitError, GitRepository, key_of
from services.workloads.source import SnapshotPoint
from services.workloads.workload import (
    CreateBucket,
    CreateSnapshot,
    CreateVolume,
    DeleteDirectory,
    DeleteKey,
    MakeDirectory,
    Operation,
    PutKey,
    RenameKey,
)

_MOST_SNAPSHOTS_COUNT: Final = 40
_LONGEST_SNAPSHOT_NAME: Final = 63


def choose_interval(commit_count: int) -> int:
    """Return the default number of commits per snapshot: 20 to 40 snapshots result, fewer for a short history."""
    return max(1, -(-commit_count // _MOST_SNAPSHOTS_COUNT))


@dataclass(slots=True)
class _Directory:
    children: dict[str, "_Directory | None"] = field(default_factory=dict)  # None: a file
    file_count: int = 0  # in the whole tree below


class _KnownTree:
    """The plane's current tree, used to find entries that block a path and directories that became empty."""

    def __init__(self) -> None:
        self._root = _Directory()

    def add_file(self, key: str) -> None:
        above = self._above(key)
        for directory in above:
            directory.file_count += 1
        above[-1].children[key.rpartition("/")[2]] = None

    def remove_file(self, key: str) -> None:
        above = self._above(key)
        for directory in above:
            directory.file_count -= 1
        del above[-1].children[key.rpartition("/")[2]]

    def has_file(self, key: str) -> bool:
        parent, _, name = key.rpartition("/")
        directory = self.directory(parent)
        return directory is not None and name in directory.children and directory.children[name] is None

    def directory(self, path: str) -> _Directory | None:
        """Return the directory at a path, the root for an empty path."""
        directory = self._root
        for part in path.split("/") if path else ():
            child = directory.children.get(part)
            if child is None:
                return None
            directory = child
        return directory

    def is_free(self, key: str) -> bool:
        """Return whether a file can be created at ``key``, at most after removing a directory without files there."""
        directory = self._root
        for part in key.split("/"):
            if part not in directory.children:
                return True
            child = directory.children[part]
            if child is None:
                return False
            directory = child
        return directory.file_count == 0

    def remove_empty_directory(self, key: str) -> str | None:
        """Remove and return the topmost empty directory among ``key`` and its parents, or return None."""
        directory = self._root
        parts = key.split("/")
        for depth, part in enumerate(parts, start=1):
            child = directory.children.get(part)
            if child is None:
                return None
            if child.file_count == 0:
                del directory.children[part]
                return "/".join(parts[:depth])
            directory = child
        return None

    def remove_directory(self, path: str) -> bool:
        """Remove the directory at exactly this path; return whether there was one."""
        parent_path, _, name = path.rpartition("/")
        parent = self.directory(parent_path)
        if parent is None or parent.children.get(name) is None:
            return False
        del parent.children[name]
        return True

    def _above(self, key: str) -> list[_Directory]:
        """Return the directories above a file, from the root down; missing ones are added."""
        above = [self._root]
        for part in key.split("/")[:-1]:
            child = above[-1].children.get(part)
            if child is None:
                child = above[-1].children[part] = _Directory()
            above.append(child)
        return above


@dataclass(slots=True)
class _CommitPlan:
    """A commit's changes in the order of execution: deletes, then renames, then puts."""

    deletes: list[str] = field(default_factory=list)
    renames: list[tuple[str, str, str]] = field(default_factory=list)  # from, to, the moved blob
    puts: dict[str, str] = field(default_factory=dict)  # key → blob


class GitHistory:
    """A repository's history as a workload; see WorkloadSource.

    ``every`` is the number of commits per snapshot; ``uses_tags`` creates a snapshot after each tagged commit instead.
    ``max_commits`` limits the history to its first commits. Submodules and paths that are not UTF-8 are left out.
    """

    def __init__(
        self,
        path: Path,
        *,
        every: int | None = None,
        uses_tags: bool = False,
        max_commits: int | None = None,
        volume: str = "git",
        bucket: str = "history",
    ) -> None:
        for option, count in (("every", every), ("max_commits", max_commits)):
            if count is not None and count < 1:
                raise ValueError(f"{option} must be 1 or more, not {count}")
        self.repository = GitRepository(path)
        self.volume = volume
        self.bucket = bucket
        self._commits = self.repository.first_parent_commits()[:max_commits]
        if not self._commits:
            raise GitError(f"{path} has no commits yet; name a repository with a history")
        self.snapshots: Sequence[SnapshotPoint] = self._tagged_points() if uses_tags else self._regular_points(every)
        self.commits_read_count = 0

    @property
    def commit_count(self) -> int:
        """The number of commits of the history."""
        return len(self._commits)

    @property
    def last_commit(self) -> str:
        """The commit whose tree the active namespace must show after the last operation."""
        return self._commits[-1].commit

    def operations(self) -> Iterator[Operation]:
        """Yield all operations, from the creation of the volume to the last commit."""
        self.commits_read_count = 0
        yield CreateVolume(self.volume)
        yield CreateBucket(self.volume, self.bucket, BucketLayout.FILE_SYSTEM_OPTIMIZED)
        known = _KnownTree()
        snapshot_names = {point.commit_number: point.name for point in self.snapshots}
        with self.repository.blob_sizes() as sizes:
            for commit_number, (_, changes) in enumerate(self.repository.changes(self._commits), start=1):
                yield from self._play(_plan_of(changes), known, sizes)
                self.commits_read_count = commit_number
                if commit_number in snapshot_names:
                    yield CreateSnapshot(self.volume, self.bucket, snapshot_names[commit_number])
        if self.commits_read_count != self.commit_count:
            raise GitError(f"git told of {self.commits_read_count} commits, not of {self.commit_count}")

    # ---- snapshots

    def _regular_points(self, every: int | None) -> list[SnapshotPoint]:
        interval = every or choose_interval(self.commit_count)
        return [
            SnapshotPoint(f"c{number:06d}-{commit.commit[:8]}", commit.commit, number)
            for number, commit in enumerate(self._commits, start=1)
            if number % interval == 0
        ]

    def _tagged_points(self) -> list[SnapshotPoint]:
        tags = self.repository.tags()
        points = [
            SnapshotPoint(_tag_snapshot_name(number, commit, tags[commit.commit][0]), commit.commit, number)
            for number, commit in enumerate(self._commits, start=1)
            if commit.commit in tags
        ]
        if not points:
            raise GitError("no tag lies on the first-parent history; take snapshots by number of commits instead")
        return points

    # ---- one commit

    def _play(self, plan: _CommitPlan, known: _KnownTree, sizes: BlobSizes) -> Iterator[Operation]:
        left_behind = [*plan.deletes, *(old for old, _, _ in plan.renames)]
        for key in plan.deletes:
            known.remove_file(key)
            yield DeleteKey(self.volume, self.bucket, key)
        yield from self._rename(plan, known)
        size_bytes = sizes.of(plan.puts.values())
        for key, blob in plan.puts.items():
            yield from self._clear(key, known)
            if not known.has_file(key):
                known.add_file(key)
            yield PutKey(self.volume, self.bucket, key, size_bytes[blob], blob)
        # git does not track empty directories.
        for key in left_behind:
            if (empty := known.remove_empty_directory(key)) is not None:
                yield DeleteDirectory(self.volume, self.bucket, empty)

    def _rename(self, plan: _CommitPlan, known: _KnownTree) -> Iterator[Operation]:
        """Yield the renames in an order in which each target is free. Renames in a cycle become deletes and puts."""
        waiting = plan.renames
        while waiting:
            blocked = []
            for old, new, blob in waiting:
                if not known.is_free(new):
                    blocked.append((old, new, blob))
                    continue
                yield from self._clear(new, known)
                parent = new.rpartition("/")[0]
                if known.directory(parent) is None:
                    yield MakeDirectory(self.volume, self.bucket, parent)
                known.remove_file(old)
                known.add_file(new)
                yield RenameKey(self.volume, self.bucket, old, new)
            if len(blocked) == len(waiting):
                break
            waiting = blocked
        else:
            return
        for old, new, blob in waiting:
            known.remove_file(old)
            plan.puts.setdefault(new, blob)
            yield DeleteKey(self.volume, self.bucket, old)

    def _clear(self, key: str, known: _KnownTree) -> Iterator[Operation]:
        if known.remove_directory(key):
            yield DeleteDirectory(self.volume, self.bucket, key)


def _plan_of(changes: Iterable[Change]) -> _CommitPlan:
    plan = _CommitPlan()
    for change in changes:
        old = key_of(change.old_path) if change.old_blob else None
        new = key_of(change.new_path) if change.new_blob else None
        if change.is_rename and old is not None and new is not None and change.old_blob is not None:
            plan.renames.append((old, new, change.old_blob))
        elif old is not None and new is None:
            plan.deletes.append(old)
        has_content = old is not None and change.old_blob == change.new_blob
        if new is not None and change.new_blob is not None and not has_content:
            plan.puts[new] = change.new_blob
    return plan


def _tag_snapshot_name(number: int, commit: Commit, tag: str) -> str:
    readable = re.sub(r"[^0-9a-z.]+", "-", tag.lower())
    readable = re.sub(r"[.-]{2,}", "-", readable)
    prefix = f"c{number:06d}-"
    readable = readable[: _LONGEST_SNAPSHOT_NAME - len(prefix)].strip(".-")
    return prefix + (readable or commit.commit[:8])
