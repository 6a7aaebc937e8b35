"""What a demonstration does after the last commit: it removes a tree and some snapshots, so that there is garbage."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from services.workloads.workload import DeleteDirectory, DeleteSnapshot, Operation


@dataclass(frozen=True, slots=True)
class Closing:
    """The directory to remove (None if removing any would leave nothing) and the snapshots to delete."""

    directory: str | None
    snapshots: tuple[str, ...]


def choose_closing(keys: Iterable[str], snapshots: Sequence[str]) -> Closing:
    """Choose from the keys of the active namespace and the snapshots, oldest first."""
    return Closing(_largest_directory(list(keys)), _first_middle_last(snapshots))


def closing_operations(closing: Closing, volume: str, bucket: str) -> Iterator[Operation]:
    """Yield the operations that a closing consists of."""
    if closing.directory is not None:
        yield DeleteDirectory(volume, bucket, closing.directory)
    for snapshot in closing.snapshots:
        yield DeleteSnapshot(volume, bucket, snapshot)


def _largest_directory(keys: list[str]) -> str | None:
    """The top-level directory with the most files; inside a directory that is the only one, one further down."""
    prefix, below = "", keys
    while True:
        file_counts = Counter(k[len(prefix) :].split("/", 1)[0] for k in below if "/" in k[len(prefix) :])
        if not file_counts:
            return prefix.removesuffix("/") if prefix and len(below) < len(keys) else None
        # Among equals the first by name, so that the choice is the same each time.
        largest = min(file_counts, key=lambda name: (-file_counts[name], name))
        if len(file_counts) > 1:
            return prefix + largest
        prefix += f"{largest}/"
        below = [key for key in below if key.startswith(prefix)]


def _first_middle_last(snapshots: Sequence[str]) -> tuple[str, ...]:
    """Some snapshot always stays; of one alone nothing is deleted."""
    count = len(snapshots)
    if count < 2:
        chosen: set[int] = set()
    elif count < 4:
        chosen = {0} if count == 2 else {0, 2}
    else:
        chosen = {0, count // 2, count - 1}
    return tuple(snapshots[index] for index in sorted(chosen))
