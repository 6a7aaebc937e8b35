"""Who may let the collector go on: nobody undoes what an administrator has said, and names are not rights."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from schemas.answers import CollectionStatus
from schemas.records import (
    Acl,
    AclIdentity,
    AclObject,
    AclRight,
    AclScope,
    AddAcl,
    BreakerLimits,
    BucketLayout,
    CollectionState,
    CreateBucket,
    CreateVolume,
    DeleteBucket,
    DeleteDirectory,
    DeleteKey,
    DeleteVolume,
    PutKey,
    ResetBreaker,
    SetBreaker,
    SetCollection,
    Settle,
)
from services.directory_deletion.settings import DirectoryDeletionSettings
from services.log.signing import Signer
from services.metadata.reads.collection_queries import collection_status
from services.plane.in_memory import plane as in_memory
from services.plane.in_memory.client import InMemoryClient
from services.storage.tables import TablesReader
from tests.unit.test_unauthorized_commands import BUCKET, SECRETS, VOLUME, SecuredPlane

RUNNING, PAUSED, SHADOW = CollectionState.RUNNING, CollectionState.PAUSED, CollectionState.SHADOW
NO_LIMIT, NOTHING_AT_ALL = BreakerLimits(0, 0, 0), BreakerLimits(1, 0, 0)


class Office:
    """A secured plane where ann owns the volume, and people who say things of its collector."""

    def __init__(self) -> None:
        self.secured = SecuredPlane(has_snapshot=False)
        plane = self.secured.plane
        self.clients = {
            name: InMemoryClient(plane, f"{name}/harness", Signer(name, SECRETS[name]))
            for name in ("root", "ann", "bob")
        }
        self.settles = 0

    def says(self, who: str, body: Any) -> str:
        client = self.clients[who]
        return client.answer(0, client.submit(0, body)).error

    def root_says(self, *bodies: Any) -> None:
        for body in bodies:
            assert not self.says("root", body)

    def settle(self) -> None:
        self.settles += 1
        assert not self.clients["root"].request(0, Settle(f"settle-{self.settles}")).error

    def lines(self) -> list[CollectionStatus]:
        tables = TablesReader(self.secured.plane.processes["metadata", 0].store)
        return collection_status(tables, VOLUME, BUCKET)[1:]

    def deleted_line(self) -> CollectionStatus:
        (deleted,) = [line for line in self.lines() if line.is_deleted]
        return deleted

    def paused_where_bob_may_not_resume(self) -> CollectionStatus:
        """Return the line of the deleted bucket, of which bob could let nothing go."""
        assert not self.says("bob", CreateBucket(VOLUME, BUCKET, BucketLayout.OBJECT_STORE))
        assert not self.says("bob", said(RUNNING)), "of his own bucket he may"
        assert self.says("bob", said(RUNNING, self.deleted_line().bucket_id)) == "PERMISSION_DENIED"
        self.settle()
        deleted = self.deleted_line()
        assert (deleted.state, deleted.pending_versions) == (PAUSED, 1)
        return deleted


@pytest.fixture
def office() -> Office:
    return Office()


def said(state: CollectionState, bucket_id: int = 0) -> SetCollection:
    return SetCollection(VOLUME, BUCKET, state, "said", bucket_id=bucket_id)


@pytest.mark.parametrize("suspended", [PAUSED, SHADOW])
@pytest.mark.parametrize(
    ("first", "second", "error"),
    [("root", "ann", "PERMISSION_DENIED"), ("ann", "ann", ""), ("ann", "root", ""), ("root", "root", "")],
)
def test_only_an_administrator_undoes_what_one_has_set(
    office: Office, suspended: CollectionState, first: str, second: str, error: str
) -> None:
    assert not office.says(first, said(suspended))
    assert office.says(second, said(RUNNING)) == error
    assert office.lines()[0].state is (suspended if error else RUNNING)


def test_an_owner_pauses_again_once_an_administrator_has_resumed(office: Office) -> None:
    for who, state in (("root", PAUSED), ("root", RUNNING), ("ann", PAUSED), ("ann", RUNNING)):
        assert not office.says(who, said(state))


def test_an_owner_exempts_no_bucket_from_the_limits_for_all(office: Office) -> None:
    office.root_says(SetBreaker("", "", NOTHING_AT_ALL))
    assert not office.says("ann", SetBreaker(VOLUME, BUCKET, NO_LIMIT))
    assert not office.says("ann", DeleteKey(VOLUME, BUCKET, "key"))
    office.settle()
    assert office.lines()[0].state is CollectionState.TRIPPED
    assert office.says("ann", ResetBreaker(VOLUME, BUCKET, "let me")) == "PERMISSION_DENIED"
    assert not office.says("root", ResetBreaker(VOLUME, BUCKET, "it was meant"))
    office.settle()
    assert office.lines()[0].pending_versions == 0


def test_an_administrator_exempts_a_bucket_and_its_owner_leaves_it_so(office: Office) -> None:
    office.root_says(SetBreaker("", "", NOTHING_AT_ALL), SetBreaker(VOLUME, BUCKET, NO_LIMIT))
    assert office.says("ann", SetBreaker(VOLUME, BUCKET, None)) == "PERMISSION_DENIED"
    assert not office.says("ann", DeleteKey(VOLUME, BUCKET, "key"))
    office.settle()
    assert office.lines()[0].pending_versions == 0


def test_an_owner_resets_what_only_his_own_limits_have_tripped(office: Office) -> None:
    assert not office.says("ann", SetBreaker(VOLUME, BUCKET, NOTHING_AT_ALL))
    assert not office.says("ann", DeleteKey(VOLUME, BUCKET, "key"))
    office.settle()
    assert office.lines()[0].state is CollectionState.TRIPPED
    assert not office.says("ann", ResetBreaker(VOLUME, BUCKET, "it was meant"))


def test_whoever_gets_the_name_of_a_volume_frees_nothing_of_the_one_before(office: Office) -> None:
    assert not office.says("ann", said(PAUSED))
    for body in (DeleteKey(VOLUME, BUCKET, "key"), DeleteBucket(VOLUME, BUCKET), DeleteVolume(VOLUME)):
        assert not office.says("ann", body)
    office.root_says(CreateVolume(VOLUME, "bob"))
    assert office.says("bob", said(RUNNING)) == "PERMISSION_DENIED"
    deleted = office.paused_where_bob_may_not_resume()
    office.root_says(said(RUNNING, deleted.bucket_id))
    office.settle()
    assert not any(line.pending_versions for line in office.lines())


def test_the_owner_of_a_new_bucket_lets_none_of_that_name_go_which_was_deleted(office: Office) -> None:
    assert not office.says("ann", said(PAUSED))
    for body in (DeleteKey(VOLUME, BUCKET, "key"), DeleteBucket(VOLUME, BUCKET)):
        assert not office.says("ann", body)
    rights = Acl(AclIdentity.USER, "bob", (AclRight.ALL,), AclScope.ACCESS)
    assert not office.says("ann", AddAcl(AclObject.VOLUME, VOLUME, "", "", rights))
    deleted = office.paused_where_bob_may_not_resume()
    assert not office.says("ann", said(RUNNING, deleted.bucket_id)), "she owns the volume"


def test_a_deleted_bucket_is_suspended_alone_by_its_id(office: Office) -> None:
    office.root_says(SetCollection("", "", PAUSED, "for a moment"))
    for body in (DeleteKey(VOLUME, BUCKET, "key"), DeleteBucket(VOLUME, BUCKET)):
        assert not office.says("ann", body)
    assert office.says("root", said(PAUSED)) == "BUCKET_NOT_FOUND", "by its name it is not found"
    (deleted,) = office.lines()
    assert office.says("root", said(PAUSED, deleted.bucket_id + 1)) == "BUCKET_NOT_FOUND"
    assert office.says("root", SetCollection("", "", PAUSED, "", bucket_id=deleted.bucket_id)) == "INVALID_REQUEST"
    office.root_says(said(PAUSED, deleted.bucket_id), SetCollection("", "", RUNNING, ""))
    office.settle()
    assert [line.pending_versions for line in office.lines()] == [1]


def test_a_deleted_bucket_has_limits_by_the_hour(office: Office) -> None:
    office.root_says(SetBreaker("", "", BreakerLimits(1, 0, 0)))
    for body in (DeleteKey(VOLUME, BUCKET, "key"), DeleteBucket(VOLUME, BUCKET)):
        assert not office.says("ann", body)
    office.settle()
    assert [(line.state, line.pending_versions) for line in office.lines()] == [(CollectionState.TRIPPED, 1)]


def test_one_reset_lets_a_whole_tree_go(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is below it was deleted with it, and seen with it, however late it comes out."""
    slowly = partial(DirectoryDeletionSettings, max_page_entries=12, max_expansions_in_flight=2)
    monkeypatch.setattr(in_memory, "DirectoryDeletionSettings", slowly)
    office = Office()
    for number in range(12 * 6 * 3):
        path = f"top/d{number % 12}/e{number % 72}/f{number}"
        assert not office.says("ann", PutKey(VOLUME, BUCKET, path, 1_000))
    office.root_says(SetBreaker(VOLUME, BUCKET, BreakerLimits(5, 0, 0)))
    assert not office.says("ann", DeleteDirectory(VOLUME, BUCKET, "top", is_recursive=True))
    office.settle()
    (line,) = office.lines()
    assert line.state is CollectionState.TRIPPED
    assert line.unexpanded_directories
    office.root_says(ResetBreaker(VOLUME, BUCKET, "it was meant"))
    office.settle()
    (line,) = office.lines()
    assert (line.state, line.pending_versions, line.unexpanded_directories) == (RUNNING, 0, 0)
    assert line.hour is not None
    assert (line.hour.claimed_versions, line.hour.released_versions) == (0, 0)
