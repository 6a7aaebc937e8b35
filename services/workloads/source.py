"""The interface of a workload source: a git history or a generated one."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from services.workloads.workload import Operation


@dataclass(frozen=True, slots=True)
class SnapshotPoint:
    """A snapshot that a source creates, and the commit whose state the snapshot must show."""

    name: str
    commit: str
    commit_number: int


class WorkloadSource(Protocol):
    """A history that can be replayed into one bucket, commit by commit."""

    @property
    def volume(self) -> str:
        """The volume that the history is replayed into."""
        ...

    @property
    def bucket(self) -> str:
        """The bucket that the history is replayed into."""
        ...

    @property
    def commit_count(self) -> int:
        """The number of commits of the history."""
        ...

    @property
    def commits_read_count(self) -> int:
        """The number of commits that ``operations`` has yielded completely so far."""
        ...

    @property
    def snapshots(self) -> Sequence[SnapshotPoint]:
        """The snapshots that ``operations`` creates, oldest first. Available before the first operation is yielded."""
        ...

    def operations(self) -> Iterator[Operation]:
        """Yield all operations, from the creation of the volume to the last commit."""
        ...
