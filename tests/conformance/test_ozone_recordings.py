"""What a real Ozone 2.2.0 freed after snapshots were dropped is what the lens foretells, block by block.

Each recording is an Ozone Manager's database before the drop, and what Ozone's services then had deleted because of
it, and what they would have deleted anyway.
"""

from __future__ import annotations

import json
import tarfile
from pathlib import Path
from typing import Any

import pytest

from streaming.lens.ozone.checkpoints import unpacked
from streaming.lens.ozone.layout import OzoneLocationError
from tests.ozone_reading import Read

RECORDINGS = Path(__file__).parents[1] / "lens_samples" / "recordings"
NAMES = sorted(file.name.removesuffix(".expected.json") for file in RECORDINGS.glob("*.expected.json"))
CHECKPOINTS = ("g003-dbCheckpoint.tar.xz", "g003-v2-dbCheckpoint.tar.xz")


def foretold(found: Read, bucket: str, dropped: list[str]) -> tuple[dict[str, int], dict[str, int]]:
    """The blocks with their lengths that go because of a drop, and those that go anyway."""
    plan = found.bucket(bucket)
    snapshots = [plan.stores[number].snapshot for number in plan.held_places]
    places = {place for place, snapshot in enumerate(snapshots) if snapshot is not None and snapshot.name in dropped}
    blocks = found.blocks(bucket)
    because = {name: size for name, (size, held) in blocks.items() if held and held <= places}
    return because, {name: size for name, (size, held) in blocks.items() if not held}


def expected(name: str) -> dict[str, Any]:
    said: dict[str, Any] = json.loads((RECORDINGS / f"{name}.expected.json").read_text("utf-8"))
    return said


def check(found: Read, said: dict[str, Any]) -> int:
    """Compare all buckets; the number of blocks that went because of the drop."""
    count = 0
    for bucket, one in said["buckets"].items():
        because, anyway = foretold(found, bucket, one["dropped"])
        assert set(because) == {block for block, _, _ in one["freed_blocks_because_of_drop"]}, bucket
        assert set(anyway) == {block for block, _, _ in one["freed_without_drop_blocks"]}, bucket
        # The sizes that Ozone hands on: a block that was allocated and never written has one, too.
        assert sum(because.values()) == one["told_scm_bytes_because_of_drop"], bucket
        assert sum(anyway.values()) == one["told_scm_bytes_without_drop"], bucket
        count += len(because)
    return count


def test_there_are_a_dozen_recordings() -> None:
    assert len(NAMES) >= 12
    assert sum(len(one["dropped"]) for name in NAMES for one in expected(name)["buckets"].values()) > 12


@pytest.mark.parametrize("name", NAMES)
def test_what_a_real_ozone_freed_was_foretold(name: str, tmp_path: Path) -> None:
    with tarfile.open(RECORDINGS / f"{name}.tar.xz") as archive:
        archive.extractall(tmp_path / "om", filter="data")
    check(Read(tmp_path / "om", tmp_path / "scratch"), expected(name))


@pytest.mark.parametrize("name", CHECKPOINTS)
def test_a_checkpoint_is_put_together(name: str, tmp_path: Path) -> None:
    """The bodies that the two endpoints of a running Ozone Manager sent."""
    directory = unpacked(RECORDINGS / name, tmp_path)
    assert check(Read(directory, tmp_path / "scratch"), expected("g003")) > 0


@pytest.mark.parametrize("name", CHECKPOINTS)
def test_a_checkpoint_that_is_cut_short_or_not_complete_is_refused(name: str, tmp_path: Path) -> None:
    content = (RECORDINGS / name).read_bytes()
    cut = tmp_path / "cut.tar.xz"
    cut.write_bytes(content[: len(content) // 2])
    with pytest.raises(OzoneLocationError, match=r"cut\.tar\.xz is cut short"):
        unpacked(cut, tmp_path)
    part = tmp_path / "part.tar"
    with tarfile.open(RECORDINGS / name) as whole, tarfile.open(part, "w") as target:
        for member in whole:
            if member.name != "OZONE_RATIS_SNAPSHOT_COMPLETE":
                target.addfile(member, whole.extractfile(member))
    (tmp_path / "other").mkdir()
    with pytest.raises(OzoneLocationError, match="only a part of a checkpoint"):
        unpacked(part, tmp_path / "other")
