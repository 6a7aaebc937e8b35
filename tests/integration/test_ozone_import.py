"""``deepclean import ozone`` into a running plane: it lists, compares and counts what the database and the lens say."""

from __future__ import annotations

import json
import tarfile
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from schemas.records import Settle
from services.cli.main import app
from services.cli.session import Session
from services.client.tasks.volume_shards import VolumeShards
from services.plane.stack.stack import Stack
from tests.imported_buckets import check_listings_and_diffs, figures_of_lens, figures_of_plane
from tests.ozone_databases import LEGACY, OzoneDatabase, key_info
from tests.ozone_reading import Read
from tests.unit.test_import_command import changing_tree, rename

pytestmark = [pytest.mark.broker, pytest.mark.spark, pytest.mark.timeout(600)]
SAMPLE = Path(__file__).parents[1] / "lens_samples" / "om-2.2.0-sample.tar.gz"
KEYS = 1_500


def imported(stack: Stack, location: Path) -> Any:
    """Import with the command; what it says as JSON."""
    result = CliRunner().invoke(app, ["import", "ozone", str(location), "--json"], obj=Session(stack.home))
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def check(stack: Stack, location: Path, read_at: Path, scratch: Path) -> list[Any]:
    """Import a database, and compare everything; what was said of each bucket."""
    found = Read(read_at, scratch / "lens")
    said = imported(stack, location)
    assert said["refused"] == 0
    with stack.client() as plane:
        shard = VolumeShards(plane).shard_of(found.plan.buckets[0].keys.volume.decode())
        plane.request(shard, Settle(f"imported-{location.name}"))
        for bucket in found.plan.buckets:
            target = (bucket.keys.volume.decode(), bucket.keys.bucket.decode())
            check_listings_and_diffs(plane, bucket, target, scratch)
            assert figures_of_plane(plane, target) == figures_of_lens(found, bucket.keys.name)
    return [one["notes"] for one in said["buckets"]]


def test_the_database_of_a_real_ozone(shared_stack: Stack, tmp_path: Path) -> None:
    with tarfile.open(SAMPLE) as archive:
        archive.extractall(tmp_path, filter="data")
    for notes in check(shared_stack, SAMPLE, tmp_path / "omdb-sample", tmp_path):
        assert "Snapshot snap-s2 is left out: it is deleted, and waits to be purged." in notes


def changing_keys(database: OzoneDatabase) -> None:
    """A LEGACY bucket: before each snapshot keys change places, are overwritten, deleted and put."""
    keys = database.bucket("legacy", 2_000, LEGACY)
    rows = [
        key_info(keys, f"d{number % 7}/k{number:04}", 3_000 + number, [(number, 1_000 + number)], factor=3)
        for number in range(KEYS)
    ]
    for row in rows:
        database.live(keys, row)
    for number in range(3):
        database.snapshot(keys, f"state-{number}", 10_000 + 2_000 * number, 70 + number)
        moment = 10_500 + 2_000 * number
        first, second = rows[number], rows[100 + number]
        names = first.name.decode(), second.name.decode()
        rename(database, keys, first, f"between-{number}", 0, moment)
        rename(database, keys, second, names[0], 0, moment + 1)
        database.remove(keys, first)
        first.name, first.update_id = names[1].encode(), moment + 2
        database.live(keys, first)
        for place in range(200 + number, 600, 10):
            before = rows[place]
            database.deleted(keys, moment + 3, before, key=keys.by_name + b"%b/%d" % (before.name, moment))
            rows[place] = key_info(
                keys,
                before.name.decode(),
                moment + 3,
                [(100_000 + 1_000 * number + place, 7)],
                object_id=before.object_id,
            )
            database.live(keys, rows[place])
        for place in range(600 + number, 1_000, 5):
            database.deleted(keys, rows[place].object_id, rows[place])
            database.remove(keys, rows[place])
            rows[place] = key_info(
                keys, f"new-{number}/{place}", moment + 4 + place, [(200_000 + 1_000 * number + place, 9)]
            )
            database.live(keys, rows[place])


@pytest.mark.long
def test_a_made_database_with_renames_overwrites_deletions_and_erasure_codes(
    shared_stack: Stack, tmp_path: Path
) -> None:
    database = OzoneDatabase(tmp_path / "om")
    changing_tree(database)
    changing_keys(database)
    location = database.close()
    assert check(shared_stack, location, location, tmp_path) == [[], []]
