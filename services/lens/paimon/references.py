"""Puts the references of a Paimon table in their order, and says what each of them names.

The snapshots of a branch and its tags stand side by side, by snapshot id, so that a file has one run in a single line.
A branch stands behind the snapshot from which it was created, and one that shares none with main before all.
Changelogs that outlive their snapshots stand before all of them; the main branch comes last.

A tag is a reference of its own, beside the snapshot that it was made from, since the two hold different files: when the
snapshot expires, the tag goes on holding its data, but not its changelog. A tag protects itself, and the newest
snapshot of a branch is protected by that branch, so that no plan drops them. The tag from which a branch was created is
protected by the branch, too: without it Paimon removes files that the branch holds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

from services.lens.paimon.metadata import SnapshotFile
from services.lens.relation import Ref, RefKind

MAIN = "main"
TAG, CHANGELOG = "TAG", "CHANGELOG"
"""The statuses of references that are not snapshots; a snapshot's status is the kind of its commit."""


@dataclass(frozen=True, slots=True)
class Line:
    """One branch: what its directories ``snapshot``, ``tag``, ``changelog`` and ``consumer`` have."""

    branch: str
    snapshots: dict[str, SnapshotFile]
    """By their paths in the table, in any order; so are tags and changelogs."""
    tags: dict[str, SnapshotFile] = field(default_factory=dict)
    changelogs: dict[str, SnapshotFile] = field(default_factory=dict)
    consumers: dict[str, int] = field(default_factory=dict)
    """The next snapshot of each consumer, by its name."""
    is_changelog_decoupled: bool = False
    has_changelog_producer: bool = False

    def named(self, name: str) -> str:
        """Return the name of a reference of this branch, as people write it."""
        return name if self.branch == MAIN else f"{self.branch}/{name}"


@dataclass(frozen=True, slots=True)
class Place:
    """A reference, and what the files of the table say it holds."""

    ref: Ref
    branch: str
    own_file: str
    """The path of its file in the table; empty for a changelog that is still a snapshot, and an empty table."""
    data_lists: tuple[str, ...] = ()
    """Names of the manifest lists whose entries, merged, are the data files that it holds."""
    changelog_list: str | None = None
    """Name of the manifest list whose added files are changelog files that it holds."""
    changelog_base_list: str | None = None
    """A changelog without changelog files: the manifest list of the data files before its commit …"""
    changelog_delta_list: str | None = None
    """… and that of its commit. It holds the appended files of both, also those that its commit removed."""
    index_manifest: str | None = None
    statistics: str | None = None

    @property
    def is_changelog(self) -> bool:
        """Whether it is a changelog that outlives its snapshot, or will."""
        return self.ref.status == CHANGELOG

    @property
    def is_kept(self) -> bool:
        """Whether expiry keeps it, and so what it holds: the newest snapshot of its branch, and tags."""
        return self.ref.kind is RefKind.ACTIVE or self.ref.status == TAG or self.branch in self.ref.protected_by

    @property
    def lists(self) -> tuple[str, ...]:
        """Names of all manifest lists that it holds."""
        changelog = (self.changelog_list, self.changelog_base_list, self.changelog_delta_list)
        return self.data_lists + tuple(name for name in changelog if name)


def places_of(main: Line, branches: Sequence[Line]) -> list[Place]:
    """Return the references of a table in their order, the main branch last."""
    placed = [place for line in (main, *branches) for place in _changelogs(line)]
    behind: dict[int, list[Line]] = {}
    for branch in branches:
        behind.setdefault(_origin(branch, main), []).append(branch)
    lines: list[tuple[int, int, list[Place]]] = []
    for origin, found in behind.items():
        lines += [(origin, 1, _snapshots_and_tags(branch)) for branch in found]
    guarded = {origin: tuple(branch.branch for branch in found) for origin, found in behind.items()}
    lines += [(int(place.ref.id), 0, [place]) for place in _snapshots_and_tags(main, guarded)]
    placed += [place for _, _, line in sorted(lines, key=lambda row: row[:2]) for place in line]
    return [*placed, _active(main)]


def protectors(line: Line, snapshot_id: int) -> tuple[str, ...]:
    """Return the consumers that have not read a snapshot yet."""
    return tuple(sorted(name for name, following in line.consumers.items() if following <= snapshot_id))


