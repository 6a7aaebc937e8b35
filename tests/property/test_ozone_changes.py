"""Random stores of an Ozone Manager's bucket: the commands that lead from each to the next give the same tree.

The commands are played on a model that is as strict as a plane: what is named must exist, and a target must be free.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from random import Random
from typing import Any

import pytest

from schemas.records import (
    DeleteDirectory,
    DeleteKeys,
    MakeDirectory,
    PutKey,
    RenameKey,
    Replication,
    SetBucketReplication,
)
from services.lens.ozone.differences import Row, differing_rows
from services.lens.ozone.layout import OzoneLocationError
from services.lens.ozone.messages import DirectoryInfo, KeyInfo
from services.lens.ozone.tables import BucketKeys
from streaming.lens.ozone import changes
from streaming.lens.ozone.changes import PARKED, BucketStates, Command
from tests.ozone_model import BUCKET_ID, VOLUME_ID, object_id

HISTORIES, STATES, STEPS = 150, 6, 14
NAMES = "abcd"
TARGET = ("there", "bucket")
Place = tuple[int, str]
Shown = dict[str, tuple[int, int]]
"""The object's id and the size of what is at each path; the size of a directory is -1."""


@dataclass
class Bucket:
    """The live tables of a bucket, and the operations on them."""

    keys: BucketKeys
    directories: dict[Place, int] = field(default_factory=dict)
    files: dict[Place, tuple[int, int]] = field(default_factory=dict)
    """Object id, and the local id of the only block."""
    waiting: list[int] = field(default_factory=list)
    """Deleted directories that are not expanded."""
    numbers: Iterator[int] = field(default_factory=lambda: count(100))
    touched: dict[int, int] = field(default_factory=dict)

    def paths(self) -> dict[int, str]:
        """Path of each directory that can be reached."""
        found = {BUCKET_ID: ""}
        while more := {
            one: f"{found[parent]}{name}/"
            for (parent, name), one in self.directories.items()
            if parent in found and one not in found
        }:
            found |= more
        return found

    def shown(self) -> Shown:
        paths = self.paths()
        found = {f"{paths[parent]}{name}": file for (parent, name), file in self.files.items() if parent in paths}
        directories = {paths[one].removesuffix("/"): (one, -1) for one in self.directories.values() if one in paths}
        return found | directories

    def step(self, random: Random) -> None:
        """Do something that Ozone could do."""
        paths = self.paths()
        taken = [*self.directories, *self.files]
        reached = [place for place in taken if place[0] in paths]
        place = (random.choice(list(paths)), random.choice(NAMES))
        what = random.choice(["put", "put", "make", "rename", "rename", "rename", "delete", "touch", "expand"])
        if what == "put" and place not in self.directories:
            known = self.files.get(place)
            self.files[place] = (known[0] if known else object_id(next(self.numbers)), next(self.numbers))
        elif what == "make" and place not in taken and self.keys.is_file_system:
            self.directories[place] = object_id(next(self.numbers))
        elif what == "rename" and reached and place not in taken:
            self._rename(random.choice(reached), place, paths)
        elif what == "delete" and reached:
            gone = random.choice(reached)
            self.files.pop(gone, None)
            if gone in self.directories:
                self.waiting.append(self.directories.pop(gone))
        elif what == "touch" and self.files:
            self.touched[random.choice(list(self.files.values()))[0]] = next(self.numbers)
        elif what == "expand" and self.waiting:
            self._expand(self.waiting.pop(random.randrange(len(self.waiting))))

    def _rename(self, source: Place, target: Place, paths: dict[int, str]) -> None:
        if source in self.files:
            self.files[target] = self.files.pop(source)
        elif not paths[target[0]].startswith(paths[self.directories[source]]):
            self.directories[target] = self.directories.pop(source)

    def _expand(self, directory: int) -> None:
        self.files = {place: file for place, file in self.files.items() if place[0] != directory}
        for place in [place for place in self.directories if place[0] == directory]:
            self.waiting.append(self.directories.pop(place))

    def tables(self) -> tuple[list[Row], list[Row]]:
        """The rows of the two live tables, in the order of their keys."""
        directories = [
            (self.keys.key_of(name.encode(), parent), DirectoryInfo(object_id=one).SerializeToString())
            for (parent, name), one in self.directories.items()
        ]
        files = [
            (self.keys.key_of(name.encode(), parent), self._file(*file).SerializeToString())
            for (parent, name), file in self.files.items()
        ]
        return sorted(directories), sorted(files)

    def _file(self, one: int, block: int) -> Any:
        row = KeyInfo(object_id=one, update_id=self.touched.get(one, 0), type=1, factor=1 + 2 * (block % 2))
        row.data_bytes = block
        location = row.versions.add().locations.add(length=block)
        location.block.id.container, location.block.id.local = 1, block
        return row


