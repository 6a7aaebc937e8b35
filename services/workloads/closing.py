"""The last operations of a demonstration: they delete a tree and some snapshots, so that there is garbage."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from services.workloads.workload import DeleteDirectory, DeleteSnapshot, Operation


@dataclass(frozen=True, slots=True)
class Closing:
    """The directory to delete (None if no directory can be deleted without emptying the bucket) and the snapshots."""

    directory: str | None
    snapshots: tuple[str, ...]


def choose_closing(keys: Iterable[str], snapshots: Sequence[str]) -> Closing:
    """Choose from the keys of the active namespace and the snapshots, oldest first."""
    return Closing(_largest_directory(list(keys)), _first_middle_last(snapshots))


def closing_operations(closing: Closing, volume: str, bucket: str) -> Iterator[Operation]:
    """Yield the operations of a closing."""
    if closing.directory is not None:
        yield DeleteDirectory(volume, bucket, closing.directory)
    for snapshot in closing.snapshots:
        yield DeleteSnapshot(volume, bucket, snapshot)


def _largest_directory(keys: list[str]) -> str | None:
    """Return the top-level directory with the most files; below a directory without a sibling, look one level deeper.

    None if the deletion would leave no file.
    """
    prefix, below = "", keys
    while True:
        file_counts = Counter(k[len(prefix) :].split("/", 1)[0] for k in below if "/" in k[len(prefix) :])
        if not file_counts:
            return prefix.removesuffix("/") if prefix and len(below) < len(keys) else None
        # Ties go to the first name, so that the choice is deterministic.
        largest = min(file_counts, key=lambda name: (-file_counts[name], name))
        if len(file_counts) > 1:
            return prefix + largest
        prefix += f"{largest}/"
        below = [key for key in below if key.startswith(prefix)]


def _first_middle_last(snapshots: Sequence[str]) -> tuple[str, ...]:
    """Return the first, middle and last snapshot; of 3 the first and last, of 2 the first, of 1 none: one must stay."""
    count = len(snapshots)
    few: dict[int, tuple[int, ...]] = {0: (), 1: (), 2: (0,), 3: (0, 2)}
    return tuple(snapshots[index] for index in few.get(count, (0, count // 2, count - 1)))