def _origin(branch: Line, main: Line) -> int:
    """Return the newest snapshot that a branch shares with main, from which it was created; 0 if there is none."""
    lists = {snapshot.base_manifest_list for snapshot in (*main.snapshots.values(), *main.tags.values())}
    ids = (one.id for one in (*branch.snapshots.values(), *branch.tags.values()) if one.base_manifest_list in lists)
    return max(ids, default=0)


def _snapshots_and_tags(line: Line, guarded: Mapping[int, tuple[str, ...]] = MappingProxyType({})) -> list[Place]:
    """Return the snapshots and tags of a line by their ids. ``guarded``: branches that need the tags of a snapshot."""
    newest = max((snapshot.id for snapshot in line.snapshots.values()), default=0)
    rows = []
    for path, snapshot in line.snapshots.items():
        ref = Ref(
            line.named(str(snapshot.id)),
            str(snapshot.id),
            RefKind.SNAPSHOT if line.branch == MAIN else RefKind.BRANCH,
            snapshot.time_millis,
            protected_by=((line.branch,) if snapshot.id == newest else ()) + protectors(line, snapshot.id),
            status=snapshot.commit_kind,
        )
        rows.append((snapshot.id, "", _place(ref, line.branch, path, snapshot, snapshot.changelog_manifest_list)))
    for path, snapshot in line.tags.items():
        name = path.rpartition("/tag-")[2]
        # A tag may have the name of a snapshot or of the main branch; its path is then a name that nothing else has.
        named = line.named(f"tag/{name}" if name == MAIN or name.isdecimal() else name)
        ref = Ref(
            named,
            str(snapshot.id),
            RefKind.TAG if line.branch == MAIN else RefKind.BRANCH,
            snapshot.time_millis,
            protected_by=(named, *guarded.get(snapshot.id, ())),
            status=TAG,
        )
        rows.append((snapshot.id, name, _place(ref, line.branch, path, snapshot, None)))
    return [place for _, _, place in sorted(rows, key=lambda row: row[:2])]


def _place(ref: Ref, branch: str, path: str, snapshot: SnapshotFile, changelog_list: str | None) -> Place:
    return Place(
        ref,
        branch,
        path,
        (snapshot.base_manifest_list, snapshot.delta_manifest_list),
        changelog_list,
        index_manifest=snapshot.index_manifest,
        statistics=snapshot.statistics,
    )


def _active(main: Line) -> Place:
    newest = max(main.snapshots.items(), key=lambda row: row[1].id, default=None)
    if newest is None:
        return Place(Ref(MAIN, MAIN, RefKind.ACTIVE, is_droppable=False), MAIN, "")
    path, snapshot = newest
    ref = Ref(MAIN, str(snapshot.id), RefKind.ACTIVE, snapshot.time_millis, False, (), snapshot.commit_kind)
    return _place(ref, MAIN, path, snapshot, snapshot.changelog_manifest_list)


def _changelogs(line: Line) -> list[Place]:
    """Return the long-lived changelogs, and those that the snapshots leave behind when they expire."""
    rows = [(changelog.id, path, changelog) for path, changelog in line.changelogs.items()]
    if line.is_changelog_decoupled:
        known = {changelog.id for changelog in line.changelogs.values()}
        rows += [(snapshot.id, "", snapshot) for snapshot in line.snapshots.values() if snapshot.id not in known]
    return [_changelog(line, path, changelog) for _, path, changelog in sorted(rows, key=lambda row: row[0])]


def _changelog(line: Line, path: str, changelog: SnapshotFile) -> Place:
    snapshot = () if path else (line.named(str(changelog.id)),)
    ref = Ref(
        line.named(f"{changelog.id}/changelog"),
        str(changelog.id),
        RefKind.CHANGELOG,
        changelog.time_millis,
        protected_by=snapshot + protectors(line, changelog.id),
        status=CHANGELOG,
    )
    if changelog.changelog_manifest_list or line.has_changelog_producer:
        return Place(ref, line.branch, path, changelog_list=changelog.changelog_manifest_list)
    return Place(
        ref,
        line.branch,
        path,
        changelog_base_list=changelog.base_manifest_list,
        changelog_delta_list=changelog.delta_manifest_list,
    )
