"""A random history for machines without a git repository. The same seed gives the same workload."""

import hashlib
from collections.abc import Iterator, Sequence
from random import Random
from typing import Final

from schemas.records import BucketLayout
from services.workloads.git_history import choose_interval
from services.workloads.judge.model_bucket import OperationRefusedError
from services.workloads.judge.namespace_model import NamespaceModel
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
    RenameDirectory,
    RenameKey,
)

_DIRECTORY_NAMES: Final = ("api", "core", "docs", "legacy", "server", "storage", "tests", "web")
_FILE_NAMES: Final = ("build", "index", "main", "model", "notes", "reader", "schema", "state", "writer")
_SUFFIXES: Final = (".md", ".py", ".json", ".txt")
_STARTING_FILES_COUNT: Final = 150
_LONGEST_CHANGE_COUNT: Final = 25
_EMPTY_SHARE: Final = 0.02
# Frequency of each kind of change in percent.
_WEIGHTS: Final = {
    "overwrite": 58,
    "add": 22,
    "delete": 9,
    "rename": 7,
    "rename_directory": 1,
    "make_directory": 2,
    "delete_directory": 1,
}


class GeneratedHistory:
    """Adds, edits, moves and deletes files like the sources of a project; see WorkloadSource.

    A "commit" is a batch of changes. Empty directories are created, too.
    """

    def __init__(
        self,
        seed: int,
        *,
        commit_count: int = 400,
        every: int | None = None,
        volume: str = "generated",
        bucket: str = "history",
    ) -> None:
        if commit_count < 1 or (every is not None and every < 1):
            raise ValueError("commit_count and every must be 1 or more")
        self.seed = seed
        self.commit_count = commit_count
        self.volume = volume
        self.bucket = bucket
        interval = every or choose_interval(commit_count)
        self.snapshots: Sequence[SnapshotPoint] = [
            SnapshotPoint(f"c{number:06d}", f"change {number}", number)
            for number in range(interval, commit_count + 1, interval)
        ]
        self.commits_read_count = 0
        self._model = NamespaceModel()

    def operations(self) -> Iterator[Operation]:
        """Yield all operations, from the creation of the volume to the last commit."""
        return self._accepted(self._proposals())

    def _accepted(self, proposals: Iterator[Operation]) -> Iterator[Operation]:
        """Yield the proposals that a plane would not refuse."""
        for number, operation in enumerate(proposals):
            try:
                self._model.apply(number, operation)
            except OperationRefusedError:
                continue
            yield operation

    def _proposals(self) -> Iterator[Operation]:
        random = Random(self.seed)  # noqa: S311 - chance, not secrecy
        self._model = NamespaceModel()
        self.commits_read_count = 0
        yield CreateVolume(self.volume)
        yield CreateBucket(self.volume, self.bucket, BucketLayout.FILE_SYSTEM_OPTIMIZED)
        for _ in range(_STARTING_FILES_COUNT):
            yield self._put(random, _new_path(random))
        snapshot_names = {point.commit_number: point.name for point in self.snapshots}
        for commit_number in range(1, self.commit_count + 1):
            yield from self._commit(random)
            self.commits_read_count = commit_number
            if commit_number in snapshot_names:
                yield CreateSnapshot(self.volume, self.bucket, snapshot_names[commit_number])

    def _commit(self, random: Random) -> Iterator[Operation]:
        view = self._model.active(self.volume, self.bucket)
        keys, directories = sorted(view.keys), list(view.directories)
        change_count = min(_LONGEST_CHANGE_COUNT, 1 + int(random.expovariate(0.25)))
        for kind in random.choices(list(_WEIGHTS), weights=list(_WEIGHTS.values()), k=change_count):
            # ``keys`` is from before this commit: _accepted drops proposals for files that were moved since.
            yield self._change(random, kind, keys or [_new_path(random)], directories or [_new_directory(random)])

    def _change(self, random: Random, kind: str, keys: list[str], directories: list[str]) -> Operation:
        place = (self.volume, self.bucket)
        match kind:
            case "delete":
                return DeleteKey(*place, random.choice(keys))
            case "rename":
                target = f"{random.choice(directories)}/{_new_name(random)}"
                return RenameKey(*place, random.choice(keys), target)
            case "rename_directory":
                return RenameDirectory(*place, random.choice(directories), _new_directory(random))
            case "make_directory":
                return MakeDirectory(*place, f"{random.choice(directories)}/{_new_directory(random)}")
            case "delete_directory":
                # Prefer a deep directory: it has few files, so that the tree keeps its size.
                return DeleteDirectory(*place, max(random.sample(directories, min(3, len(directories))), key=len))
            case _:
                return self._put(random, _new_path(random) if kind == "add" else random.choice(keys))

    def _put(self, random: Random, key: str) -> PutKey:
        size_bytes = 0 if random.random() < _EMPTY_SHARE else 1 + int(random.lognormvariate(8, 1.5))
        tag = hashlib.sha256(random.randbytes(16)).hexdigest()[:40]
        return PutKey(self.volume, self.bucket, key, size_bytes, tag)


def _new_name(random: Random) -> str:
    return f"{random.choice(_FILE_NAMES)}{random.randrange(40)}{random.choice(_SUFFIXES)}"


def _new_directory(random: Random) -> str:
    return random.choice(_DIRECTORY_NAMES) + (str(random.randrange(9)) if random.random() < 0.3 else "")


def _new_path(random: Random) -> str:
    depth = random.choices((0, 1, 2, 3), weights=(5, 30, 40, 25))[0]
    return "/".join([*(_new_directory(random) for _ in range(depth)), _new_name(random)])
