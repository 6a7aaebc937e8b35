"""Git as a source of the lens: its relation is what ``git ls-tree`` lists of each snapshot."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import combinations
from pathlib import Path
from random import Random

import pytest

from services.lens.questions import BucketQuestions, one_bucket
from services.lens.relation import RefKind
from services.lens.report import Report
from services.workloads.git_command import GitError
from streaming.lens.git.source import HISTORY, TAGS, read
from tests.git_builder import FILE, Revision, build_repository, files, listed_by_git
from tests.lens_histories import random_repository, sizes_in_git
from tests.lens_reports import write_report


def questions(repository: Path, directory: Path, bucket: str) -> BucketQuestions:
    found, things = read(repository, bucket)
    return one_bucket(Report(write_report(directory, [found], things)))


def test_every_answer_is_what_git_lists(tmp_path: Path, seed: int) -> None:
    """Contents come back and move between a few paths, so that many things have several runs."""
    repository = random_repository(tmp_path / "repository", Random(seed))
    for bucket in (HISTORY, TAGS):
        asked = questions(repository, tmp_path / bucket, bucket)
        listed = [sizes_in_git(repository, ref.id) for ref in asked.bucket.refs]
        space = asked.space()
        assert space.live_bytes == sum(listed[-1].values())
        ever: Mapping[tuple[str, str], int] = {thing: size for one in listed for thing, size in one.items()}
        assert space.held_bytes == sum(size for thing, size in ever.items() if thing not in listed[-1])
        for place, one in enumerate(space.snapshots):
            others = {thing for other, names in enumerate(listed) if other != place for thing in names}
            assert one.referenced_bytes == sum(listed[place].values())
            assert one.exclusive_bytes == sum(size for thing, size in listed[place].items() if thing not in others)
            assert one.shared_with_next_bytes == sum(
                size for thing, size in listed[place].items() if thing in listed[place + 1]
            )
        names = [one.name for one in space.snapshots]
        for dropped in combinations(range(len(names)), 3):
            kept = {thing for place, one in enumerate(listed) if place not in dropped for thing in one}
            freed = asked.what_if([names[place] for place in dropped])
            assert freed.freed_bytes == sum(size for thing, size in ever.items() if thing not in kept)
            assert freed.freed_versions == sum(thing not in kept for thing in ever)


def test_refs_are_commits_with_their_times(tmp_path: Path) -> None:
    revisions = [Revision(files(a="1"), tag="v1"), Revision(files(a="22")), Revision(files(b="22"), tag="v2")]
    bucket, things = read(build_repository(tmp_path, revisions), TAGS)
    assert [(ref.name.partition("-")[2], ref.kind, ref.time_ms) for ref in bucket.refs] == [
        ("v1", RefKind.SNAPSHOT, 1000 * (10**9 + 1)),
        ("v2", RefKind.SNAPSHOT, 1000 * (10**9 + 3)),
        ("", RefKind.ACTIVE, 1000 * (10**9 + 3)),
    ]
    assert {(one.path, one.bytes, one.runs) for one in things} == {("a", 1, ((0, 0),)), ("b", 2, ((1, 2),))}


def test_paths_that_are_no_text_are_left_out_with_a_note(tmp_path: Path) -> None:
    repository = build_repository(tmp_path, [{b"\xff": (FILE, b"12345"), b"a": (FILE, b"1")}])
    bucket, things = read(repository, HISTORY)
    assert [one.path for one in things] == ["a"] == list(listed_by_git(repository, "HEAD"))
    assert bucket.not_looked_for[0].startswith("Nothing is looked for in a git repository")
    assert bucket.notes == ("2 files whose paths are not UTF-8 are left out; all others are counted.",)


def test_what_is_no_repository_is_refused(tmp_path: Path) -> None:
    with pytest.raises(GitError, match="There is no directory"):
        read(tmp_path / "nowhere", HISTORY)
    with pytest.raises(GitError, match="is no git repository: name the root of a clone"):
        read(tmp_path, HISTORY)
    repository = build_repository(tmp_path / "repository", [files(a="1")])
    with pytest.raises(GitError, match="has no bucket main: name history or tags"):
        read(repository, "main")
    with pytest.raises(GitError, match="no tag lies on the first-parent history"):
        read(repository, TAGS)
