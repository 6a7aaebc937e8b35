"""Nasty histories, each a real repository, played and compared with ``git ls-tree`` after every commit."""

import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from services.workloads.git_command import GitError, GitRepository
from services.workloads.git_history import GitHistory, choose_interval
from services.workloads.judge.namespace_model import is_valid_snapshot_name
from services.workloads.workload import (
    CreateSnapshot,
    DeleteDirectory,
    DeleteKey,
    MakeDirectory,
    Operation,
    PutKey,
    RenameKey,
)
from tests.git_builder import EXECUTABLE, FILE, LINK, SUBMODULE, Revision, Tree, build_repository, files, git
from tests.git_replay import assert_history_equals_git, play

TEXT = "".join(f"line {number} of a text that git recognizes\n" for number in range(40))
OTHER = "".join(f"{number} quite another content, word by word\n" for number in range(40))
POINTS_TO = b"1234567890123456789012345678901234567890"


def changes_of(operations: list[Operation]) -> list[Operation]:
    """What the second commit does."""
    starts = [i for i, operation in enumerate(operations) if isinstance(operation, CreateSnapshot)]
    return operations[starts[0] + 1 : starts[1]]


NASTY: dict[str, list[Revision | Tree]] = {
    "swap": [files(a=TEXT, b=OTHER), files(a=OTHER, b=TEXT)],
    "circle through a directory": [files(a=TEXT, b__c=OTHER), files(a__c=OTHER, b=TEXT)],
    "circle with edits": [files(a=TEXT, b__c=OTHER), files(a__c=OTHER + "more\n", b=TEXT + "more\n")],
    "renamed onto a name renamed away": [files(a=TEXT, b=OTHER), files(b=TEXT, c=OTHER)],
    "renamed onto a name deleted": [files(a=TEXT, b=OTHER), files(b=TEXT)],
    "chain below a file that moves away": [files(a=TEXT, c=OTHER), files(b=TEXT, a__c=OTHER)],
    "file becomes directory": [files(x="1", z="2"), files(x__y="3", z="2")],
    "file moves below its own name": [files(x=TEXT), files(x__y=TEXT)],
    "file moves up to its directory's name": [files(x__y=TEXT), files(x=TEXT)],
    "directory becomes file": [files(x__y__z="1", x__w="2"), files(x="3")],
    "file from elsewhere takes a directory's name": [files(d__f=TEXT, g=OTHER), files(e=TEXT, d=OTHER)],
    "deep directory becomes file": [files(d__e__f="1", d__g="2"), files(d__e="3", d__g="2")],
    "empty directories": [files(a__b__c__d="1", a__k="2"), files(a__k="2"), files(z="1"), files(a__b="2")],
    "everything goes and comes back": [files(a__b="1", c="2"), {}, files(a__b="1", c="2")],
    "nothing at all": [{}, {}],
    "zero bytes": [files(empty="", full="x"), files(empty="x", full=""), files(moved="x", full="")],
    "only the mode": [{b"run": (FILE, b"x")}, {b"run": (EXECUTABLE, b"x")}],
    "renamed and made executable": [
        {b"run": (FILE, TEXT.encode())},
        {b"go": (EXECUTABLE, TEXT.encode())},
    ],
    "link becomes file and back": [
        {b"l": (LINK, b"target"), b"target": (FILE, b"x")},
        {b"l": (FILE, b"target"), b"target": (LINK, b"l")},
        {b"l": (LINK, b"target"), b"target": (FILE, b"x")},
    ],
    "link replaces directory": [files(d__f="1", d__g="2"), {b"d": (LINK, b"elsewhere")}],
    "strange names": [
        {
            name: (FILE, name)
            for name in (
                "é/ü ß".encode(),
                "日本/\U0001f40d.py".encode(),
                b"a b/ c ",
                b"new\nline/x\ty",
                b'"quoted\\"',
                b":100644 not a change",
                b"-dash",
                b"*?[glob]",
                b"d/...",
            )
        },
        {"moved é".encode(): (FILE, "é/ü ß".encode()), b"d/new\n": (FILE, b"new\nline/x\ty")},
    ],
    "not UTF-8": [
        {b"caf\xe9": (FILE, b"1"), b"dir\xff/x": (FILE, b"2"), b"ok": (FILE, TEXT.encode())},
        {b"ok\xfe": (FILE, TEXT.encode()), b"caf\xe9": (FILE, b"3")},
        {b"back": (FILE, TEXT.encode())},
    ],
    "submodule comes, becomes file, directory, goes": [
        {b"s": (SUBMODULE, POINTS_TO), b"f": (FILE, b"1")},
        {b"s": (FILE, b"now a file")},
        {b"s": (SUBMODULE, POINTS_TO)},
        {b"moved": (SUBMODULE, POINTS_TO)},
        files(moved__x="1"),
        {b"moved": (SUBMODULE, POINTS_TO[::-1])},
        {},
    ],
    "file moves to where a submodule was": [
        {b"s": (SUBMODULE, POINTS_TO), b"f": (FILE, TEXT.encode())},
        {b"s": (FILE, TEXT.encode())},
    ],
    "merges": [
        files(a="1"),
        Revision(files(a="1", b="side"), is_side=True),
        Revision(files(a="1", c="other side"), is_side=True),
        files(a="1", b="side", c="other side", d="by the merge itself"),
        files(b="side"),
    ],
    "one content many times": [files(a=TEXT, b=TEXT, c=TEXT), files(d=TEXT, e__a=TEXT, c=TEXT, c2=TEXT)],
    "inexact rename onto a directory's name": [
        files(d__f=TEXT, g=OTHER),
        files(d=OTHER + "and more\n", x=TEXT),
    ],
}


