"""Who holds a path or a block, at every stage of a version's way, over metadata's real loop."""

from __future__ import annotations

import pytest

from schemas.records import (
    CaptureSnapshot,
    DeleteDirectory,
    DeleteKey,
    DropSnapshot,
    ExpandDirectory,
    MakeDirectory,
    MetadataCommand,
    PutKey,
    RenameDirectory,
    RenameKey,
    StopClaims,
)
from schemas.space_answers import BlockExplanation, ExplainedVersion, PathExplanation, VersionStage
from services.domain.table_keys import local_id
from services.metadata.reads import block_search, explanations, queries
from services.runtime.http.reads import ReadError
from services.storage.tables import TablesReader
from tests.unit.test_metadata import Shard as MetadataShard

LIVE, UNEXPANDED, HELD, PENDING, CLAIMED = VersionStage
Seen = tuple[VersionStage, int, list[str]]


class Shard(MetadataShard):
    """A shard whose snapshots are called by their ids."""

    def put(self, key: str, size_bytes: int, bucket: str = "tree") -> int:
        """Commit a version; says its birth."""
        return self.do(PutKey("vol", bucket, key, size_bytes)).txn

    def capture(self, name: str, bucket: str = "tree") -> None:
        self.internal(CaptureSnapshot("vol", bucket, name))

    def path(self, path: str, bucket: str = "tree") -> PathExplanation:
        tables = TablesReader(self.store)
        return explanations.explain_path(
            tables, self.bucket(bucket), path, lambda name: TablesReader(self.store.open_checkpoint(name))
        )

    def seen(self, path: str, bucket: str = "tree") -> list[Seen]:
        """Stage, size and holders of each version of a path."""
        return [self._seen(version, bucket) for version in self.path(path, bucket).versions]

    def _seen(self, version: ExplainedVersion, bucket: str) -> Seen:
        names = [
            row.snapshot_id
            for row in queries.live_snapshots(TablesReader(self.store), self.bucket(bucket).object_id)
            if version.first_holder <= row.txn <= version.last_holder
        ]
        return version.stage, version.size_bytes, names

    def block(self, birth: int, *, index: int = 0, bucket: str = "", start: str = "") -> BlockExplanation:
        named = self.bucket(bucket) if bucket else None
        return block_search.explain_block(TablesReader(self.store), 0, local_id(0, birth, index), named, start)

    def expand(self) -> None:
        """Expand the directory that was deleted last."""
        row = self.row()
        self.internal(ExpandDirectory(row.bucket_id, row.object_id, row.death, 100, 1 << 20))


@pytest.fixture
def shard() -> Shard:
    return Shard()