@dataclass
class StrictTree:
    """What a plane does with the commands, and refuses. A version is the number of the command that put it."""

    is_file_system: bool
    entries: dict[str, tuple[int, int, int] | None] = field(default_factory=dict)
    """By path the object's id, size and version; None for a directory."""
    replication: Replication | None = None
    replications: dict[int, Replication | None] = field(default_factory=dict)
    number: int = 0

    def play(self, command: Command) -> None:
        self.number += 1
        assert (command.volume, command.bucket) == TARGET
        match command:
            case MakeDirectory():
                self._free(command.directory)
                self.entries[command.directory] = None
            case RenameKey():
                self._free(command.target)
                assert not command.target.startswith(f"{command.source}/")
                for path in self._with_all_below(command.source):
                    self.entries[command.target + path.removeprefix(command.source)] = self.entries.pop(path)
            case DeleteKeys():
                for key in command.keys:
                    assert self.entries.pop(key) is not None
            case DeleteDirectory():
                gone = self._with_all_below(command.directory)
                assert self.entries[command.directory] is None
                assert command.is_recursive or len(gone) == 1
                for path in gone:
                    del self.entries[path]
            case SetBucketReplication():
                assert command.replication is not self.replication
                self.replication = command.replication
            case PutKey():
                self._put(command)

    def _put(self, command: PutKey) -> None:
        if command.key not in self.entries:
            self._free(command.key)
        else:
            assert (before := self.entries[command.key])
            assert before[0] == int(command.tag), "another object is not an overwrite"
        self.entries[command.key] = (int(command.tag), command.size_bytes, self.number)
        self.replications[self.number] = self.replication

    def _free(self, path: str) -> None:
        assert path not in self.entries
        parent = path.rpartition("/")[0]
        assert not self.is_file_system or not parent or self.entries[parent] is None

    def _with_all_below(self, path: str) -> list[str]:
        assert path in self.entries
        return [one for one in self.entries if one == path or (self.is_file_system and one.startswith(f"{path}/"))]


def in_lists(rows: list[Row], random: Random) -> Iterator[list[Row]]:
    while rows:
        cut = random.randint(1, 5)
        yield rows[:cut]
        rows = rows[cut:]


def play_next(states: BucketStates, before: list[Row], bucket: Bucket, random: Random, tree: StrictTree) -> list[Row]:
    directories, files = bucket.tables()
    differences = differing_rows(in_lists(before, random), in_lists(files, random))
    for command in states.commands_to(directories, differences, ()):
        tree.play(command)
    return files


