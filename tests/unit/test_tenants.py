"""Tenants, access ids and delegation tokens: who may do what with them, and by whose secret commands are signed."""

from __future__ import annotations

from typing import Any

import pytest

from schemas import records
from schemas.records import (
    AssignTenantAdmin,
    AssignUserToTenant,
    BucketLayout,
    CancelDelegationToken,
    CreateBucket,
    CreateTenant,
    CreateVolume,
    DeleteTenant,
    DeleteVolume,
    GetDelegationToken,
    MetadataCommand,
    RenewDelegationToken,
    RevokeS3Secret,
    RevokeUserFromTenant,
    SetOwner,
    SetS3Secret,
    SetSecret,
)
from schemas.topics import DEAD_LETTERS, METADATA_COMMANDS
from services.domain.durations import HOUR_MS
from services.log.signing import Signer, signed_command
from services.metadata.namespace.tokens import MAX_LIFE_MS, RENEWED_FOR_MS
from services.metadata.reads import tenant_queries
from services.metadata.recovery.digest import digest_shard
from services.metadata.state.tables import ACCESS_ID_TABLE, PRINCIPAL_TABLE, SECRET_TABLE, TOKEN_TABLE
from services.storage.tables import TablesReader
from tests.shard_copies import rebuilt_digest
from tests.unit.test_unauthorized_commands import SECRETS, VOLUME, SecuredPlane

KEY, OTHER_KEY = b"the secret of a tenant's user", b"another secret of that user"
BOB = "ten1$bob"


class Tenants(SecuredPlane):
    """A secured plane with the tenant ten1, of whom bob has an access id."""

    def __init__(self) -> None:
        super().__init__(has_snapshot=False)
        self.do(CreateTenant("ten1", "ten1vol", "bob"))
        self.do(AssignUserToTenant("ten1", "bob", BOB, KEY))

    def send(self, name: str, secret: bytes, body: Any) -> str:
        """The code with which a command is refused that somebody signs; empty when it is carried out."""
        self.number += 1
        command = MetadataCommand(0, f"{name}/tenants", self.number, body)
        value = signed_command(METADATA_COMMANDS, command, Signer(name, secret), self.plane.clock.now_ms())
        return self.outcome(METADATA_COMMANDS, command, value).split(" ")[0]

    def by(self, name: str, body: Any) -> str:
        return self.send(name, SECRETS[name], body)

    def tables(self) -> TablesReader:
        return TablesReader(self.plane.processes["metadata", 0].store)

    def check_rebuild(self) -> None:
        while self.plane.step():
            pass
        store = self.plane.processes["metadata", 0].store
        assert rebuilt_digest(self.plane.log, 5).digest == digest_shard(store).digest


@pytest.fixture
def tenants() -> Tenants:
    return Tenants()


def make_bucket(name: str, volume: str = "ten1vol") -> CreateBucket:
    return CreateBucket(volume, name, BucketLayout.OBJECT_STORE)