class TestVersions:
    def test_an_overwritten_key_has_a_live_version_and_older_ones(self, shard: Shard) -> None:
        shard.put("x", 1)
        shard.capture("s1")
        shard.put("x", 20)
        shard.put("x", 300)
        shard.capture("s2")
        assert shard.seen("x") == [(HELD, 1, ["s1"]), (PENDING, 20, []), (LIVE, 300, ["s2"])]

    @pytest.mark.parametrize("bucket", ["flat", "tree"])
    def test_each_row_on_the_way_is_looked_up_once(
        self, shard: Shard, bucket: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        shard.put("a/b", 1, bucket)
        shard.capture("s1", bucket)
        shard.put("a/b", 20, bucket)
        read, asked = shard.store.get, list[tuple[str, bytes]]()

        def get(family: str, key: bytes) -> bytes | None:
            asked.append((family, key))
            return read(family, key)

        monkeypatch.setattr(shard.store, "get", get)
        assert len(shard.path("a/b", bucket).versions) == 2
        rows = [one for one in asked if one[0] in ("keyTable", "fileTable", "directoryTable")]
        assert rows
        assert len(rows) == len(set(rows))

    def test_a_claimed_version_is_found_until_it_is_freed(self, shard: Shard) -> None:
        birth = shard.put("x", 1)
        shard.put("x", 20)
        shard.claim(shard.row())
        assert shard.seen("x") == [(CLAIMED, 1, []), (LIVE, 20, [])]
        found = shard.block(birth)
        assert found.version is not None
        assert (found.version.stage, found.path, found.bucket) == (CLAIMED, "x", "tree")

    def test_stopped_claims_are_named(self, shard: Shard) -> None:
        birth = shard.put("x", 1)
        assert shard.path("x").claims_stopped == ""
        shard.send(MetadataCommand(0, "", 0, StopClaims("the chain is broken"), "snapshots"))
        shard.runner.step()
        assert shard.path("x").claims_stopped == "the chain is broken"
        assert shard.block(birth).claims_stopped == "the chain is broken"

    def test_what_has_no_bytes_is_held_by_who_shows_it(self, shard: Shard) -> None:
        shard.put("x", 0)
        shard.capture("s1")
        shard.capture("s2")
        shard.do(DeleteKey("vol", "tree", "x"))
        shard.capture("s3")
        assert shard.seen("x") == [(HELD, 0, ["s1", "s2"])]

    def test_a_flat_bucket_has_paths_with_slashes_too(self, shard: Shard) -> None:
        shard.put("d/x", 1, "flat")
        shard.put("e/d/x", 7, "flat")
        shard.capture("s1", "flat")
        shard.do(DeleteKey("vol", "flat", "d/x"))
        assert shard.seen("d/x", "flat") == [(HELD, 1, ["s1"])]
        assert shard.seen("x", "flat") == []
        assert shard.seen("e/d/x", "flat") == [(LIVE, 7, ["s1"])]

    def test_a_dropped_snapshot_holds_nothing(self, shard: Shard) -> None:
        shard.put("x", 1)
        shard.capture("s1")
        shard.do(DeleteKey("vol", "tree", "x"))
        shard.internal(DropSnapshot("s1"))
        assert shard.seen("x") == [(PENDING, 1, [])]

    def test_the_same_name_in_another_directory_is_another_path(self, shard: Shard) -> None:
        shard.put("d/x", 1)
        shard.put("e/x", 20)
        shard.capture("s1")
        shard.do(DeleteKey("vol", "tree", "d/x"))
        shard.do(DeleteKey("vol", "tree", "e/x"))
        assert shard.seen("d/x") == [(HELD, 1, ["s1"])]
        assert shard.seen("e/x") == [(HELD, 20, ["s1"])]
        assert shard.seen("x") == []


class TestRenames:
    def test_a_key_is_found_under_every_name_that_somebody_shows(self, shard: Shard) -> None:
        shard.put("x", 1)
        shard.capture("s1")
        shard.do(RenameKey("vol", "tree", "x", "y"))
        assert shard.seen("x") == [(LIVE, 1, ["s1"])]
        assert shard.seen("y") == [(LIVE, 1, ["s1"])]
        shard.capture("s2")
        shard.do(RenameKey("vol", "tree", "y", "z"))
        shard.do(DeleteKey("vol", "tree", "z"))
        for path in ("x", "y", "z"):
            assert shard.seen(path) == [(HELD, 1, ["s1", "s2"])]

    def test_what_came_after_under_a_name_is_another_version(self, shard: Shard) -> None:
        shard.put("x", 1)
        shard.capture("s1")
        shard.do(RenameKey("vol", "tree", "x", "y"))
        shard.put("x", 20)
        assert shard.seen("x") == [(LIVE, 1, ["s1"]), (LIVE, 20, [])]
        assert shard.seen("y") == [(LIVE, 1, ["s1"])]

    def test_a_directory_takes_its_deleted_keys_along(self, shard: Shard) -> None:
        shard.put("d/x", 1)
        shard.capture("s1")
        shard.do(DeleteKey("vol", "tree", "d/x"))
        shard.do(RenameDirectory("vol", "tree", "d", "e"))
        assert shard.seen("d/x") == [(HELD, 1, ["s1"])]
        assert shard.seen("e/x") == [(HELD, 1, ["s1"])]

    def test_what_came_with_its_directory_was_not_there_before(self, shard: Shard) -> None:
        shard.put("a/x", 1)
        shard.put("d/x", 0)
        shard.capture("s1")
        shard.do(RenameDirectory("vol", "tree", "d", "gone"))
        shard.do(RenameDirectory("vol", "tree", "a", "d"))
        shard.capture("s2")
        shard.do(DeleteKey("vol", "tree", "d/x"))
        assert shard.seen("d/x") == [(HELD, 1, ["s1", "s2"]), (HELD, 0, ["s1"])]


class TestCosts:
    def test_checkpoints_are_opened_only_for_what_no_row_tells(self, shard: Shard) -> None:
        """A key that is overwritten between snapshots is told by its rows; one look shows that it was not there."""
        for number in range(5):
            shard.capture(f"early-{number}", "flat")
        for number in range(20):
            shard.put("x", number + 1, "flat")
            shard.capture(f"s{number}", "flat")
            shard.put("y", 1, "flat")
        opened: list[str] = []

        def checkpoint(name: str) -> TablesReader:
            opened.append(name)
            return TablesReader(shard.store.open_checkpoint(name))

        tables = TablesReader(shard.store)
        found = explanations.explain_path(tables, shard.bucket("flat"), "x", checkpoint)
        assert len(found.versions) == 20
        assert opened == ["early-4"]
        assert found.scanned_rows == 19

    def test_what_others_leave_behind_is_not_looked_at(self, shard: Shard) -> None:
        shard.put("x", 1, "flat")
        for number in range(50):
            shard.put(f"k{number}", 1, "flat")
        shard.capture("s1", "flat")
        shard.do(DeleteKey("vol", "flat", "x"))
        for number in range(50):
            shard.do(DeleteKey("vol", "flat", f"k{number}"))
        found = shard.path("x", "flat")
        assert [version.stage for version in found.versions] == [HELD]
        assert found.scanned_rows == 1


class TestDirectories:
    def test_below_a_deleted_directory_a_key_is_unexpanded_then_held(self, shard: Shard) -> None:
        shard.put("d/e/x", 1)
        shard.capture("s1")
        shard.put("d/e/y", 20)
        shard.do(DeleteDirectory("vol", "tree", "d"))
        assert shard.seen("d/e/x") == [(UNEXPANDED, 1, ["s1"])]
        assert shard.seen("d/e/y") == [(UNEXPANDED, 20, [])]
        assert shard.path("d/e/x").is_exact
        assert shard.block(shard.path("d/e/y").versions[0].birth).path == "d/e/y"
        shard.expand()
        assert shard.seen("d/e/x") == [(HELD, 1, ["s1"])]
        assert shard.seen("d/e/y") == [(PENDING, 20, [])]

    def test_a_directory_that_is_made_again_has_the_keys_of_both(self, shard: Shard) -> None:
        shard.put("d/x", 1)
        shard.capture("s1")
        shard.do(DeleteDirectory("vol", "tree", "d"))
        shard.put("d/x", 20)
        assert shard.seen("d/x") == [(UNEXPANDED, 1, ["s1"]), (LIVE, 20, [])]

    def test_what_was_deleted_within_a_deleted_directory_died_with_the_inner_one(self, shard: Shard) -> None:
        birth = shard.put("d/e/x", 1)
        inner = shard.do(DeleteDirectory("vol", "tree", "d/e")).txn
        shard.do(DeleteDirectory("vol", "tree", "d"))
        found = shard.block(birth).version
        assert found is not None
        assert (found.stage, found.death) == (UNEXPANDED, inner)
        assert shard.path("d/e/x").versions == (found,)

    def test_a_directory_itself_is_explained(self, shard: Shard) -> None:
        shard.do(MakeDirectory("vol", "tree", "d"))
        shard.capture("s1")
        (live,) = shard.path("d").directories
        assert (live.death, live.first_holder == live.last_holder > 0) == (0, True)
        shard.do(DeleteDirectory("vol", "tree", "d"))
        (deleted,) = shard.path("d").directories
        assert deleted.death > 0
        assert not deleted.is_expanded
        shard.expand()
        (expanded,) = shard.path("d").directories
        assert expanded.is_expanded
        assert (expanded.first_holder, expanded.object_id) == (live.first_holder, live.object_id)

    def test_below_a_directory_each_version_counts_once(self, shard: Shard, monkeypatch: pytest.MonkeyPatch) -> None:
        shard.put("d/x", 1)
        shard.put("d/e/y", 20)
        shard.put("d/empty", 0)
        shard.capture("s1")
        shard.put("d/x", 300)
        shard.capture("s2")
        shard.do(DeleteKey("vol", "tree", "d/e/y"))
        shard.put("d/z", 4_000)
        found = shard.path("d")
        assert (found.below_bytes, found.below_versions) == (4_321, 4)
        assert shard.path("d/e").below_bytes == 20
        assert shard.path("d/x").below_bytes == 0
        monkeypatch.setattr(explanations, "MAX_SCANNED_ROWS", 3)
        assert not shard.path("d").is_exact

    def test_what_may_be_in_an_unexpanded_directory_elsewhere_is_not_exact(self, shard: Shard) -> None:
        shard.put("a/x", 1)
        shard.do(MakeDirectory("vol", "tree", "b"))
        shard.capture("s1")
        shard.do(RenameKey("vol", "tree", "a/x", "b/x"))
        shard.do(DeleteDirectory("vol", "tree", "b"))
        assert not shard.path("a/x").is_exact
        shard.expand()
        assert shard.path("a/x").is_exact
        assert shard.seen("a/x") == [(HELD, 1, ["s1"])]


class TestSearches:
    def test_a_block_is_found_page_by_page(self, shard: Shard, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(block_search, "MAX_ROWS_PER_PAGE", 1)
        births = [shard.put(f"k{number}", 1, "flat" if number % 2 else "tree") for number in range(6)]
        shard.capture("s1")
        shard.do(DeleteKey("vol", "tree", "k0"))
        for number, birth in enumerate(births):
            found = shard.block(birth)
            pages = 1
            while found.next_start:
                assert found.version is None
                found = shard.block(birth, start=found.next_start)
                pages += 1
            assert found.version is not None
            assert (found.path, found.birth) == (f"k{number}", birth)
            assert found.bucket == ("flat" if number % 2 else "tree")
        assert pages > 1

    def test_a_block_that_no_version_has_is_not_found(self, shard: Shard) -> None:
        birth = shard.put("x", 1)
        assert shard.block(birth, index=1).version is None
        assert shard.block(birth + 1).version is None
        assert shard.block(birth, bucket="flat").version is None
        assert shard.block(birth, bucket="tree").version is not None

    @pytest.mark.parametrize("start", ["x", "1:zz", "1"])
    def test_a_page_starts_where_the_one_before_said(self, shard: Shard, start: str) -> None:
        birth = shard.put("x", 1)
        if start == "1":
            assert shard.block(birth, start=start).version is not None
            return
        with pytest.raises(ReadError, match="next_start"):
            shard.block(birth, start=start)

    def test_a_search_that_is_too_long_says_so(self, shard: Shard, monkeypatch: pytest.MonkeyPatch) -> None:
        for _ in range(5):
            shard.put("x", 1)
        assert (shard.path("x").is_exact, shard.path("x").scanned_rows) == (True, 4)
        monkeypatch.setattr(explanations, "MAX_SCANNED_ROWS", 3)
        assert (shard.path("x").is_exact, shard.path("x").scanned_rows) == (False, 3)
        monkeypatch.setattr(explanations, "MAX_SCANNED_ROWS", 100)
        monkeypatch.setattr(explanations, "MAX_VERSIONS", 2)
        assert (shard.path("x").is_exact, len(shard.path("x").versions)) == (False, 2)

    @pytest.mark.parametrize(("path", "code"), [("", "INVALID_KEY_NAME"), ("a//b", "INVALID_PATH")])
    def test_what_is_no_path_is_refused(self, shard: Shard, path: str, code: str) -> None:
        with pytest.raises(ReadError) as caught:
            shard.path(path)
        assert caught.value.code == code
