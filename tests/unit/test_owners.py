"""Users and their volumes, and other owners, on one shard of metadata."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from schemas.feature_level import confirmation
from schemas.records import CreateVolume, DeleteVolume, MetadataCommand, SetFeatureLevel, SetOwner
from schemas.topics import DEAD_LETTERS
from services.domain.refusals import CommandError
from services.metadata.reads import queries
from services.metadata.recovery.digest import digest_shard
from services.storage.tables import TablesReader
from tests.shard_copies import rebuilt_digest
from tests.unit.test_metadata import Shard
from tests.unit.test_quotas import shard as newest_shard

shard = newest_shard


def volumes_of(shard: Shard, user: str, after: str = "", limit: int = 10) -> list[str]:
    return [row.volume for row in queries.list_volumes_of(TablesReader(shard.store), user, after, limit)]


def test_a_user_has_the_volumes_that_were_made_for_it_and_not_deleted(shard: Shard) -> None:
    for name in ("one", "two", "three"):
        shard.do(CreateVolume(name, "ann"))
    shard.do(CreateVolume("four", "ann/x"))
    shard.do(DeleteVolume("two"))
    assert volumes_of(shard, "ann") == ["one", "three"]
    assert volumes_of(shard, "ann", "one", 1) == ["three"]
    assert volumes_of(shard, "ann/x") == ["four"]
    assert not volumes_of(shard, "an")


def test_a_volume_moves_to_its_new_owner(shard: Shard) -> None:
    shard.do(CreateVolume("one", "ann"))
    assert shard.refusal(SetOwner("one", "", "bob")) == ""
    assert (volumes_of(shard, "ann"), volumes_of(shard, "bob")) == ([], ["one"])
    assert shard.refusal(SetOwner("one", "", "")) == ""
    assert not volumes_of(shard, "bob")


def test_a_bucket_has_an_owner_of_its_own(shard: Shard) -> None:
    assert shard.refusal(SetOwner("vol", "flat", "bob")) == ""
    assert queries.get_bucket(TablesReader(shard.store), "vol", "flat").owner == "bob"


def test_what_is_missing_or_too_long_is_refused(shard: Shard) -> None:
    assert shard.refusal(SetOwner("none", "", "bob")) == "VOLUME_NOT_FOUND"
    assert shard.refusal(SetOwner("vol", "none", "bob")) == "BUCKET_NOT_FOUND"
    assert shard.refusal(SetOwner("vol", "", "b" * 256)) == "INVALID_REQUEST"


@pytest.fixture
def older_shard() -> Iterator[Shard]:
    made = Shard()
    yield made
    assert not made.sent(DEAD_LETTERS)


def test_a_shard_of_an_older_level_has_no_users_until_the_upgrade_is_finished(older_shard: Shard) -> None:
    older_shard.do(CreateVolume("one", "ann"))
    with pytest.raises(CommandError, match="upgrade finish"):
        volumes_of(older_shard, "ann")
    command = MetadataCommand(0, "", 0, SetFeatureLevel(2, confirmation(2)), wants_reply=False)
    older_shard.send(command)
    older_shard.runner.step()
    assert volumes_of(older_shard, "ann") == ["one"]
    assert rebuilt_digest(older_shard.log, 2) == digest_shard(older_shard.store)
