"""The check itself: a right outcome is clean, and each way to be wrong is counted where it belongs."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from services.workloads.closing import Closing, choose_closing, closing_operations
from services.workloads.generated_history import GeneratedHistory
from services.workloads.git_history import GitHistory
from services.workloads.judge.git_check import git_truth
from services.workloads.judge.namespace_model import is_valid_snapshot_name
from services.workloads.judge.outcome_check import (
    CheckResult,
    ExpectedVersions,
    ListedKey,
    Listing,
    OutcomeCheck,
    listing_of,
    model_truth,
)
from services.workloads.workload import DeleteKey, Operation
from tests.git_builder import FILE, LINK, SUBMODULE, Tree, build_repository, files


class Outcome:
    """A plane that did everything right; tests then spoil one thing."""

    def __init__(self, path: Path) -> None:
        revisions = [files(a__x=f"x{n}", a__y="y", b__z=f"z{n}" * n, top="") for n in range(6)]
        self.history = GitHistory(build_repository(path, revisions))
        self.model = ExpectedVersions(self.history.volume, self.history.bucket)
        for operation in self.history.operations():
            self.model.record(operation)
        self.closing = choose_closing(self.model.active().keys, list(self.model.snapshots))
        for operation in closing_operations(self.closing, self.history.volume, self.history.bucket):
            self.model.record(operation)
        self.listings: dict[str, dict[str, ListedKey]] = {
            name: listing_of(view) for name, view in self.model.snapshots.items()
        }
        self.active: Listing = listing_of(self.model.active())
        self.existing: dict[int, bool] = dict.fromkeys(self.model.needed_versions(), True)
        self.removed_directory = self.closing.directory

    def check(self) -> CheckResult:
        truth = git_truth(
            self.history.repository, self.history.snapshots, self.history.last_commit, self.removed_directory
        )
        check = OutcomeCheck(self.model, truth)
        for name, listing in self.listings.items():
            check.compare(name, listing)
        check.compare("", self.active)
        check.compare_versions(self.existing)
        return check.finish()


@pytest.fixture
def outcome(tmp_path: Path) -> Outcome:
    return Outcome(tmp_path)


def counts(listing_mismatches: int = 0, lost: int = 0, leaked: int = 0) -> Mapping[str, int]:
    return {"listing_mismatches": listing_mismatches, "lost": lost, "leaked": leaked}


def test_git_s_truth_knows_links_and_leaves_out_what_cannot_be_a_key(tmp_path: Path) -> None:
    tree: Tree = {
        b"link": (LINK, b"to"),
        b"caf\xe9": (FILE, b"1"),
        b"module": (SUBMODULE, b"1" * 40),
        b"new\nline": (FILE, b""),
    }
    history = GitHistory(build_repository(tmp_path, [tree]))
    truth = git_truth(history.repository, history.snapshots, history.last_commit)
    listed_sizes = {path: key.size_bytes for path, key in truth("").items()}
    assert listed_sizes == {"link": 2, "new\nline": 0}
    assert truth(history.snapshots[0].name) == truth("")


def test_a_right_outcome_is_clean(outcome: Outcome) -> None:
    result = outcome.check()
    assert (result.counts, result.examples) == (counts(), [])
    assert outcome.closing.directory == "a"
    assert set(outcome.active) == {"b/z", "top"}
    assert len(outcome.listings) == 3
    # Both kinds of version are there, so that clean says something.
    assert 0 < len(outcome.existing) < len(outcome.model.versions)


@pytest.mark.parametrize(
    "wrong", [None, ListedKey("another blob", 1), ListedKey("", 0)], ids=["missing", "changed", "emptied"]
)
def test_a_wrong_snapshot_listing(outcome: Outcome, wrong: ListedKey | None) -> None:
    listing = next(iter(outcome.listings.values()))
    if wrong is None:
        del listing["a/x"]
    else:
        listing["a/x"] = wrong
    result = outcome.check()
    assert result.counts == counts(listing_mismatches=1)
    assert "'a/x'" in result.examples[0]


def test_a_wrong_size_and_an_extra_path(outcome: Outcome) -> None:
    listing = next(iter(outcome.listings.values()))
    listing["a/x"] = ListedKey(listing["a/x"].tag, listing["a/x"].size_bytes + 1)
    listing["a/new"] = listing["a/x"]
    assert outcome.check().counts == counts(listing_mismatches=2)


def test_a_view_that_nobody_compared_is_a_mismatch(outcome: Outcome) -> None:
    outcome.listings.popitem()
    assert outcome.check().counts == counts(listing_mismatches=1)


def test_a_deleted_snapshot_that_is_still_listed(outcome: Outcome) -> None:
    outcome.listings[outcome.closing.snapshots[0]] = {}
    assert outcome.check().counts == counts(listing_mismatches=1)


def test_a_tree_that_was_not_removed_or_removed_without_a_command(outcome: Outcome) -> None:
    outcome.removed_directory = None
    # Two paths, missed by the plane and by the ledger.
    assert outcome.check().counts == counts(listing_mismatches=4)


def test_a_model_that_disagrees_with_git_is_not_trusted(outcome: Outcome) -> None:
    outcome.model.record(DeleteKey(outcome.history.volume, outcome.history.bucket, "b/z"))
    result = outcome.check()
    assert result.counts["listing_mismatches"] == 1
    assert "model" in result.examples[0]


def test_lost_versions(outcome: Outcome) -> None:
    first, second, *_ = [n for n in outcome.existing if outcome.model.versions[n].size_bytes]
    outcome.existing[first] = False
    del outcome.existing[second]
    result = outcome.check()
    assert result.counts == counts(lost=2)


def test_leaked_versions(outcome: Outcome) -> None:
    outcome.existing = dict.fromkeys(outcome.model.versions, True)
    nobody_s = outcome.model.versions.keys() - outcome.model.needed_versions()
    sized = [number for number in nobody_s if outcome.model.versions[number].size_bytes]
    assert outcome.check().counts == counts(leaked=len(sized))


def test_versions_without_bytes_have_nothing_to_lose(outcome: Outcome) -> None:
    zero = [number for number, version in outcome.model.versions.items() if not version.size_bytes]
    assert zero
    outcome.existing |= dict.fromkeys(zero, False)
    assert outcome.check().counts == counts()


def test_a_check_that_looked_at_nothing_does_not_pass(outcome: Outcome) -> None:
    check = OutcomeCheck(outcome.model, model_truth(outcome.model))
    with pytest.raises(ValueError, match="compare_versions"):
        check.finish()
    check.compare_versions(outcome.existing)
    assert check.finish().counts["listing_mismatches"] == 4


def test_a_version_that_nobody_put(outcome: Outcome) -> None:
    outcome.existing[10**6] = True
    with pytest.raises(ValueError, match="1000000 is no put"):
        outcome.check()


def test_examples_are_few(outcome: Outcome) -> None:
    outcome.active = {f"p{number}": ListedKey("t", 1) for number in range(500)}
    result = outcome.check()
    assert result.counts["listing_mismatches"] == 502
    assert len(result.examples) == 10


@pytest.mark.parametrize(
    ("keys", "directory"),
    [
        ([], None),
        (["f", "g"], None),
        (["a/1", "a/2", "b/1", "f"], "a"),
        (["b/1", "a/1"], "a"),
        (["a/1"], None),
        (["a/1", "f"], "a"),
        (["a/b/1", "a/b/2", "a/c/1", "f"], "a/b"),
        (["a/b/1", "a/b/2", "a/3"], "a/b"),
        (["ab/1", "a/x/1", "a/x/2"], "a"),
        (["a/b/c/1", "a/b/c/2"], None),
    ],
)
def test_which_directory_is_removed(keys: list[str], directory: str | None) -> None:
    chosen = choose_closing(keys, []).directory
    assert chosen == directory
    if chosen is not None:
        assert 0 < len([key for key in keys if key.startswith(f"{chosen}/")]) < len(keys)


def test_which_snapshots_are_deleted() -> None:
    chosen = [choose_closing([], [str(n) for n in range(count)]).snapshots for count in range(6)]
    assert chosen == [(), (), ("0",), ("0", "2"), ("0", "2", "3"), ("0", "2", "4")]


def test_nothing_to_close() -> None:
    assert list(closing_operations(Closing(None, ()), "v", "b")) == []


def played(history: GeneratedHistory) -> tuple[ExpectedVersions, list[Operation]]:
    model = ExpectedVersions(history.volume, history.bucket)
    operations = list(history.operations())
    for operation in operations:
        model.record(operation)
    return model, operations


@pytest.mark.parametrize("seed", range(5))
def test_a_generated_history_is_accepted_and_repeats(seed: int) -> None:
    history = GeneratedHistory(seed, commit_count=120)
    model, operations = played(history)
    assert operations == list(history.operations())
    assert operations != list(GeneratedHistory(seed + 1, commit_count=120).operations())
    assert [point.name for point in history.snapshots] == list(model.snapshots)
    assert 20 <= len(model.snapshots) <= 40
    assert all(len(name) >= 3 and is_valid_snapshot_name(name) for name in model.snapshots)
    assert history.commits_read_count == history.commit_count == 120
    assert len({type(operation) for operation in operations}) == 9
    assert len(model.active().keys) > 100


def test_a_generated_history_is_checked_by_the_model() -> None:
    model, _ = played(GeneratedHistory(7, commit_count=60))
    check = OutcomeCheck(model, model_truth(model))
    for name, view in model.snapshots.items():
        check.compare(name, listing_of(view))
    check.compare("", listing_of(model.active()))
    check.compare_versions(dict.fromkeys(model.needed_versions(), True))
    assert check.finish().counts == counts()
