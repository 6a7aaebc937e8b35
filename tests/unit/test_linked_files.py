"""What directories of links hold, recounted from nothing after each change."""

from __future__ import annotations

import os
import shutil
from itertools import count
from pathlib import Path
from random import Random

import pytest

from services.storage import linked_files
from services.storage.linked_files import LinkedFiles, file_sizes

LONG_AGO_NS = 10**18


def changed_at(directory: Path, at_ns: int) -> None:
    os.utime(directory, ns=(at_ns, at_ns))


def recounted(directories: list[Path], others: set[int]) -> int:
    files: dict[int, int] = {}
    for directory in directories:
        files |= file_sizes(directory)
    return sum(size for number, size in files.items() if number not in others)


@pytest.mark.parametrize("seed", range(20))
def test_each_file_counts_once_whatever_is_linked_and_removed(tmp_path: Path, seed: int) -> None:
    random, linked, times = Random(seed), LinkedFiles(), count(LONG_AGO_NS)
    own = tmp_path / "own"
    own.mkdir()
    for number in range(60):
        taken = sorted(path for path in tmp_path.iterdir() if path != own)
        chosen = random.choice(taken) if taken else None
        what = random.choice(("write", "take", "take", "unlink", "drop"))
        if what == "write":
            (own / f"{number}.sst").write_bytes(b"x" * random.randrange(1_000))
            for old in random.sample(sorted(own.iterdir()), min(len(taken), 1)):
                old.unlink()
        elif what == "take":
            chosen = tmp_path / f"taken-{number}"
            chosen.mkdir()
            for file in own.iterdir():
                os.link(file, chosen / file.name)
        elif chosen and what == "drop":
            shutil.rmtree(chosen)
        elif chosen and (files := sorted(chosen.iterdir())):
            random.choice(files).unlink()
        if chosen and chosen.exists():
            changed_at(chosen, next(times))
        taken = [path for path in tmp_path.iterdir() if path != own]
        linked.look(taken)
        others = set(file_sizes(own))
        assert linked.bytes_beside(others) == recounted(taken, others)


def test_a_directory_is_listed_again_when_it_has_changed_and_only_then(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    listed: list[str] = []

    def noted(directory: Path) -> dict[int, int]:
        listed.append(directory.name)
        return file_sizes(directory)

    monkeypatch.setattr(linked_files, "file_sizes", noted)
    linked, one, two = LinkedFiles(), tmp_path / "one", tmp_path / "two"
    for directory in (one, two):
        directory.mkdir()
        (directory / "file").write_bytes(b"12345")
        changed_at(directory, LONG_AGO_NS)
    for _ in range(3):
        linked.look([one, two])
    assert listed == ["one", "two"]
    (two / "more").write_bytes(b"123")
    changed_at(two, LONG_AGO_NS + 1)
    linked.look([one, two])
    assert listed == ["one", "two", "two"]
    assert linked.bytes_beside(()) == 13


def test_what_changes_in_the_tick_in_which_a_directory_was_listed_is_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    linked, one = LinkedFiles(), tmp_path / "one"
    one.mkdir()
    (one / "file").write_bytes(b"12345")
    linked.look([one])
    changed_ns = one.stat().st_mtime_ns
    (one / "more").write_bytes(b"123")
    changed_at(one, changed_ns)
    monkeypatch.setattr(linked_files, "time_ns", lambda: changed_ns + 5_000_000_000)
    linked.look([one])
    assert linked.bytes_beside(()) == 8


def test_a_directory_that_is_removed_holds_nothing(tmp_path: Path) -> None:
    linked, one = LinkedFiles(), tmp_path / "one"
    one.mkdir()
    (one / "file").write_bytes(b"12345")
    linked.look([one])
    shutil.rmtree(one)
    linked.look([one])
    assert linked.bytes_beside(()) == 0
    linked.look([])
    assert linked.bytes_beside(()) == 0