class TestTenants:
    def test_a_tenant_keeps_its_volume_until_it_has_gone(self, tenants: Tenants) -> None:
        assert tenants.by("root", DeleteVolume("ten1vol")) == "VOLUME_IS_REFERENCED"
        assert tenants.by("root", DeleteTenant("ten1")) == "TENANT_NOT_EMPTY"
        assert tenants.by("root", RevokeUserFromTenant(BOB)) == ""
        assert tenants.by("root", DeleteTenant("ten1")) == ""
        assert tenants.by("root", DeleteVolume("ten1vol")) == ""
        assert not list(tenants.tables().table(ACCESS_ID_TABLE).scan())
        assert not list(tenants.tables().table(PRINCIPAL_TABLE).scan())
        assert tenants.tables().table(SECRET_TABLE).get(BOB.encode()) is None
        tenants.check_rebuild()

    def test_what_is_wrong_is_refused_with_ozones_codes(self, tenants: Tenants) -> None:
        refused = {
            CreateTenant("ten1", "two-vol", ""): "TENANT_ALREADY_EXISTS",
            CreateTenant("X", "two-vol", ""): "INVALID_TENANT_ID",
            CreateTenant("ten2", VOLUME, ""): "VOLUME_ALREADY_EXISTS",
            DeleteTenant("ten2"): "TENANT_NOT_FOUND",
            AssignUserToTenant("ten2", "ann", "ten2$ann", KEY): "TENANT_NOT_FOUND",
            AssignUserToTenant("ten1", "bob", "another", KEY): "TENANT_USER_ACCESS_ID_ALREADY_EXISTS",
            AssignUserToTenant("ten1", "ann", BOB, KEY): "TENANT_USER_ACCESS_ID_ALREADY_EXISTS",
            AssignUserToTenant("ten1", "ann", "ann", KEY): "TENANT_USER_ACCESS_ID_ALREADY_EXISTS",
            AssignUserToTenant("ten1", "ann", "ten1$ann", b"short"): "INVALID_REQUEST",
            AssignUserToTenant("ten1", "ann", "with/slash", KEY): "INVALID_REQUEST",
            RevokeUserFromTenant("none"): "ACCESS_ID_NOT_FOUND",
            AssignTenantAdmin("none", True, False): "ACCESS_ID_NOT_FOUND",
            AssignTenantAdmin(BOB, False, True): "INVALID_REQUEST",
            SetS3Secret("none", KEY): "ACCESS_ID_NOT_FOUND",
            SetSecret(BOB, records.SecretRole.USER, KEY): "INVALID_REQUEST",
        }
        assert {body: tenants.by("root", body) for body in refused} == refused

    def test_administrators_of_a_tenant_assign_users_and_delegated_ones_administrators(self, tenants: Tenants) -> None:
        assign = AssignUserToTenant("ten1", "ann", "ten1$ann", OTHER_KEY)
        assert tenants.by("bob", assign) == "PERMISSION_DENIED"
        tenants.do(AssignTenantAdmin(BOB, is_admin=True, is_delegated_admin=False))
        assert tenants.by("bob", assign) == ""
        promote = AssignTenantAdmin("ten1$ann", is_admin=True, is_delegated_admin=False)
        assert tenants.by("bob", promote) == "PERMISSION_DENIED"
        tenants.do(AssignTenantAdmin(BOB, is_admin=True, is_delegated_admin=True))
        assert tenants.by("bob", promote) == ""
        assert tenants.by("bob", RevokeUserFromTenant("ten1$ann")) == "PERMISSION_DENIED", "it is an administrator"
        assert tenants.by("bob", CreateTenant("ten2", "two-vol", "")) == "PERMISSION_DENIED"
        rows = tenant_queries.list_access_ids(tenants.tables(), tenant="ten1")
        assert [(row.access_id, row.is_admin) for row in rows] == [("ten1$ann", True), (BOB, True)]
        assert tenant_queries.list_access_ids(tenants.tables(), user="ann") == rows[:1]
        tenants.check_rebuild()


class TestSecretsOfAccessIds:
    def test_an_access_id_signs_as_its_user_in_the_volume_of_its_tenant_alone(self, tenants: Tenants) -> None:
        tenants.do(CreateVolume("bobs", "bob"))
        assert tenants.send(BOB, KEY, make_bucket("one")) == ""
        assert tenants.send(BOB, KEY, make_bucket("one", "bobs")) == "PERMISSION_DENIED"
        assert tenants.by("bob", make_bucket("one", "bobs")) == ""
        tenants.do(SetOwner("ten1vol", "", "ann"))
        assert tenants.send(BOB, KEY, make_bucket("two")) == "PERMISSION_DENIED"

    def test_an_access_id_of_an_administrator_does_not_administer(self, tenants: Tenants) -> None:
        tenants.do(AssignUserToTenant("ten1", "root", "ten1$root", OTHER_KEY))
        assert tenants.send("ten1$root", OTHER_KEY, CreateVolume("more")) == "PERMISSION_DENIED"
        assert tenants.send("ten1$root", OTHER_KEY, make_bucket("two")) == "PERMISSION_DENIED"

    def test_an_access_id_manages_no_other_tenant(self, tenants: Tenants) -> None:
        tenants.do(CreateTenant("ten2", "ten2vol", "ann"))
        tenants.do(AssignUserToTenant("ten2", "bob", "ten2$bob", OTHER_KEY))
        for access_id in (BOB, "ten2$bob"):
            tenants.do(AssignTenantAdmin(access_id, is_admin=True, is_delegated_admin=True))
        others = (
            AssignUserToTenant("ten2", "ann", "ten2$ann", KEY),
            AssignTenantAdmin("ten2$bob", is_admin=False, is_delegated_admin=False),
            RevokeUserFromTenant("ten2$bob"),
            SetS3Secret("ten2$bob", KEY),
            RevokeS3Secret("ten2$bob"),
        )
        assert {tenants.send(BOB, KEY, body) for body in others} == {"PERMISSION_DENIED"}
        assert tenants.send(BOB, KEY, AssignUserToTenant("ten1", "ann", "ten1$ann", KEY)) == ""
        assert [tenants.by("bob", body) for body in others[:2]] == ["", ""], "with the user's own secret"

    def test_no_user_gets_the_name_of_an_access_id_whose_secret_was_revoked(self, tenants: Tenants) -> None:
        tenants.do(RevokeS3Secret(BOB))
        for role in (records.SecretRole.USER, records.SecretRole.ADMINISTRATOR):
            assert tenants.by("root", SetSecret(BOB, role, OTHER_KEY)) == "INVALID_REQUEST"
        assert tenants.by("bob", SetS3Secret(BOB, KEY)) == ""
        assert tenants.send(BOB, KEY, make_bucket("one")) == ""

    def test_a_new_secret_is_valid_beside_the_old_one_until_the_next(self, tenants: Tenants) -> None:
        assert tenants.by("ann", SetS3Secret(BOB, OTHER_KEY)) == "PERMISSION_DENIED"
        assert tenants.by("bob", SetS3Secret(BOB, OTHER_KEY)) == ""
        assert tenants.send(BOB, KEY, make_bucket("one")) == tenants.send(BOB, OTHER_KEY, make_bucket("two")) == ""
        assert tenants.by("bob", SetS3Secret(BOB, OTHER_KEY)) == ""
        assert tenants.send(BOB, KEY, make_bucket("three")) == "PERMISSION_DENIED"
        assert tenants.by("bob", RevokeS3Secret(BOB)) == ""
        assert tenants.send(BOB, OTHER_KEY, make_bucket("three")) == "PERMISSION_DENIED"
        assert tenants.by("bob", RevokeS3Secret(BOB)) == "S3_SECRET_NOT_FOUND"
        tenants.check_rebuild()

    def test_no_secret_is_shown(self, tenants: Tenants) -> None:
        for body in (AssignUserToTenant("t", "u", "a", KEY), SetS3Secret("a", KEY), GetDelegationToken("a", KEY)):
            assert "secret of" not in repr(body)
        for _, row in tenants.tables().table(SECRET_TABLE).scan():
            assert "secret of" not in repr(row)

    def test_a_dead_letter_has_no_secret(self, tenants: Tenants) -> None:
        body = SetS3Secret(BOB, KEY)
        command = MetadataCommand(0, "x" * 200, 1, body)
        value = signed_command(METADATA_COMMANDS, command, Signer("root", SECRETS["root"]), 0)
        tenants.offer(METADATA_COMMANDS, value)
        (letter,) = tenants.plane.log.records(DEAD_LETTERS.name, 0)
        assert KEY in value
        assert KEY not in letter.value
        assert b"holds a secret" in letter.value


