"""Who holds the files that the metadata of a Paimon table names, as runs of places.

A snapshot's data files are the entries of its manifests, merged: each manifest adds and removes files, and a file that
was moved to another level is removed and added under the same name. So a file is held at a place if the manifests
that this place uses add it more often than they remove it. The order of the manifests does not matter.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from services.domain.run_space import Runs, merged
from services.lens.paimon.references import Place

Events = list[tuple[int, int]]
"""A place, and how much the count of holders changes there."""


@dataclass(frozen=True, slots=True)
class ManifestRow:
    """A row of a manifest list."""

    name: str
    size_bytes: int
    entries: int


@dataclass(frozen=True, slots=True)
class IndexFile:
    """A row of an index manifest: a hash index, or the deletion vectors of a bucket."""

    name: str
    type: str
    size_bytes: int
    partition: bytes
    bucket: int
    external_path: str | None


@dataclass(slots=True)
class ManifestUse:
    """A manifest, and the places that use it in one way or another."""

    manifest: ManifestRow
    data: set[int]
    """Its entries, added and removed, count."""
    changelog: set[int]
    """It adds changelog files."""
    changelog_base: set[int]
    """Its entries count if a write, and no compaction, made the file."""
    changelog_delta: set[int]
    """Its added files count if a write made them."""

    @property
    def holders(self) -> Runs:
        """The places that hold the manifest itself."""
        return runs_of(self.data | self.changelog | self.changelog_base | self.changelog_delta)


def runs_of(places: Iterable[int]) -> Runs:
    """Return places as runs."""
    return merged([(place, place) for place in places])


def events_of(places: Iterable[int]) -> Events:
    """Return where a use begins and where it has ended."""
    return [event for first, last in runs_of(places) for event in ((first, 1), (last + 1, -1))]


def manifest_uses(places: Sequence[Place], lists: Mapping[str, Sequence[ManifestRow]]) -> dict[str, ManifestUse]:
    """Return each manifest of the manifest lists with the places that use it. Lists that are missing are left out."""
    uses: dict[str, ManifestUse] = {}
    for place, held in enumerate(places):
        by_way = (
            ("data", held.data_lists),
            ("changelog", (held.changelog_list,)),
            ("changelog_base", (held.changelog_base_list,)),
            ("changelog_delta", (held.changelog_delta_list,)),
        )
        for way, names in by_way:
            for name in names:
                for row in lists.get(name or "", ()):
                    use = uses.setdefault(row.name, ManifestUse(row, set(), set(), set(), set()))
                    getattr(use, way).add(place)
    return uses


def named_files(places: Sequence[Place], other_files: Iterable[str]) -> Iterator[tuple[str, str, Runs]]:
    """Yield the path, the kind and the holders of each file that references name themselves, without manifests."""
    held: dict[tuple[str, str], set[int]] = {}
    for place, reference in enumerate(places):
        named = [("manifest-list", f"manifest/{name}") for name in reference.lists]
        if reference.index_manifest:
            named.append(("index-manifest", f"manifest/{reference.index_manifest}"))
        if reference.statistics:
            named.append(("statistics", f"statistics/{reference.statistics}"))
        if reference.own_file:
            named.append(("metadata", reference.own_file))
        for kind, path in named:
            held.setdefault((path, kind), set()).add(place)
    for path in other_files:
        held.setdefault((path, "metadata"), set()).add(len(places) - 1)
    for (path, kind), holders in held.items():
        yield path, kind, runs_of(holders)


def unprotected(places: Sequence[Place], cells: Mapping[Runs, int]) -> dict[str, int]:
    """Return the bytes that an expiry in one branch deletes although another branch holds them, by the expiring branch.

    Expiry in Paimon looks at the snapshots and tags of one branch only. A branch's files are safe from the expiry
    of the branch from which it was created as long as that one keeps the tag.
    """
    found: dict[str, int] = {}
    branches = [place.branch for place in places]
    for runs, size_bytes in cells.items():
        holders = [place for first, last in runs for place in range(first, last + 1)]
        for branch in {branches[place] for place in holders}:
            own = [place for place in holders if branches[place] == branch]
            if len(own) < len(holders) and not any(places[place].is_kept for place in own):
                found[branch] = found.get(branch, 0) + size_bytes
    return found