@pytest.mark.parametrize("is_file_system", [True, False])
def test_each_state_is_reached_and_what_stays_is_not_put_again(
    seed: int, is_file_system: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(changes, "KEYS_PER_DELETION", 2)
    random = Random(seed)
    left_out = 0
    for number in range(HISTORIES):
        monkeypatch.setattr(changes, "MAX_KNOWN_PATHS", random.choice([2, 1_000]))
        bucket = Bucket(BucketKeys(b"vol", b"bucket", VOLUME_ID, BUCKET_ID, is_file_system))
        states = BucketStates(bucket.keys, TARGET, tmp_path / str(number))
        tree, rows = StrictTree(is_file_system), list[Row]()
        versions: dict[tuple[int, int], int] = {}
        never_shown: set[tuple[int, int]] = set()
        for _ in range(STATES):
            for _ in range(random.randint(0, STEPS)):
                bucket.step(random)
            rows = play_next(states, rows, bucket, random, tree)
            shown = {path: entry[:2] if entry else -1 for path, entry in tree.entries.items()}
            assert shown == {path: -1 if size == -1 else (one, size) for path, (one, size) in bucket.shown().items()}
            for one, size, version in filter(None, tree.entries.values()):
                assert versions.setdefault((one, size), version) == version
                assert tree.replications[version] is (Replication.RATIS_THREE if size % 2 else Replication.RATIS_ONE)
            never_shown |= {file for file in bucket.files.values() if file not in versions}
        states.close()
        sizes = [size for _, size in never_shown]
        unreachable = states.sums["unreachable"]
        assert (unreachable.bytes, unreachable.rows) == (sum(sizes), len(sizes))
        left_out += len(sizes)
    assert bool(left_out) is is_file_system


def test_names_that_change_places_are_renamed(tmp_path: Path) -> None:
    """Two files, two directories with something in them, and a directory that moves out of a deleted one."""
    bucket = Bucket(BucketKeys(b"vol", b"bucket", VOLUME_ID, BUCKET_ID, True))
    root = BUCKET_ID
    bucket.files |= {(root, "a"): (1, 11), (root, "b"): (2, 12), (3, "x"): (5, 15), (7, "y"): (8, 18)}
    bucket.directories |= {(root, "c"): 3, (root, "d"): 4, (root, "e"): 6, (6, "f"): 7}
    tree, states = StrictTree(is_file_system=True), BucketStates(bucket.keys, TARGET, tmp_path / "states")
    rows = play_next(states, [], bucket, Random(1), tree)
    puts = states.sums["put"].rows
    bucket.files |= {(root, "a"): (2, 12), (root, "b"): (1, 11)}
    bucket.directories = {(root, "c"): 4, (root, "d"): 3, (4, "f"): 7}
    play_next(states, rows, bucket, Random(1), tree)
    assert {path: entry[0] if entry else None for path, entry in tree.entries.items()} == {
        "a": 2, "b": 1, "c": None, "d": None, "d/x": 5, "c/f": None, "c/f/y": 8,
    }  # fmt: skip
    assert states.sums["put"].rows == puts == 4
    assert PARKED not in tree.entries


def test_directories_in_directories_change_places(tmp_path: Path) -> None:
    """Each is parked, the outer one between the inner ones: their path is another one then."""
    bucket = Bucket(BucketKeys(b"vol", b"bucket", VOLUME_ID, BUCKET_ID, True))
    bucket.directories |= {(BUCKET_ID, "outer"): 2, (BUCKET_ID, "other"): 4, (2, "a"): 1, (2, "b"): 3}
    tree, states = StrictTree(is_file_system=True), BucketStates(bucket.keys, TARGET, tmp_path / "states")
    bucket.files = {(1, "in-a"): (5, 11), (3, "in-b"): (6, 12)}
    rows = play_next(states, [], bucket, Random(1), tree)
    bucket.directories = {(BUCKET_ID, "other"): 2, (BUCKET_ID, "outer"): 4, (2, "b"): 1, (2, "a"): 3}
    play_next(states, rows, bucket, Random(1), tree)
    assert sorted(path for path, entry in tree.entries.items() if entry) == ["other/a/in-b", "other/b/in-a"]


def test_a_directory_moves_out_of_one_that_has_moved_into_a_new_one(tmp_path: Path) -> None:
    bucket = Bucket(BucketKeys(b"vol", b"bucket", VOLUME_ID, BUCKET_ID, True))
    bucket.directories |= {(BUCKET_ID, "outer"): 1, (1, "inner"): 2}
    tree, states = StrictTree(is_file_system=True), BucketStates(bucket.keys, TARGET, tmp_path / "states")
    rows = play_next(states, [], bucket, Random(1), tree)
    bucket.directories = {(BUCKET_ID, "new"): 3, (3, "outer"): 1, (3, "other"): 4, (4, "inner"): 2}
    play_next(states, rows, bucket, Random(1), tree)
    assert sorted(tree.entries) == ["new", "new/other", "new/other/inner", "new/outer"]


def test_a_file_that_comes_out_of_a_lost_directory_is_put(tmp_path: Path) -> None:
    """A repair could do it: the state before does not show the file."""
    bucket = Bucket(BucketKeys(b"vol", b"bucket", VOLUME_ID, BUCKET_ID, True))
    bucket.files[77, "a"] = (1, 11)
    tree, states = StrictTree(is_file_system=True), BucketStates(bucket.keys, TARGET, tmp_path / "states")
    rows = play_next(states, [], bucket, Random(1), tree)
    bucket.files = {(BUCKET_ID, "a"): (1, 11)}
    play_next(states, rows, bucket, Random(1), tree)
    assert [(path, entry[1]) for path, entry in tree.entries.items() if entry] == [("a", 11)]


def test_rows_with_one_id_are_refused(tmp_path: Path) -> None:
    bucket = Bucket(BucketKeys(b"vol", b"bucket", VOLUME_ID, BUCKET_ID, False))
    bucket.files |= {(BUCKET_ID, "a"): (1, 11), (BUCKET_ID, "b"): (1, 12)}
    states = BucketStates(bucket.keys, TARGET, tmp_path / "states")
    with pytest.raises(OzoneLocationError, match="Two rows of vol/bucket in one store have the same object id"):
        play_next(states, [], bucket, Random(1), StrictTree(is_file_system=False))


def test_very_old_rows_have_no_id_and_are_known_by_their_names(tmp_path: Path) -> None:
    bucket = Bucket(BucketKeys(b"vol", b"bucket", VOLUME_ID, BUCKET_ID, False))
    bucket.files |= {(BUCKET_ID, "a"): (0, 11), (BUCKET_ID, "b"): (0, 12)}
    tree, states = StrictTree(is_file_system=False), BucketStates(bucket.keys, TARGET, tmp_path / "states")
    rows = play_next(states, [], bucket, Random(1), tree)
    del bucket.files[BUCKET_ID, "b"]
    bucket.files[BUCKET_ID, "a"] = (0, 13)
    play_next(states, rows, bucket, Random(1), tree)
    assert [(path, entry[1]) for path, entry in tree.entries.items() if entry] == [("a", 13)]


def test_rows_are_compared_in_lists_of_any_size(seed: int) -> None:
    random = Random(seed)
    for _ in range(500):
        tables = [
            {b"%d" % key: b"%d" % random.randint(0, 1) for key in random.sample(range(30), random.randint(0, 30))}
            for _ in range(2)
        ]
        before, after = (sorted(table.items()) for table in tables)
        found = list(differing_rows(in_lists(before, random), in_lists(after, random)))
        assert [row for gone, _ in found for row in gone] == [row for row in before if row not in after]
        assert [row for _, come in found for row in come] == [row for row in after if row not in before]
