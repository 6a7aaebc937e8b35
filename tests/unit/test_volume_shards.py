"""Volumes are created where least is kept and done, and each name in one shard, whoever repeats what."""

from __future__ import annotations

import pytest

from schemas.records import CreateVolume, DeleteVolume
from services.client.errors import PlaneError
from services.client.tasks.volume_shards import VolumeShards
from services.plane.in_memory.client import InMemoryClient
from services.plane.in_memory.plane import InMemoryPlane


def create(client: InMemoryClient, volume: str, shard: int) -> str:
    return client.answer(shard, client.submit(shard, CreateVolume(volume))).error


def client_of(plane: InMemoryPlane, name: str = "client") -> InMemoryClient:
    return InMemoryClient(plane, name)


def test_volumes_of_a_new_plane_are_spread() -> None:
    plane = InMemoryPlane(4)
    client = client_of(plane)
    volumes = VolumeShards(client)
    found = []
    for number in range(8):
        shard = volumes.shard_for_new(f"volume-{number}", None)
        assert create(client, f"volume-{number}", shard) == ""
        found.append(shard)
    assert sorted(found) == [0, 0, 1, 1, 2, 2, 3, 3]


def test_a_client_that_was_there_before_uses_added_shards() -> None:
    plane = InMemoryPlane(1)
    client = client_of(plane)
    volumes = VolumeShards(client)
    for number in range(3):
        assert create(client, f"old-{number}", volumes.shard_for_new(f"old-{number}", None)) == ""
    other = VolumeShards(client_of(plane, "other"))
    assert other.shard_of("old-0") == 0
    plane.add_shards(3)
    assert {volumes.shard_of(f"old-{number}") for number in range(3)} == {0}
    shards = []
    for number in range(2):
        shards.append(volumes.shard_for_new(f"new-{number}", None))
        assert create(client, f"new-{number}", shards[-1]) == ""
    assert sorted(shards) == [1, 2]
    assert [other.shard_of(f"new-{number}") for number in range(2)] == shards, "it has not heard of the shards before"


def test_a_repeat_after_shards_were_added_goes_where_the_first_try_went() -> None:
    """The first try has chosen a shard, and its command is still on the way."""
    plane = InMemoryPlane(1)
    first, second = client_of(plane, "first"), client_of(plane, "second")
    chosen = VolumeShards(first).shard_for_new("photos", None)
    plane.add_shards(4)
    again = VolumeShards(second).shard_for_new("photos", None)
    assert again == chosen
    assert [create(second, "photos", again), create(first, "photos", chosen)] == ["", "VOLUME_ALREADY_EXISTS"]


def test_two_that_create_a_volume_at_once_get_one() -> None:
    plane = InMemoryPlane(2)
    one, other = client_of(plane, "one"), client_of(plane, "other")
    shard = VolumeShards(one).shard_for_new("photos", None)
    for number in range(5):  # now the other shard has less
        create(one, f"busy-{number}", shard)
    assert VolumeShards(other).shard_for_new("photos", None) == shard


def test_a_name_stays_in_its_shard_when_its_volume_is_deleted() -> None:
    plane = InMemoryPlane(2)
    client = client_of(plane)
    volumes = VolumeShards(client)
    assert create(client, "photos", volumes.shard_for_new("photos", 1)) == ""
    with pytest.raises(PlaneError, match="exists in shard 1"):
        volumes.shard_for_new("photos", None)
    assert client.answer(1, client.submit(1, DeleteVolume("photos"))).error == ""
    with pytest.raises(PlaneError, match="has belonged to shard 1 since a volume was first created with it"):
        volumes.shard_for_new("photos", 0)
    assert volumes.shard_for_new("photos", None) == 1


def test_a_volume_of_an_older_program_is_found_without_a_message() -> None:
    plane = InMemoryPlane(3)
    client = client_of(plane)
    assert create(client, "photos", 2) == ""
    volumes = VolumeShards(client)
    assert volumes.shard_of("photos") == 2
    with pytest.raises(PlaneError, match="exists in shard 2"):
        volumes.shard_for_new("photos", None)
    with pytest.raises(PlaneError, match="there is no volume films"):
        volumes.shard_of("films")
    with pytest.raises(PlaneError, match="shard 3 is not one of the 3 of this plane"):
        volumes.shard_for_new("films", 3)


def test_a_name_that_somebody_has_given_to_a_missing_shard_is_refused() -> None:
    plane = InMemoryPlane(2)
    client = client_of(plane)
    client.place_volume("photos", 700)
    with pytest.raises(PlaneError, match="belongs to shard 700, which is not there"):
        VolumeShards(client).shard_for_new("photos", None)
