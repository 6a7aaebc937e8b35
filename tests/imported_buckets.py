"""Compares a bucket that was imported with the database that it comes from: listings, diffs, and the lens' figures."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence, Set
from dataclasses import dataclass
from pathlib import Path

from services.client.plane import Plane
from services.client.tasks.diffs import diff
from services.client.tasks.volume_shards import VolumeShards
from services.domain.snapshot_diff import DiffEntry, DiffKind
from services.lens.ozone import tables
from services.lens.ozone.key_rows import Block, blocks_of
from services.lens.ozone.messages import DirectoryInfo, KeyInfo
from services.lens.ozone.tables import end_of
from streaming.lens.ozone.plan import BucketPlan
from streaming.lens.ozone.stores import ACTIVE_TABLES, OzoneRows, opened
from tests.ozone_reading import Read

DIRECTORY_BYTES = -1
BEING_WRITTEN = ("open-key", "upload-part")
"""Kinds of things that an import leaves out."""


@dataclass(frozen=True)
class Shown:
    """What a state shows at a path."""

    object_id: int
    place: tuple[int, str]
    """Id of the parent, and name."""
    blocks: dict[Block, int] | None
    """With their lengths; None for a directory."""

    @property
    def bytes(self) -> int:
        return DIRECTORY_BYTES if self.blocks is None else sum(self.blocks.values())


State = dict[str, Shown]


def states_of(bucket: BucketPlan, scratch: Path) -> Iterator[tuple[str, State]]:
    """The name of each active snapshot, oldest first, with what it shows; "" for the active namespace."""
    for number, store in enumerate(bucket.stores):
        if number == bucket.active_number or number in bucket.held_places:
            assert store.directory
            with opened(Path(store.directory), ACTIVE_TABLES, scratch) as rows:
                yield store.snapshot.name if store.snapshot else "", _shown(rows, bucket)


def _shown(rows: OzoneRows, bucket: BucketPlan) -> State:
    prefix = bucket.keys.live_prefix
    if not bucket.keys.is_file_system:
        found = {}
        for key, value in rows.scan(tables.KEY, prefix, end_of(prefix)):
            row, name = KeyInfo.FromString(value), key.removeprefix(prefix).decode()
            found[name] = Shown(row.object_id, (0, name), blocks_of(row.versions))
        return found
    children: dict[int, list[Shown]] = {}
    for table in (tables.DIRECTORY, tables.FILE):
        for key, value in rows.scan(table, prefix, end_of(prefix)):
            parent, _, name = key.removeprefix(prefix).decode().partition("/")
            is_file = table == tables.FILE
            row = (KeyInfo if is_file else DirectoryInfo).FromString(value)
            blocks = blocks_of(row.versions) if is_file else None
            children.setdefault(int(parent), []).append(Shown(row.object_id, (int(parent), name), blocks))
    return dict(_below(bucket.keys.bucket_id, "", children))


def _below(directory: int, path: str, children: dict[int, list[Shown]]) -> Iterator[tuple[str, Shown]]:
    for one in children.get(directory, ()):
        yield f"{path}{one.place[1]}", one
        if one.blocks is None:
            yield from _below(one.object_id, f"{path}{one.place[1]}/", children)


def differences(before: State, after: State) -> list[DiffEntry]:
    """What the objects of two states say of their difference."""
    old, new = ({one.object_id: (path, one) for path, one in state.items()} for state in (before, after))
    both = old.keys() & new.keys()
    found = [DiffEntry(DiffKind.DELETED, old[one][0]) for one in old.keys() - both]
    found += [DiffEntry(DiffKind.CREATED, new[one][0]) for one in new.keys() - both]
    for one in both:
        (old_path, was), (path, now) = old[one], new[one]
        if was.place != now.place:
            found.append(DiffEntry(DiffKind.RENAMED, path, old_path))
        if was.blocks != now.blocks:
            found.append(DiffEntry(DiffKind.MODIFIED, path))
    return sorted(found, key=repr)


def check_listings_and_diffs(
    plane: Plane, bucket: BucketPlan, target: tuple[str, str], scratch: Path
) -> list[tuple[str, State]]:
    """Compare every listing, and the diff of each two neighbouring states; the states."""
    shard = VolumeShards(plane).shard_of(target[0])
    reads, infos = plane.metadata(shard), plane.snapshots(shard).snapshots(*target)
    states = list(states_of(bucket, scratch))
    assert [info.name for info in infos] == [name for name, _ in states[:-1]]
    ids = [info.snapshot_id for info in infos] + [""]
    for snapshot_id, (name, state) in zip(ids, states, strict=True):
        entries = reads.entries(*target, snapshot_id=snapshot_id)
        listed = {one.path: DIRECTORY_BYTES if one.is_directory else one.size_bytes for one in entries}
        assert listed == {path: one.bytes for path, one in state.items()}, name
        tags = {one.path: one.tag for one in entries if not one.is_directory}
        assert tags == {path: str(one.object_id) for path, one in state.items() if one.blocks is not None}, name
    for place, (name, state) in enumerate(states[1:]):
        found = diff(reads, *target, from_snapshot_id=ids[place], to_snapshot_id=ids[place + 1])
        assert sorted(found, key=repr) == differences(states[place][1], state), name
    return states


@dataclass(frozen=True)
class Figures:
    """Bytes, and bytes on disks: live, held by snapshots alone; of each snapshot all, and what it holds alone."""

    live: tuple[int, int]
    held: tuple[int, int]
    referenced: list[tuple[int, int]]
    exclusive: list[tuple[int, int]]


def total(sizes: Iterable[tuple[int, ...]]) -> tuple[int, int]:
    """The sums of bytes, and of bytes on disks."""
    listed = list(sizes)
    return sum(one for one, _ in listed), sum(one for _, one in listed)


def figures_of(things: Sequence[tuple[tuple[int, int], Set[int]]], active: int) -> Figures:
    """The figures of things with their sizes and places; the active namespace is the last place."""
    return Figures(
        total(size for size, places in things if active in places),
        total(size for size, places in things if places and active not in places),
        [total(size for size, places in things if place in places) for place in range(active)],
        [total(size for size, places in things if places == {place}) for place in range(active)],
    )


def figures_of_states(states: Sequence[tuple[str, State]]) -> Figures:
    """A recount of the versions that the states show, as if each block were kept once."""
    held: dict[tuple[int, tuple[tuple[Block, int], ...]], set[int]] = {}
    for place, (_, state) in enumerate(states):
        for one in state.values():
            if one.blocks is not None:
                held.setdefault((one.object_id, tuple(one.blocks.items())), set()).add(place)
    sized = [((sum(length for _, length in blocks),) * 2, places) for (_, blocks), places in held.items()]
    return figures_of(sized, len(states) - 1)


def figures_of_lens(found: Read, bucket: str) -> Figures:
    """What the lens says of a bucket, without what is being written."""
    things = [
        (
            (row["bytes"], row["replicated_bytes"]),
            {place for run in row["runs"] for place in range(run["first"], run["last"] + 1)},
        )
        for row in found.things(bucket)
        if row["kind"] not in BEING_WRITTEN
    ]
    return figures_of(things, len(found.bucket(bucket).held_places))


def figures_of_plane(plane: Plane, target: tuple[str, str]) -> Figures:
    """What the plane says of a bucket; it has to be settled."""
    shard = VolumeShards(plane).shard_of(target[0])
    space, spaces = plane.metadata(shard).space(*target), plane.space(shard).snapshot_spaces(*target)
    assert space.unexpanded_directories == 0
    return Figures(
        (space.live_bytes, space.live_replicated_bytes),
        (space.held_bytes, space.held_replicated_bytes),
        [(one.referenced_bytes, one.referenced_replicated_bytes) for one in spaces.snapshots],
        [(one.exclusive_bytes, one.exclusive_replicated_bytes) for one in spaces.snapshots],
    )
