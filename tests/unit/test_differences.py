"""The diff of a bucket's states over metadata's tables: what Ozone's tests ask for, and that both ways agree."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schemas.records import (
    BucketLayout,
    CreateBucket,
    CreateSnapshot,
    CreateVolume,
    DeleteDirectory,
    DeleteKey,
    DeleteSnapshot,
    MakeDirectory,
    PutKey,
    RenameDirectory,
    RenameKey,
)
from services.client.plane import NamespaceCommand
from services.domain.refusals import CommandError
from services.domain.snapshot_diff import DiffEntry, DiffKind
from services.metadata.diffs.differences import compare_all, compare_changes, opened_states
from services.metadata.state.changed_rows import TRIMMED_AT_ONCE
from services.plane.in_memory.client import InMemoryClient
from services.plane.in_memory.plane import InMemoryPlane
from services.storage.tables import TablesReader

FSO, OBS = BucketLayout.FILE_SYSTEM_OPTIMIZED, BucketLayout.OBJECT_STORE
ACTIVE = "active"


def lines_of(entries: list[DiffEntry]) -> list[list[str]]:
    """Entries as the workload format writes them."""
    return [
        [entry.kind.value, entry.old_path, entry.path]
        if entry.kind is DiffKind.RENAMED
        else [entry.kind.value, entry.path]
        for entry in entries
    ]


class Bucket:
    """One bucket on a plane in memory, whose every diff is made in both ways."""

    def __init__(self, layout: BucketLayout) -> None:
        self.client = InMemoryClient(InMemoryPlane())
        self.ids = {ACTIVE: ""}
        for command in (CreateVolume("vol"), CreateBucket("vol", "bucket", layout)):
            self.client.answer(0, self.client.submit(0, command))

    def do(self, *steps: str) -> None:
        """Steps like ``put a/b``, ``rename a b``, ``mvdir a b``, ``snapshot name``, ``drop name``."""
        for step in steps:
            name, *arguments = step.split(" ")
            if name == "snapshot":
                self.ids[arguments[0]] = self.client.request(
                    0, CreateSnapshot("vol", "bucket", f"snap-{arguments[0]}")
                ).snapshot_id
                continue
            if name == "drop":
                self.client.request(0, DeleteSnapshot("vol", "bucket", f"snap-{arguments[0]}"))
                del self.ids[arguments[0]]
                continue
            self.client.answer(0, self.client.submit(0, self._command(name, arguments)))

    def _command(self, name: str, arguments: list[str]) -> NamespaceCommand:
        makers: dict[str, Any] = {
            "put": lambda key: PutKey("vol", "bucket", key, 100),
            "empty": lambda key: PutKey("vol", "bucket", key, 0),
            "delete": lambda key: DeleteKey("vol", "bucket", key),
            "rename": lambda source, target: RenameKey("vol", "bucket", source, target),
            "mkdir": lambda path: MakeDirectory("vol", "bucket", path),
            "rmdir": lambda path: DeleteDirectory("vol", "bucket", path),
            "mvdir": lambda source, target: RenameDirectory("vol", "bucket", source, target),
        }
        command: NamespaceCommand = makers[name](*arguments)
        return command

    @property
    def tables(self) -> TablesReader:
        return TablesReader(self.client.plane.processes["metadata", 0].store)

    def diff(self, one: str, other: str) -> list[list[str]]:
        store = self.client.plane.processes["metadata", 0].store
        with opened_states(store, "vol", "bucket", self.ids[one], self.ids[other]) as states:
            entries = compare_changes(states.before, states.after, states.changes())
            assert entries == compare_all(states.before, states.after)
        return lines_of(entries)


# Ozone's own scenarios, with what deepclean answers; the second list is the diff the other way round.
SCENARIOS: list[tuple[str, BucketLayout, list[str], list[str], list[list[str]], list[list[str]]]] = [
    ("nothing", OBS, ["put k"], [], [], []),
    ("delete", OBS, ["put k"], ["delete k"], [["-", "k"]], [["+", "k"]]),
    ("delete of an empty key", OBS, ["empty k"], ["delete k"], [["-", "k"]], [["+", "k"]]),
    ("delete and recreate", OBS, ["put k"], ["delete k", "put k"], [["-", "k"], ["+", "k"]], [["-", "k"], ["+", "k"]]),
    ("rename, then delete", OBS, ["put k"], ["rename k l", "delete l"], [["-", "k"]], [["+", "k"]]),
    ("two renames, then delete", OBS, ["put k"], ["rename k l", "rename l m", "delete m"], [["-", "k"]], [["+", "k"]]),
    ("rename, recreate, delete", OBS, ["put k"], ["rename k l", "put k", "delete k"],
     [["R", "k", "l"]], [["R", "l", "k"]]),
    ("rename away and back", OBS, ["put k"], ["rename k l", "rename l k"], [], []),
    ("overwrite", OBS, ["put k"], ["put k"], [["M", "k"]], [["M", "k"]]),
    ("overwrite of an empty key", OBS, ["empty k"], ["empty k"], [["M", "k"]], [["M", "k"]]),
    ("overwrite and rename", OBS, ["put k"], ["put k", "rename k l"],
     [["R", "k", "l"], ["M", "l"]], [["R", "l", "k"], ["M", "k"]]),
    ("made and gone between", OBS, [], ["put k", "delete k"], [], []),
    ("a directory is renamed", FSO, ["put d/e/k"], ["mvdir d/e d/f"], [["R", "d/e", "d/f"]], [["R", "d/f", "d/e"]]),
    ("a directory is moved", FSO, ["put d/e/k", "mkdir f"], ["mvdir d/e f/e"],
     [["R", "d/e", "f/e"]], [["R", "f/e", "d/e"]]),
    (
        "a key goes into a new tree", FSO, ["put k"], ["mkdir d/e", "rename k d/e/k"],
        [["R", "k", "d/e/k"], ["+", "d"], ["+", "d/e"]], [["-", "d"], ["-", "d/e"], ["R", "d/e/k", "k"]],
    ),
    (
        "a tree is deleted, what left it before is not", FSO, ["put d/e/k", "put d/l", "put d/e/f/m"],
        ["rename d/l l", "mvdir d/e/f f", "rmdir d"],
        [["-", "d"], ["-", "d/e"], ["-", "d/e/k"], ["R", "d/e/f", "f"], ["R", "d/l", "l"]],
        [["R", "f", "d/e/f"], ["R", "l", "d/l"], ["+", "d"], ["+", "d/e"], ["+", "d/e/k"]],
    ),
    (
        "what is in a renamed directory changes too", FSO, ["put d/k", "put d/l", "put d/m"],
        ["mvdir d e", "put e/k", "delete e/l", "rename e/m e/n", "put e/o"],
        [["-", "d/l"], ["R", "d", "e"], ["R", "d/m", "e/n"], ["+", "e/o"], ["M", "e/k"]],
        [["-", "e/o"], ["R", "e", "d"], ["R", "e/n", "d/m"], ["+", "d/l"], ["M", "d/k"]],
    ),
    (
        "a directory goes, its content gets another of its name", FSO, ["put d/k"],
        ["mvdir d e", "mkdir d", "rename e/k d/k"],
        [["R", "d", "e"], ["R", "d/k", "d/k"], ["+", "d"]], [["-", "d"], ["R", "d/k", "d/k"], ["R", "e", "d"]],
    ),
    ("two names are swapped", OBS, ["put a", "put b"], ["rename a c", "rename b a", "rename c b"],
     [["R", "a", "b"], ["R", "b", "a"]], [["R", "a", "b"], ["R", "b", "a"]]),
]  # fmt: skip


@pytest.mark.parametrize(
    ("before", "layout", "steps", "forward", "backward"),
    [pytest.param(b, la, s, f, w, id=n) for n, la, b, s, f, w in SCENARIOS],
)
def test_what_ozone_asks_of_a_diff(
    before: list[str], layout: BucketLayout, steps: list[str], forward: list[list[str]], backward: list[list[str]]
) -> None:
    bucket = Bucket(layout)
    bucket.do(*before, "snapshot one", *steps, "snapshot two")
    assert bucket.diff("one", "two") == forward == bucket.diff("one", ACTIVE)
    assert bucket.diff("two", "one") == backward == bucket.diff(ACTIVE, "one")
    assert bucket.diff("one", "one") == bucket.diff("two", ACTIVE) == []


@given(st.integers(0, 2**32), st.sampled_from([FSO, OBS]))
@settings(max_examples=60, deadline=None)
def test_the_quick_way_gives_what_the_slow_one_gives(seed: int, layout: BucketLayout) -> None:
    """Every pair of states of a random history; snapshots go, directories are expanded and purged on the way."""
    random = Random(seed)
    bucket = Bucket(layout)
    for number in range(random.randrange(60)):
        path, other = ("/".join(random.choices("abc", k=random.randrange(1, 4))) for _ in range(2))
        bucket.do(
            random.choice(
                [f"put {path}", f"put {path}", f"empty {path}", f"mkdir {path}", f"delete {path}", f"rmdir {path}",
                 f"rename {path} {other}", f"mvdir {path} {other}", f"snapshot s{number}", f"snapshot s{number}"]
            )
        )  # fmt: skip
        if random.random() < 0.1 and len(bucket.ids) > 1:
            bucket.do(f"drop {random.choice([name for name in bucket.ids if name != ACTIVE])}")
        if random.random() < 0.2:
            for _ in range(random.randrange(10)):
                bucket.client.plane.step()
    for one in bucket.ids:
        for other in bucket.ids:
            bucket.diff(one, other)


class TestChangedTable:
    def rows(self, bucket: Bucket) -> list[bytes]:
        return [key for key, _ in bucket.tables.reader.scan("changedTable", b"", b"\xff")]

    def test_without_a_snapshot_nothing_is_written(self) -> None:
        bucket = Bucket(FSO)
        bucket.do("put d/k", "put d/k")
        assert self.rows(bucket) == []
        bucket.do("snapshot one")
        assert self.rows(bucket) == []

    def test_a_row_is_there_once_for_each_pair_of_neighbours(self) -> None:
        bucket = Bucket(OBS)
        bucket.do("snapshot one", "put k", "put k", "delete k", "put l", "snapshot two", "put k")
        assert [key.rpartition(b"/")[2] for key in self.rows(bucket)] == [b"kk", b"kl", b"kk"]

    def test_what_no_diff_can_ask_for_goes(self) -> None:
        bucket = Bucket(OBS)
        bucket.do(
            "snapshot one", *(f"put k{number}" for number in range(TRIMMED_AT_ONCE + 10)), "snapshot two", "put l"
        )
        bucket.do("drop two")
        assert len(self.rows(bucket)) == TRIMMED_AT_ONCE + 11
        bucket.do("drop one")
        bucket.client.plane.run_until(lambda: not self.rows(bucket))
        assert self.rows(bucket) == []

    def test_what_a_crash_left_goes_after_the_next_start(self) -> None:
        bucket = Bucket(OBS)
        bucket.do("snapshot one", "put k", "snapshot two", "put l")
        process = bucket.client.plane.processes["metadata", 0]
        kept = dict(process.store.scan("changedTable", b"", b"\xff"))
        bucket.do("drop one")
        bucket.client.plane.run_until(lambda: len(self.rows(bucket)) == 1)
        process.store.write({"changedTable": kept})
        bucket.client.plane.start("metadata", 0)
        bucket.do("put m")
        assert [key.rpartition(b"/")[2] for key in self.rows(bucket)] == [b"kl", b"km"]

    def test_a_dropped_snapshot_is_refused(self) -> None:
        bucket = Bucket(OBS)
        bucket.do("snapshot one", "put k", "snapshot two")
        assert self.rows(bucket)
        dropped = bucket.ids["one"]
        bucket.do("drop one")
        bucket.client.plane.run_until(lambda: not self.rows(bucket))
        bucket.ids |= {"dropped": dropped, "none": "none", "elsewhere": "../none"}
        for one, code in (("dropped", "SNAPSHOT_EXPIRED"), ("none", "FILE_NOT_FOUND"), ("elsewhere", "FILE_NOT_FOUND")):
            with pytest.raises(CommandError, match="snapshot") as caught:
                bucket.diff("two", one)
            assert caught.value.code == code