@pytest.mark.parametrize("name", NASTY)
def test_each_commit_lists_what_git_lists(name: str, tmp_path: Path) -> None:
    assert_history_equals_git(build_repository(tmp_path / "repository", NASTY[name]))


def test_an_exact_rename_is_one_operation(tmp_path: Path) -> None:
    path = build_repository(tmp_path, [files(a__f=TEXT, a__g="1"), files(b__c__f=TEXT, a__g="1")])
    changes = changes_of(assert_history_equals_git(path))
    assert changes == [
        MakeDirectory("git", "history", "b/c"),
        RenameKey("git", "history", "a/f", "b/c/f"),
    ]


def test_an_inexact_rename_is_a_rename_and_a_put(tmp_path: Path) -> None:
    path = build_repository(tmp_path, [files(a=TEXT), files(b=TEXT + "one more line\n")])
    assert [type(change) for change in changes_of(assert_history_equals_git(path))] == [RenameKey, PutKey]


def test_a_change_of_mode_is_no_operation(tmp_path: Path) -> None:
    path = build_repository(tmp_path, NASTY["only the mode"])
    assert changes_of(assert_history_equals_git(path)) == []


def test_only_the_topmost_empty_directory_is_deleted(tmp_path: Path) -> None:
    path = build_repository(tmp_path, [files(a__b__c__d="1", a__b__e="2", k="3"), files(k="3")])
    changes = changes_of(assert_history_equals_git(path))
    assert Counter(map(type, changes)) == {DeleteKey: 2, DeleteDirectory: 1}
    assert changes[-1] == DeleteDirectory("git", "history", "a")


def test_the_number_of_snapshots() -> None:
    assert choose_interval(1) == 1
    for commit_count in range(20, 5000):
        assert 20 <= commit_count // choose_interval(commit_count) <= 40


def test_each_nth_commit_up_to_a_limit(tmp_path: Path) -> None:
    path = build_repository(tmp_path, [files(a=str(number)) for number in range(10)])
    history = GitHistory(path, every=3, max_commits=7)
    assert history.commit_count == 7
    assert [point.commit_number for point in history.snapshots] == [3, 6]
    ledger, _ = play(history)
    assert list(ledger.snapshots) == [point.name for point in history.snapshots]
    assert history.commits_read_count == 7
    assert ledger.active().keys["a"].tag == git(path, "rev-parse", f"{history.last_commit}:a").decode().strip()
    # The operations can be asked for again.
    assert play(history)[0].active() == ledger.active()


def test_tags_on_the_first_parent_history_become_snapshots(tmp_path: Path) -> None:
    path = build_repository(
        tmp_path,
        [
            Revision(files(a="1"), tag="v1.0"),
            Revision(files(a="1", b="2"), is_side=True, tag="on-the-side"),
            Revision(files(a="2"), tag="Release/2.-0_é-", is_tag_annotated=True),
            Revision(files(a="3"), tag="ü"),
            Revision(files(a="4"), tag="x" * 90),
            files(a="5"),
        ],
    )
    history = GitHistory(path, uses_tags=True)
    names = [point.name for point in history.snapshots]
    assert names[:2] == ["c000001-v1.0", "c000002-release-2-0"]
    assert names[2] == f"c000003-{history.snapshots[2].commit[:8]}"
    assert names[3] == "c000004-" + "x" * 55
    assert all(len(name) >= 3 and is_valid_snapshot_name(name) for name in names)
    assert list(play(history)[0].snapshots) == names


def test_no_tags_is_an_error_that_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(GitError, match="by number of commits"):
        GitHistory(build_repository(tmp_path, [files(a="1")]), uses_tags=True)


