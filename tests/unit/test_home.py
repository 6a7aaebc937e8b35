"""What a home says of itself."""

from __future__ import annotations

from pathlib import Path

from services.plane.machine.home import kept_shards
from services.plane.stack.stack import Stack


def test_a_plane_has_as_many_shards_as_its_home_has_data_of(tmp_path: Path) -> None:
    assert (kept_shards(tmp_path), Stack(tmp_path).shards) == (1, 1)
    for place in ("metadata/0", "snapshots/0", "snapshots/2", "streaming/offsets"):
        (tmp_path / "data" / place).mkdir(parents=True)
    assert (kept_shards(tmp_path), Stack(tmp_path).shards, Stack(tmp_path, 5).shards) == (3, 3, 5)
