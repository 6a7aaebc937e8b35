"""The sizes of the measurements; each is set by name, as in ``--size tree-files=10000``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace


class SizeError(ValueError):
    """A setting is not a size; the message lists the sizes."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """Counts that do not follow from the seconds of a run: their meaning is that they are large."""

    few_keys: int = 10_000
    """Keys of the smallest bucket that a snapshot is taken of."""
    many_keys: int = 1_000_000
    """Keys of the middle one; of a snapshot that is looked into; of two snapshots that are compared."""
    most_keys: int = 5_000_000
    """Keys of the largest one."""
    deleted_entries: int = 100_000
    """Entries that are judged by looking into snapshots."""
    held_versions: int = 10_000_000
    """Deleted versions that snapshots hold; one snapshot alone holds a tenth of them."""
    held_snapshots: int = 1_000
    """Live snapshots that hold them, in one bucket."""
    followed_buckets: int = 10_000
    """Buckets with snapshots whose chain Spark follows."""
    tree_files: int = 1_000_000
    """Files below a directory that is deleted."""
    offered_per_second: int = 2_000
    """Deletions a second while their latency is measured, and puts a second beside snapshots."""

    def with_settings(self, settings: Sequence[str]) -> Sizes:
        """Return a copy with some sizes set, each as ``name=count``.

        Raises:
            SizeError: a name is unknown or a count is not above 0.
        """
        names = {one.name.replace("_", "-"): one.name for one in fields(self)}
        changes = {}
        for setting in settings:
            name, _, count = setting.partition("=")
            if name not in names or not count.isdecimal() or int(count) < 1:
                raise SizeError(f"{setting!r} is not NAME=COUNT, the names are {', '.join(names)}")
            changes[names[name]] = int(count)
        return replace(self, **changes)


def sizes_text() -> str:
    """Return all names with their defaults."""
    return ", ".join(f"{one.name.replace('_', '-')}={one.default}" for one in fields(Sizes))
