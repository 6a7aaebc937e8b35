"""What directories of links hold, recounted from nothing after each change."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from random import Random

import pytest

from services.storage import linked_files
from services.storage.linked_files import LinkedFiles, file_sizes


def recounted(directories: list[Path], others: set[int]) -> int:
    files: dict[int, int] = {}
    for directory in directories:
        files |= file_sizes(directory)
    return sum(size for number, size in files.items() if number not in others)


@pytest.mark.parametrize("seed", range(20))
def test_each_file_counts_once_whatever_is_linked_and_removed(tmp_path: Path, seed: int) -> None:
    random, linked = Random(seed), LinkedFiles()
    own = tmp_path / "own"
    own.mkdir()
    for number in range(60):
        there = [path for path in tmp_path.iterdir() if path != own]
        what = random.choice(("write", "take", "take", "unlink", "drop"))
        if what == "write":
            (own / f"{number}.sst").write_bytes(b"x" * random.randrange(1_000))
            for old in random.sample(sorted(own.iterdir()), min(len(there), 1)):
                old.unlink()
        elif what == "take":
            (tmp_path / f"taken-{number}").mkdir()
            for file in own.iterdir():
                os.link(file, tmp_path / f"taken-{number}" / file.name)
        elif there and what == "drop":
            shutil.rmtree(random.choice(there))
        elif there and (files := list(random.choice(there).iterdir())):
            random.choice(files).unlink()
        there = [path for path in tmp_path.iterdir() if path != own]
        linked.look(there)
        others = set(file_sizes(own))
        assert linked.bytes_beside(others) == recounted(there, others)


def test_a_directory_that_has_not_changed_is_not_listed_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    listed: list[Path] = []

    def counted(directory: Path) -> dict[int, int]:
        listed.append(directory)
        return file_sizes(directory)

    monkeypatch.setattr(linked_files, "file_sizes", counted)
    linked, long_ago = LinkedFiles(), 10**18
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").write_bytes(b"12345")
        os.utime(tmp_path / name, ns=(long_ago, long_ago))
    for _ in range(3):
        linked.look([tmp_path / "one", tmp_path / "two"])
    assert sorted(listed) == [tmp_path / "one", tmp_path / "two"]
    (tmp_path / "two" / "more").write_bytes(b"123")
    linked.look([tmp_path / "one", tmp_path / "two"])
    assert listed[2:] == [tmp_path / "two"]
    assert linked.bytes_beside(()) == 13


def test_what_changes_within_the_tick_in_which_it_was_listed_is_seen(tmp_path: Path) -> None:
    linked, one = LinkedFiles(), tmp_path / "one"
    one.mkdir()
    (one / "file").write_bytes(b"12345")
    linked.look([one])
    changed = one.stat()
    (one / "more").write_bytes(b"123")
    os.utime(one, ns=(changed.st_atime_ns, changed.st_mtime_ns))
    linked.look([one])
    assert linked.bytes_beside(()) == 8


def test_a_directory_that_is_gone_holds_nothing(tmp_path: Path) -> None:
    linked, one = LinkedFiles(), tmp_path / "one"
    one.mkdir()
    (one / "file").write_bytes(b"12345")
    linked.look([one])
    shutil.rmtree(one)
    linked.look([one])
    assert linked.bytes_beside(()) == 0
    linked.look([])
    assert linked.bytes_beside(()) == 0