class TestTokens:
    def get(self, tenants: Tenants, renewer: str = "bob") -> str:
        assert tenants.by("ann", GetDelegationToken(renewer, KEY)) == ""
        return max(row.token_id for row in tenant_queries.list_tokens(tenants.tables(), "ann"))

    def test_a_token_signs_as_its_owner_until_it_expires(self, tenants: Tenants) -> None:
        name = f"token {self.get(tenants)}"
        assert tenants.send(name, KEY, make_bucket("one", VOLUME)) == ""
        assert tenants.send(name, OTHER_KEY, make_bucket("two", VOLUME)) == "PERMISSION_DENIED"
        assert tenants.send(name, KEY, CreateVolume("more")) == "PERMISSION_DENIED"
        assert tenants.send(name, KEY, GetDelegationToken("bob", KEY)) == "INVALID_AUTH_METHOD"
        tenants.plane.clock.advance(RENEWED_FOR_MS)
        assert tenants.send(name, KEY, make_bucket("two", VOLUME)) == "PERMISSION_DENIED"

    def test_an_expired_token_is_removed_within_an_hour(self, tenants: Tenants) -> None:
        self.get(tenants)
        tenants.plane.clock.advance(RENEWED_FOR_MS + HOUR_MS)
        tenants.do(CreateVolume("more"))
        assert not list(tenants.tables().table(TOKEN_TABLE).scan())
        tenants.check_rebuild()

    def test_the_renewer_renews_it_until_the_end_of_its_life(self, tenants: Tenants) -> None:
        token = self.get(tenants)
        assert tenants.by("ann", RenewDelegationToken(token)) == "PERMISSION_DENIED"
        for _ in range(8):
            tenants.plane.clock.advance(RENEWED_FOR_MS - HOUR_MS // 2)
            last = tenants.by("bob", RenewDelegationToken(token))
        assert last in ("TOKEN_EXPIRED", "INVALID_TOKEN")
        assert MAX_LIFE_MS == 7 * RENEWED_FOR_MS
        assert tenants.by("bob", RenewDelegationToken("0-999")) == "INVALID_TOKEN"

    def test_owner_renewer_and_administrators_cancel_it(self, tenants: Tenants) -> None:
        for who in ("ann", "bob", "root"):
            token = self.get(tenants)
            assert tenants.by(who, CancelDelegationToken(token)) == ""
            assert tenants.send(f"token {token}", KEY, make_bucket("one", VOLUME)) == "PERMISSION_DENIED"
        token = self.get(tenants, renewer="root")
        assert tenants.by("bob", CancelDelegationToken(token)) == "PERMISSION_DENIED"
        tenants.check_rebuild()

    def test_it_ends_with_the_secret_of_its_owner(self, tenants: Tenants) -> None:
        name = f"token {self.get(tenants)}"
        tenants.do(SetSecret("ann", records.SecretRole.USER, b""))
        assert tenants.send(name, KEY, make_bucket("one", VOLUME)) == "PERMISSION_DENIED"
