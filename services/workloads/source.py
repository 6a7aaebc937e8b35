"""What every source of a workload offers, be it a git history or a generated one."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from services.workloads.workload import Operation


@dataclass(frozen=True, slots=True)
class SnapshotPoint:
    """A snapshot that a source takes, and the state of its history that the snapshot must show."""

    name: str
    commit: str
    commit_number: int


class WorkloadSource(Protocol):
    """A history that can be played into one bucket, commit by commit."""

    @property
    def volume(self) -> str:
        """The volume that the history is played into."""
        ...

    @property
    def bucket(self) -> str:
        """The bucket that the history is played into."""
        ...

    @property
    def commit_count(self) -> int:
        """How many commits there are to play."""
        ...

    @property
    def commits_read_count(self) -> int:
        """How many commits ``operations`` has come through so far."""
        ...

    @property
    def snapshots(self) -> Sequence[SnapshotPoint]:
        """The snapshots that ``operations`` takes, oldest first; known before anything is played."""
        ...

    def operations(self) -> Iterator[Operation]:
        """Yield everything that the plane is asked to do, from making the volume to the last commit."""
        ...
