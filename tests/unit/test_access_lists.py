"""Access lists: which rights each command asks for, how lists are changed, inherited, kept and removed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from schemas import records
from schemas.records import (
    Acl,
    AclIdentity,
    AclObject,
    AclRight,
    AclScope,
    AddAcl,
    BucketLayout,
    CreateBucket,
    CreateBucketLink,
    CreateVolume,
    DeleteBucket,
    DeleteDirectory,
    DeleteKey,
    DeleteKeys,
    DeleteVolume,
    MakeDirectory,
    PutKey,
    RemoveAcl,
    RenameDirectory,
    RenameKey,
    SetAcl,
    SetGroups,
    SetOwner,
)
from schemas.topics import METADATA_COMMANDS
from services.domain.acls import MAX_ACLS, is_granted
from services.metadata.namespace.rights import ASKED
from services.metadata.reads.acl_queries import acls_of
from services.metadata.recovery.digest import digest_shard
from services.metadata.state.tables import ACL_TABLE, OPEN_FILE_TABLE, PREFIX_TABLE, SECRET_TABLE
from services.storage.tables import TablesReader
from tests.shard_copies import rebuilt_digest
from tests.unit.test_metadata import Shard
from tests.unit.test_quotas import shard as newest_shard
from tests.unit.test_unauthorized_commands import BUCKET, VOLUME, SecuredPlane, sample

shard = newest_shard
KEY, READ, WRITE, CREATE = "key", AclRight.READ, AclRight.WRITE, AclRight.CREATE
OF_VOLUME = (AclObject.VOLUME, VOLUME, "", "")
OF_BUCKET = (AclObject.BUCKET, VOLUME, BUCKET, "")
OF_KEY = (AclObject.KEY, VOLUME, BUCKET, KEY)
Named = tuple[AclObject, str, str, str]
Grant = tuple[Named, AclRight]


def entry(*rights: AclRight, user: str = "bob", scope: AclScope = AclScope.ACCESS) -> Acl:
    return Acl(AclIdentity.USER, user, rights, scope)


class Lists(SecuredPlane):
    """A secured plane of ann, in which bob owns nothing."""

    def __init__(self) -> None:
        super().__init__(has_snapshot=False)

    def give(self, *grants: Grant) -> None:
        for place, right in grants:
            self.do(AddAcl(*place, entry(right)))

    def refusal(self, identity: str, body: Any) -> str:
        """The code with which a command of an identity is refused; empty when it is carried out."""
        self.number += 1
        command, value = self.sent_by(METADATA_COMMANDS, identity, body)
        return self.outcome(METADATA_COMMANDS, command, value).split(" ")[0]

    def tables(self) -> TablesReader:
        return TablesReader(self.plane.processes["metadata", 0].store)

    def acls(self, path: str, kind: AclObject = AclObject.KEY) -> tuple[Acl, ...]:
        return acls_of(self.tables(), kind, VOLUME, BUCKET, path)


def named(kind: type[Any]) -> Any:
    """A command about what is there: the key, or a directory or bucket to be made."""
    body = sample(kind)
    paths = {"key": KEY, "source": KEY, "target": "new", "keys": (KEY,), "directory": "made", "path": KEY}
    body = replace(body, **{field: value for field, value in paths.items() if hasattr(body, field)})
    if kind in (AddAcl, RemoveAcl, SetAcl):
        return replace(body, object=AclObject.KEY)
    if kind is DeleteDirectory:
        return replace(body, directory=KEY)
    return body


_TO_WRITE: tuple[Grant, ...] = ((OF_BUCKET, WRITE), (OF_VOLUME, READ))
_TO_DELETE: tuple[Grant, ...] = ((OF_KEY, AclRight.DELETE), (OF_BUCKET, READ), (OF_VOLUME, READ))
_TO_CHANGE: tuple[Grant, ...] = ((OF_KEY, AclRight.WRITE_ACL), (OF_BUCKET, READ), (OF_VOLUME, READ))
NEEDED: dict[type[Any], tuple[Grant, ...]] = {
    DeleteVolume: ((OF_VOLUME, AclRight.DELETE),),
    CreateBucket: ((OF_VOLUME, WRITE),),
    CreateBucketLink: ((OF_VOLUME, WRITE),),
    DeleteBucket: ((OF_BUCKET, AclRight.DELETE), (OF_VOLUME, READ)),
    records.SetQuota: _TO_WRITE,
    records.SetBucketVersioning: _TO_WRITE,
    records.SetBucketReplication: _TO_WRITE,
    PutKey: _TO_WRITE,
    records.PutKeyIf: _TO_WRITE,
    records.PutKeys: _TO_WRITE,
    records.OpenKey: _TO_WRITE,
    records.AllocateBlocks: _TO_WRITE,
    records.SyncKey: _TO_WRITE,
    records.CommitKey: _TO_WRITE,
    records.AbandonKey: _TO_WRITE,
    records.InitiateUpload: _TO_WRITE,
    records.CompleteUpload: _TO_WRITE,
    records.AbortUpload: _TO_WRITE,
    records.RecoverLease: ((OF_KEY, WRITE), *_TO_WRITE),
    MakeDirectory: _TO_WRITE,
    DeleteKey: _TO_DELETE,
    DeleteKeys: _TO_DELETE,
    records.DeleteKeyVersion: _TO_DELETE,
    DeleteDirectory: _TO_DELETE,
    RenameKey: (*_TO_DELETE, (OF_BUCKET, WRITE)),
    RenameDirectory: (*_TO_DELETE, (OF_BUCKET, WRITE)),
    SetOwner: ((OF_BUCKET, AclRight.WRITE_ACL), (OF_VOLUME, READ)),
    AddAcl: _TO_CHANGE,
    RemoveAcl: _TO_CHANGE,
    SetAcl: _TO_CHANGE,
}
"""What a user who owns nothing needs: exactly these rights, and each of them."""


def test_the_table_has_every_command_that_a_right_allows() -> None:
    assert set(NEEDED) == {*ASKED, SetOwner, AddAcl, RemoveAcl, SetAcl}


@pytest.mark.parametrize("kind", NEEDED, ids=lambda kind: kind.__name__)
def test_a_command_is_allowed_with_all_rights_that_it_needs_and_without_any_of_them_refused(kind: type[Any]) -> None:
    needed = NEEDED[kind]
    for missing in needed:
        lists = Lists()
        lists.give(*(one for one in needed if one != missing))
        assert lists.refusal("bob", named(kind)) == "PERMISSION_DENIED", missing
        if missing is needed[-1]:
            lists.give(missing)
            assert lists.refusal("bob", named(kind)) != "PERMISSION_DENIED"
            assert lists.refusal("forger", named(kind)) == "PERMISSION_DENIED"


OTHERS = (records.Undelete, records.SetCollection, records.SetBreaker, records.ResetBreaker)


@pytest.mark.parametrize("kind", OTHERS, ids=lambda kind: kind.__name__)
def test_no_right_allows_what_only_owners_may(kind: type[Any]) -> None:
    lists = Lists()
    lists.give((OF_VOLUME, AclRight.ALL), (OF_BUCKET, AclRight.ALL), (OF_KEY, AclRight.ALL))
    assert lists.refusal("bob", sample(kind)) == "PERMISSION_DENIED"


def put(path: str, bucket: str = BUCKET) -> PutKey:
    return PutKey(VOLUME, bucket, path, 1, "")


class TestWhoIsNamed:
    @pytest.mark.parametrize("identity", list(AclIdentity))
    def test_an_entry_is_for_a_user_a_group_or_everybody_who_signs(self, identity: AclIdentity) -> None:
        name = {AclIdentity.USER: "bob", AclIdentity.GROUP: "staff"}.get(identity, "")
        acls = (Acl(identity, name, (WRITE,), AclScope.ACCESS),)
        assert is_granted(acls, WRITE, "bob", ("staff",)) == (identity is not AclIdentity.ANONYMOUS)
        assert is_granted(acls, WRITE, "eve", ()) == (identity is AclIdentity.WORLD)

    def test_all_is_every_right_and_none_takes_all_away(self) -> None:
        assert is_granted((entry(AclRight.ALL),), CREATE, "bob", ())
        assert not is_granted((entry(WRITE, AclRight.NONE),), WRITE, "bob", ())

    def test_the_members_of_a_group_may_what_the_group_may(self) -> None:
        lists = Lists()
        for place in (OF_VOLUME, OF_BUCKET):
            lists.do(AddAcl(*place, Acl(AclIdentity.GROUP, "staff", (READ, WRITE), AclScope.ACCESS)))
        assert lists.refusal("bob", put("k")) == "PERMISSION_DENIED"
        lists.do(SetGroups("bob", ("staff", "others")))
        assert lists.refusal("bob", put("k")) == ""
        lists.do(SetGroups("bob", ()))
        assert lists.refusal("bob", put("l")) == "PERMISSION_DENIED"
        assert lists.refusal("root", SetGroups("nobody", ())) == "INVALID_REQUEST"

    def test_a_changed_secret_keeps_the_groups(self) -> None:
        lists = Lists()
        lists.do(SetGroups("bob", ("staff",)))
        lists.do(records.SetSecret("bob", records.SecretRole.USER, b"another secret of bob"))
        row = lists.tables().table(SECRET_TABLE).get(b"bob")
        assert row is not None
        assert row.groups == ("staff",)


class TestOwners:
    def test_the_owner_of_a_bucket_may_all_in_it_and_nothing_beside(self) -> None:
        lists = Lists()
        lists.do(SetOwner(VOLUME, BUCKET, "bob"))
        assert lists.refusal("bob", put("k")) == ""
        assert lists.refusal("ann", put("l")) == ""
        assert lists.refusal("bob", CreateBucket(VOLUME, "other", BucketLayout.OBJECT_STORE)) == "PERMISSION_DENIED"

    def test_who_creates_a_bucket_or_key_by_a_right_has_it(self) -> None:
        lists = Lists()
        lists.give((OF_VOLUME, WRITE), (OF_VOLUME, READ), (OF_BUCKET, WRITE), (OF_BUCKET, READ))
        assert lists.refusal("bob", CreateBucket(VOLUME, "other", BucketLayout.OBJECT_STORE)) == ""
        assert lists.refusal("bob", put("k", "other")) == ""
        assert lists.refusal("bob", put("a/b")) == ""
        assert lists.acls("a/b") == (entry(AclRight.ALL),)
        assert lists.acls("a") == (entry(AclRight.ALL),)
        assert lists.refusal("bob", DeleteKey(VOLUME, BUCKET, "a/b")) == ""
        assert lists.refusal("bob", DeleteKey(VOLUME, BUCKET, KEY)) == "PERMISSION_DENIED"


class TestInheritance:
    def test_a_bucket_inherits_from_its_volume_a_directory_and_key_from_above(self) -> None:
        lists = Lists()
        lists.do(AddAcl(*OF_VOLUME, entry(READ, scope=AclScope.DEFAULT)))
        lists.do(CreateBucket(VOLUME, "other", BucketLayout.FILE_SYSTEM_OPTIMIZED))
        assert acls_of(lists.tables(), AclObject.BUCKET, VOLUME, "other") == (entry(READ),)
        lists.do(AddAcl(*OF_BUCKET, entry(WRITE, scope=AclScope.DEFAULT)))
        lists.do(put("a/b/c"))
        assert lists.acls("a") == lists.acls("a/b") == (entry(WRITE, scope=AclScope.DEFAULT),)
        assert lists.acls("a/b/c") == (entry(WRITE),)

    def test_the_longest_prefix_comes_before_the_directory_and_that_before_the_bucket(self) -> None:
        lists = Lists()
        lists.do(AddAcl(*OF_BUCKET, entry(READ, scope=AclScope.DEFAULT)))
        lists.do(MakeDirectory(VOLUME, BUCKET, "a"))
        lists.do(SetAcl(AclObject.KEY, VOLUME, BUCKET, "a", (entry(WRITE, scope=AclScope.DEFAULT),)))
        lists.do(AddAcl(AclObject.PREFIX, VOLUME, BUCKET, "a/p/", entry(AclRight.DELETE, scope=AclScope.DEFAULT)))
        for path in ("k2", "a/k", "a/p/k"):
            lists.do(put(path))
        assert [lists.acls(path)[0].rights[0] for path in ("k2", "a/k", "a/p/k")] == [READ, WRITE, AclRight.DELETE]

    def test_a_key_gets_the_list_of_the_path_at_which_it_is_committed(self) -> None:
        lists = Lists()
        for prefix, right in (("d/", READ), ("e/", WRITE)):
            lists.do(AddAcl(AclObject.PREFIX, VOLUME, BUCKET, prefix, entry(right, scope=AclScope.DEFAULT)))
        lists.do(MakeDirectory(VOLUME, BUCKET, "d"))
        lists.do(records.OpenKey(VOLUME, BUCKET, "d/k", 10, "", 100))
        (opened,) = [row for _, row in lists.tables().table(OPEN_FILE_TABLE).scan()]
        lists.do(RenameDirectory(VOLUME, BUCKET, "d", "e"))
        lists.do(records.CommitKey(VOLUME, BUCKET, "e/k", opened.session, 10))
        assert lists.acls("e/k") == (entry(WRITE),)

    def test_a_prefix_with_a_list_has_to_allow_what_happens_below_it(self) -> None:
        lists = Lists()
        lists.give(*_TO_WRITE)
        lists.do(AddAcl(AclObject.PREFIX, VOLUME, BUCKET, "a/", entry(WRITE, user="ann")))
        assert lists.refusal("bob", put("a/k")) == "PERMISSION_DENIED"
        assert lists.refusal("bob", put("b/k")) == ""
        lists.do(AddAcl(AclObject.PREFIX, VOLUME, BUCKET, "a/", entry(WRITE)))
        assert lists.refusal("bob", put("a/k")) == ""

    @pytest.mark.parametrize("kind", [RenameKey, RenameDirectory])
    def test_a_move_into_a_directory_asks_the_prefix_of_that_directory(self, kind: type[Any]) -> None:
        lists = Lists()
        lists.do(put("k")) if kind is RenameKey else lists.do(MakeDirectory(VOLUME, BUCKET, "k"))
        lists.do(MakeDirectory(VOLUME, BUCKET, "a"))
        lists.give(*_TO_WRITE, (OF_BUCKET, READ), ((AclObject.KEY, VOLUME, BUCKET, "k"), AclRight.DELETE))
        lists.do(AddAcl(AclObject.PREFIX, VOLUME, BUCKET, "a/", entry(WRITE, user="ann")))
        assert lists.refusal("bob", kind(VOLUME, BUCKET, "k", "a")) == "PERMISSION_DENIED"
        lists.do(AddAcl(AclObject.PREFIX, VOLUME, BUCKET, "a/", entry(WRITE)))
        assert lists.refusal("bob", kind(VOLUME, BUCKET, "k", "a")) == ""

    def test_the_list_of_a_prefix_is_begun_by_who_may_change_that_of_the_bucket(self) -> None:
        lists = Lists()
        lists.give((OF_VOLUME, READ), (OF_BUCKET, READ))
        change = AddAcl(AclObject.PREFIX, VOLUME, BUCKET, "a/", entry(WRITE))
        assert lists.refusal("bob", change) == "PERMISSION_DENIED"
        lists.give((OF_BUCKET, AclRight.WRITE_ACL))
        assert lists.refusal("bob", change) == ""
        assert lists.refusal("bob", change) == "PERMISSION_DENIED", "now the prefix has a list of its own"

    def test_a_prefix_below_one_that_has_a_list_is_begun_by_who_may_change_that_of_the_bucket(self) -> None:
        lists = Lists()
        lists.do(AddAcl(AclObject.PREFIX, VOLUME, BUCKET, "a/", entry(READ, user="ann")))
        change = AddAcl(AclObject.PREFIX, VOLUME, BUCKET, "a/b/", entry(WRITE))
        lists.give((OF_VOLUME, READ), (OF_BUCKET, READ))
        assert lists.refusal("bob", change) == "PERMISSION_DENIED"
        lists.give((OF_BUCKET, AclRight.WRITE_ACL))
        assert lists.refusal("bob", change) == ""

    def test_a_link_asks_for_read_and_its_bucket_for_the_right(self) -> None:
        lists = Lists()
        lists.do(CreateBucketLink(VOLUME, "link", VOLUME, BUCKET))
        lists.give(*_TO_WRITE)
        assert lists.refusal("bob", put("k", "link")) == "PERMISSION_DENIED"
        lists.give(((AclObject.BUCKET, VOLUME, "link", ""), READ))
        assert lists.refusal("bob", put("k", "link")) == ""

    def test_rights_to_a_link_are_none_to_its_bucket(self) -> None:
        lists = Lists()
        lists.do(CreateVolume("bobs", "bob"))
        assert lists.refusal("bob", CreateBucketLink("bobs", "link", VOLUME, BUCKET)) == ""
        for place in ((AclObject.VOLUME, "bobs", "", ""), (AclObject.BUCKET, "bobs", "link", "")):
            assert lists.refusal("bob", AddAcl(*place, entry(AclRight.ALL))) == ""
        quota = records.SetQuota("bobs", "link", 1_000, -1)
        assert lists.refusal("bob", quota) == "PERMISSION_DENIED"
        lists.give(*_TO_WRITE)
        assert lists.refusal("bob", quota) == "NOT_SUPPORTED_OPERATION", "a link has no quota"
        of_bucket = records.SetQuota(VOLUME, BUCKET, 1_000, -1)
        assert lists.refusal("bob", of_bucket) == ""


def of(shard: Shard, path: str, bucket: str = "flat") -> tuple[Acl, ...]:
    return acls_of(TablesReader(shard.store), AclObject.KEY, "vol", bucket, path)


def count(shard: Shard) -> int:
    tables = TablesReader(shard.store)
    return sum(len(list(tables.table(one).scan())) for one in (ACL_TABLE, PREFIX_TABLE))


def give(shard: Shard, path: str, bucket: str = "flat") -> None:
    assert shard.refusal(AddAcl(AclObject.KEY, "vol", bucket, path, entry(WRITE))) == ""


class TestChanges:
    @pytest.fixture(autouse=True)
    def _in_step(self, shard: Shard) -> Iterator[None]:
        yield
        assert rebuilt_digest(shard.log, 3).digest == digest_shard(shard.store).digest

    def test_rights_are_added_to_and_taken_from_one_entry(self, shard: Shard) -> None:
        shard.do(PutKey("vol", "flat", "k", 1, ""))
        for right in (WRITE, READ, WRITE):
            shard.do(AddAcl(AclObject.KEY, "vol", "flat", "k", entry(right)))
        shard.do(AddAcl(AclObject.KEY, "vol", "flat", "k", entry(READ, scope=AclScope.DEFAULT)))
        assert of(shard, "k") == (entry(READ, WRITE), entry(READ, scope=AclScope.DEFAULT))
        shard.do(RemoveAcl(AclObject.KEY, "vol", "flat", "k", entry(READ, WRITE)))
        assert of(shard, "k") == (entry(READ, scope=AclScope.DEFAULT),)
        shard.do(SetAcl(AclObject.KEY, "vol", "flat", "k", ()))
        assert not count(shard)

    @pytest.mark.parametrize("bucket", ["flat", "tree"])
    def test_an_overwrite_and_a_rename_keep_the_list_and_a_deletion_removes_it(self, shard: Shard, bucket: str) -> None:
        shard.do(PutKey("vol", bucket, "k", 1, ""))
        give(shard, "k", bucket)
        shard.do(PutKey("vol", bucket, "k", 2, ""))
        shard.do(RenameKey("vol", bucket, "k", "l"))
        assert of(shard, "l", bucket) == (entry(WRITE),)
        shard.do(DeleteKey("vol", bucket, "l"))
        assert not count(shard)

    def test_many_keys_and_a_directory_lose_their_lists(self, shard: Shard) -> None:
        shard.do(PutKey("vol", "flat", "k", 1, ""))
        give(shard, "k")
        shard.do(DeleteKeys("vol", "flat", ("k",)))
        shard.do(PutKey("vol", "tree", "a/k", 1, ""))
        give(shard, "a", "tree")
        give(shard, "a/k", "tree")
        shard.do(DeleteDirectory("vol", "tree", "a", is_recursive=True))
        assert count(shard) == 1, "what is below dies when the directory is expanded"
        row = shard.entry()
        shard.internal(records.ExpandDirectory(row.bucket_id, row.object_id, row.death, 10, 10_000))
        assert not count(shard)

    def test_a_bucket_and_a_volume_lose_theirs(self, shard: Shard) -> None:
        shard.do(CreateVolume("two"))
        shard.do(CreateBucket("two", "buc", BucketLayout.OBJECT_STORE))
        shard.do(AddAcl(AclObject.VOLUME, "two", "", "", entry(READ)))
        shard.do(AddAcl(AclObject.BUCKET, "two", "buc", "", entry(READ)))
        shard.do(AddAcl(AclObject.PREFIX, "two", "buc", "a/", entry(READ)))
        assert count(shard) == 3
        assert shard.refusal(DeleteBucket("two", "buc")) == ""
        assert count(shard) == 1
        shard.do(CreateVolume("two"))
        assert shard.refusal(DeleteVolume("two")) == ""
        assert not count(shard)

    def test_what_is_wrong_is_refused(self, shard: Shard) -> None:
        def refusal(kind: AclObject, bucket: str, path: str, acl: Acl) -> str:
            return shard.refusal(AddAcl(kind, "vol", bucket, path, acl))

        assert refusal(AclObject.KEY, "flat", "none", entry(READ)) == "KEY_NOT_FOUND"
        assert refusal(AclObject.KEY, "tree", "", entry(READ)) == "KEY_NOT_FOUND"
        assert refusal(AclObject.BUCKET, "none", "", entry(READ)) == "BUCKET_NOT_FOUND"
        assert refusal(AclObject.PREFIX, "flat", "a", entry(READ)) == "INVALID_PATH"
        assert refusal(AclObject.VOLUME, "", "", entry()) == "INVALID_REQUEST"
        assert refusal(AclObject.VOLUME, "flat", "", entry(READ)) == "INVALID_REQUEST", "bob may own the bucket alone"
        assert refusal(AclObject.VOLUME, "", "k", entry(READ)) == "INVALID_REQUEST"
        assert refusal(AclObject.BUCKET, "flat", "k", entry(READ)) == "INVALID_REQUEST"
        assert refusal(AclObject.VOLUME, "", "", entry(READ, user="")) == "INVALID_REQUEST"
        nobody = RemoveAcl(AclObject.PREFIX, "vol", "flat", "a/", entry(READ))
        assert shard.refusal(nobody) == "PREFIX_NOT_FOUND"
        many = tuple([entry(READ, user=f"user{number}") for number in range(MAX_ACLS + 1)])
        assert shard.refusal(SetAcl(AclObject.VOLUME, "vol", "", "", many)) == "LIMIT_EXCEEDED"
        assert shard.refusal(SetAcl(AclObject.VOLUME, "vol", "", "", many[1:])) == ""