def test_a_place_without_a_history(tmp_path: Path) -> None:
    assert not GitRepository(tmp_path).has_history()
    git(tmp_path, "init", "--quiet")
    assert not GitRepository(tmp_path).has_history()
    with pytest.raises(GitError, match="whole clone"):
        GitHistory(tmp_path)
    path = build_repository(tmp_path / "repository", [files(a="1")])
    assert GitRepository(path).has_history()
    (path / "unpacked-archive").mkdir()
    assert not GitRepository(path / "unpacked-archive").has_history()


def _without_objects(path: Path) -> None:
    shutil.rmtree(path / ".git" / "objects")
    (path / ".git" / "objects").mkdir()


def _with_another_head(path: Path) -> None:
    (path / ".git" / "HEAD").write_text("nonsense\n")


def _with_a_missing_branch(path: Path) -> None:
    (path / ".git" / "HEAD").write_text("ref: refs/heads/missing\n")


def _with_a_broken_configuration(path: Path) -> None:
    (path / ".git" / "config").write_text("[[\n")


def _removed(path: Path) -> None:
    shutil.rmtree(path)


def _a_file(path: Path) -> None:
    shutil.rmtree(path)
    path.touch()


UNREADABLE = (
    _without_objects, _with_another_head, _with_a_missing_branch, _with_a_broken_configuration, _removed, _a_file,
)  # fmt: skip


@pytest.mark.parametrize("is_inside_another", [False, True])
@pytest.mark.parametrize("damage", UNREADABLE)
def test_a_repository_that_cannot_be_read_is_an_error(
    damage: Callable[[Path], None], is_inside_another: bool, tmp_path: Path
) -> None:
    outer = build_repository(tmp_path / "outer", [files(a="1")]) if is_inside_another else tmp_path
    path = build_repository(outer / "inner", [files(a="1")])
    damage(path)
    with pytest.raises(GitError, match=r"whole clone|root of a clone"):
        GitRepository(path).has_history()


def test_bare_and_shallow_clones(tmp_path: Path) -> None:
    path = build_repository(tmp_path / "origin", [files(a__b=str(number), c="1") for number in range(4)])
    git(tmp_path, "clone", "--quiet", "--bare", str(path), "bare")
    git(tmp_path, "clone", "--quiet", "--depth=2", path.as_uri(), "shallow")
    assert len(GitHistory(tmp_path / "bare").snapshots) == 4
    assert GitRepository(tmp_path / "bare").has_history()
    assert_history_equals_git(tmp_path / "bare")
    assert len(GitHistory(tmp_path / "shallow").snapshots) == 2
    assert_history_equals_git(tmp_path / "shallow")


def test_a_hook_s_environment_does_not_lead_astray(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = build_repository(tmp_path / "meant", [files(a="1")])
    other = build_repository(tmp_path / "other", [files(b="1"), files(b="2")])
    monkeypatch.setenv("GIT_DIR", str(other / ".git"))
    assert GitHistory(path).commit_count == 1


def test_a_clone_without_its_blobs_is_refused(tmp_path: Path) -> None:
    path = build_repository(tmp_path, [files(a="1")])
    blob = git(path, "rev-parse", "HEAD:a").decode().strip()
    pack = next((path / ".git/objects").rglob(f"{blob[2:]}"), None)
    if pack is None:  # packed: unpack first
        packs = list((path / ".git/objects/pack").glob("*.pack"))
        contents = [pack_file.read_bytes() for pack_file in packs]
        for leftover in (path / ".git/objects/pack").iterdir():
            leftover.unlink()
        for content in contents:
            git(path, "unpack-objects", "-q", stdin=content)
        pack = path / ".git/objects" / blob[:2] / blob[2:]
    pack.unlink()
    with pytest.raises(GitError, match="does not have blob"):
        play(GitHistory(path))


@pytest.mark.timeout(60)
def test_a_large_commit_does_not_block_on_its_pipes(tmp_path: Path) -> None:
    tree = {b"d%d/f%d" % (n % 50, n): (FILE, b"content %d" % n) for n in range(6000)}
    assert_history_equals_git(build_repository(tmp_path, [tree]))


def test_a_reader_that_stops_early_leaves_no_process(tmp_path: Path) -> None:
    history = GitHistory(build_repository(tmp_path, [files(a=str(number)) for number in range(20)]))
    operations = history.operations()
    for _ in range(8):
        next(operations)
    operations.close()  # type: ignore[attr-defined]
    assert history.commits_read_count < 20


@pytest.mark.parametrize("option", ["every", "max_commits"])
def test_options_out_of_range(option: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=option):
        GitHistory(tmp_path, **{option: 0})  # type: ignore[arg-type]
