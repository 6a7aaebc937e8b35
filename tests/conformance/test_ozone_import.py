"""Recorded databases of a real Ozone 2.2.0, imported into a plane in memory: it shows what they show."""

from __future__ import annotations

import json
import re
import tarfile
from pathlib import Path

import pytest

from schemas.records import Settle
from services.cli.lens.importing import Importer
from services.client.tasks.volume_shards import VolumeShards
from services.plane.in_memory.client import InMemoryClient
from services.plane.in_memory.plane import InMemoryPlane
from streaming.lens.ozone import states
from tests.conformance.test_ozone_recordings import NAMES, RECORDINGS
from tests.imported_buckets import (
    check_listings_and_diffs,
    figures_of_lens,
    figures_of_plane,
    figures_of_states,
    total,
)
from tests.ozone_reading import Read


def imported(location: Path, scratch: Path, monkeypatch: pytest.MonkeyPatch) -> Importer:
    """Import a database in this process."""
    plane = InMemoryClient(InMemoryPlane(shards=1))
    importer = Importer(plane, VolumeShards(plane))
    monkeypatch.setattr(states, "say", lambda **line: importer.hear(json.loads(json.dumps(line))))
    scratch.mkdir()
    states.send(str(location), "", "", scratch)
    assert (importer.refused, importer.examples) == (0, [])
    plane.request(0, Settle("after-import"))
    return importer


LENS_DIFFERS = {("g018", "g018v1/bucket-b1"), ("g951", "g951v1/bucket-b2")}
"""Snapshots here read blocks that Ozone has freed, or will free: its rows of an hsynced key differ."""


LEFT_OUT = re.compile(r"deleted versions that no snapshot holds are left out: (\d+) bytes, (\d+) on disks")
CHOSEN = sorted({*NAMES[::3], *(name for name, _ in LENS_DIFFERS)})
"""Some of the recordings, since each takes seconds. The others were imported, too, and their figures are the lens'."""


@pytest.mark.long
@pytest.mark.parametrize("name", CHOSEN)
def test_a_recorded_database_is_shown_as_it_was(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with tarfile.open(RECORDINGS / f"{name}.tar.xz") as archive:
        archive.extractall(tmp_path / "om", filter="data")
    found = Read(tmp_path / "om", tmp_path / "lens")
    importer = imported(tmp_path / "om", tmp_path / "import", monkeypatch)
    assert [one.bucket for one in importer.done] == [bucket.keys.name for bucket in found.plan.buckets]
    for bucket, done in zip(found.plan.buckets, importer.done, strict=True):
        volume, _, short = bucket.keys.name.partition("/")
        states = check_listings_and_diffs(importer.plane, bucket, (volume, short), tmp_path)
        figures = figures_of_plane(importer.plane, (volume, short))
        assert figures == figures_of_states(states)  # all of the recorded keys have one copy
        lens = figures_of_lens(found, bucket.keys.name)
        is_different = (name, bucket.keys.name) in LENS_DIFFERS
        assert (figures != lens) is is_different
        if not is_different and not any("no directory leads to" in note for note in done.notes):
            pending = [row for row in found.things(bucket.keys.name) if not row["runs"]]
            said = [tuple(map(int, one.groups())) for one in map(LEFT_OUT.search, done.notes) if one]
            assert total(said) == total((row["bytes"], row["replicated_bytes"]) for row in pending)
