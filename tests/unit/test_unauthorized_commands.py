"""Every identity and every command, over the real services in memory: what is allowed is done, all else is refused."""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Callable
from enum import StrEnum
from functools import cache
from typing import Any

import pytest

from schemas import records
from schemas.codec import codec
from schemas.records import (
    BucketLayout,
    CreateBucket,
    CreateSnapshot,
    CreateVolume,
    DeadLetter,
    MetadataCommand,
    PutKey,
    SecretRole,
    SetSecret,
    SnapshotCommand,
)
from schemas.signatures import sign
from schemas.topics import (
    DEAD_LETTERS,
    METADATA_COMMANDS,
    METADATA_REPLIES,
    SNAPSHOTS_COMMANDS,
    SNAPSHOTS_REPLIES,
    Topic,
)
from services.domain.authorization import SERVICES, SIGNED_FOR_MS, may_manage, why_not_named
from services.log.signing import Signer, person_command, signed_command
from services.metadata.recovery.digest import digest_shard
from services.metadata.state.tables import FILE_TABLE, SECRET_TABLE, TRANSACTION_INFO_KEY, TRANSACTION_INFO_TABLE
from services.plane.in_memory.client import InMemoryClient
from services.plane.in_memory.plane import InMemoryPlane
from services.storage.tables import TablesReader
from tests.shard_copies import rebuilt_digest

VOLUME, BUCKET = "sales", "reports"
SECRETS = {name: name.encode().ljust(32, b"-") for name in (*sorted(SERVICES), "root", "ann", "bob")}
PEOPLE = {"root": SecretRole.ADMINISTRATOR, "ann": SecretRole.USER, "bob": SecretRole.USER}
"""root administers, ann owns the volume, bob owns nothing."""
UNAUTHORIZED = ("unsigned", "forger")
"""Who signs nothing, and who signs as root with a secret of its own."""
IDENTITIES = (*sorted(SERVICES), *PEOPLE, *UNAUTHORIZED)
DENIED = ("is not signed by", "for administrators", "come from", "comes from", "PERMISSION_DENIED")

PERSON: frozenset[str] = frozenset({"root"})
OWNERS = PERSON | {"ann"}
METADATA_TABLE: dict[type[Any], frozenset[str]] = {
    records.CreateVolume: PERSON,
    records.SetSecret: PERSON,
    records.RequeueOrphans: PERSON,
    records.RepairQuota: PERSON,
    records.PublishFullChain: PERSON,
    records.AcceptLostTail: PERSON,
    records.SetFeatureLevel: PERSON,
    records.AnnounceSchema: PERSON,
    records.SetDefaultReplication: PERSON,
    records.StopClaims: PERSON | {"snapshots"},
    records.DeleteVolume: OWNERS,
    records.CreateBucket: OWNERS,
    records.CreateBucketLink: OWNERS,
    records.SetQuota: OWNERS,
    records.SetBucketVersioning: OWNERS,
    records.SetBucketReplication: OWNERS,
    records.SetOwner: OWNERS,
    records.AddAcl: OWNERS,
    records.RemoveAcl: OWNERS,
    records.SetAcl: OWNERS,
    records.SetGroups: PERSON,
    records.SetDefaultReplication: PERSON,
    records.CreateTenant: PERSON,
    records.DeleteTenant: PERSON,
    records.AssignUserToTenant: PERSON,
    records.RevokeUserFromTenant: PERSON,
    records.AssignTenantAdmin: PERSON,
    records.SetS3Secret: PERSON,
    records.RevokeS3Secret: PERSON,
    records.GetDelegationToken: frozenset(PEOPLE),
    records.RenewDelegationToken: frozenset(PEOPLE),
    records.CancelDelegationToken: frozenset(PEOPLE),
    records.DeleteBucket: OWNERS,
    records.PutKey: OWNERS,
    records.PutKeyIf: OWNERS,
    records.PutKeys: OWNERS,
    records.OpenKey: OWNERS,
    records.AllocateBlocks: OWNERS,
    records.SyncKey: OWNERS,
    records.CommitKey: OWNERS,
    records.RecoverLease: OWNERS,
    records.AbandonKey: OWNERS,
    records.InitiateUpload: OWNERS,
    records.CompleteUpload: OWNERS,
    records.AbortUpload: OWNERS,
    records.ExpireWrites: frozenset({"key_deletion"}),
    records.DeleteKey: OWNERS,
    records.DeleteKeys: OWNERS,
    records.DeleteKeyVersion: OWNERS,
    records.RenameKey: OWNERS,
    records.MakeDirectory: OWNERS,
    records.DeleteDirectory: OWNERS,
    records.RenameDirectory: OWNERS,
    records.Undelete: OWNERS,
    records.SetCollection: OWNERS,
    records.SetBreaker: OWNERS,
    records.ResetBreaker: OWNERS,
    records.CaptureSnapshot: frozenset({"snapshots"}),
    records.DropSnapshot: frozenset({"snapshots"}),
    records.RollbackPage: frozenset({"snapshots"}),
    records.ClaimRows: frozenset({"key_deletion"}),
    records.FinishRows: frozenset({"key_deletion"}),
    records.SweepPage: frozenset({"key_deletion"}),
    records.ExpandDirectory: frozenset({"directory_deletion"}),
    records.RemoveDirectories: frozenset({"directory_deletion"}),
    records.GrantContainer: frozenset({"mock_scm"}),
    records.Barrier: frozenset({"snapshots", "key_deletion", "directory_deletion"}),
}
BUCKET_COMMANDS: tuple[type[Any], ...] = (
    *(records.CreateSnapshot, records.DeleteSnapshot, records.RenameSnapshot, records.RollBackBucket),
    *(records.SetRetention, records.UnsetRetention, records.CreateTag, records.DeleteTag),
    *(records.SetConsumer, records.DeleteConsumer, records.ExpireSnapshots),
)
SNAPSHOTS_TABLE: dict[type[Any], frozenset[str]] = {
    records.SetDeepClean: frozenset({"key_deletion"}),
    records.Settle: PERSON,
    records.SetSecret: PERSON,
    records.ResolveDeadLetter: PERSON,
    **dict.fromkeys(BUCKET_COMMANDS, OWNERS),
}


def kinds_of(command: type[Any]) -> set[type[Any]]:
    return set(typing.get_args(typing.get_type_hints(command, vars(records))["body"]))


def sample(hint: Any, name: str = "") -> Any:
    """Some value of a type: names are those of the bucket, numbers are 1."""
    if isinstance(hint, type) and dataclasses.is_dataclass(hint):
        hints = typing.get_type_hints(hint, vars(records))
        return hint(**{field.name: sample(hints[field.name], field.name) for field in dataclasses.fields(hint)})
    if isinstance(hint, type) and issubclass(hint, StrEnum):
        return next(iter(hint))
    if typing.get_origin(hint) is tuple:
        return ()
    if typing.get_args(hint):
        return sample(next(kind for kind in typing.get_args(hint) if kind is not type(None)), name)
    return {"volume": VOLUME, "bucket": BUCKET}.get(name, hint(1) if hint is not bytes else b"s" * 32)


@cache
def enrolled() -> list[SetSecret]:
    """Services first: an administrator is what switches the demand on."""
    services = [SetSecret(name, SecretRole.SERVICE, SECRETS[name]) for name in sorted(SERVICES)]
    return [*services, *(SetSecret(name, PEOPLE[name], SECRETS[name]) for name in ("ann", "bob", "root"))]


class SecuredPlane:
    """A plane with secrets, a volume of ann's, a bucket with a key and a snapshot."""

    def __init__(self, *, has_snapshot: bool = True) -> None:
        self.plane = InMemoryPlane(secrets=SECRETS)
        self.client = InMemoryClient(self.plane, "root/setup", Signer("root", SECRETS["root"]))
        for secret in enrolled():
            self.do(secret)
            assert not self.client.request(0, secret).error
        self.do(CreateVolume(VOLUME, "ann"))
        self.do(CreateBucket(VOLUME, BUCKET, BucketLayout.FILE_SYSTEM_OPTIMIZED))
        self.do(PutKey(VOLUME, BUCKET, "key", 10, ""))
        if has_snapshot:
            assert not self.client.request(0, CreateSnapshot(VOLUME, BUCKET, "monday")).error
        self.number = 0

    def do(self, command: Any) -> None:
        reply = self.client.answer(0, self.client.submit(0, command))
        assert not reply.error, reply

    def offer(self, topic: Topic, value: bytes) -> None:
        self.plane.log.append(topic.name, 0, value)
        while self.plane.step():
            pass

    def outcome(self, topic: Topic, command: Any, value: bytes) -> str:
        """What is said about a command: a refusal, the reason of a dead letter, or nothing bad."""
        replies = METADATA_REPLIES if topic is METADATA_COMMANDS else SNAPSHOTS_REPLIES
        before = {name: len(self.plane.log.records(name, 0)) for name in (replies.name, DEAD_LETTERS.name)}
        self.offer(topic, value)
        letters = self.plane.log.records(DEAD_LETTERS.name, 0)[before[DEAD_LETTERS.name] :]
        said = [letter.message for one in letters if (letter := _letter(one.value)).value == value]
        for one in self.plane.log.records(replies.name, 0)[before[replies.name] :]:
            reply = codec(replies.record).decode_message(one.value)
            if (reply.client_id, reply.number) == (command.client_id, command.number):
                said.append(f"{reply.error} {reply.message}")
        return "; ".join(said)

    def is_allowed(self, topic: Topic, identity: str, body: Any) -> bool:
        self.number += 1
        command, value = self.sent_by(topic, identity, body)
        said = self.outcome(topic, command, value)
        return not any(text in said for text in DENIED)

    def sent_by(self, topic: Topic, identity: str, body: Any) -> tuple[Any, bytes]:
        """A command as an identity would send it; strangers as root would, or as the service that it is from."""
        make = topic.record
        now_ms = self.plane.clock.now_ms()
        encoder = codec(make)
        if identity in SERVICES:
            command = make(0, "", 0, body, sender=identity)
            return command, sign(SECRETS[identity], topic.name, encoder.encode_message(command))
        sender = "audit" if isinstance(body, (records.RequeueOrphans, records.RepairQuota)) else ""
        user = identity if identity in PEOPLE else "root"
        command = make(0, f"{user}/table", self.number, body, sender=sender)
        if identity == "unsigned":
            return command, encoder.encode_message(command)
        secret = SECRETS[identity] if identity in PEOPLE else b"f" * 32
        return command, signed_command(topic, command, Signer(user, secret), now_ms)


def _letter(value: bytes) -> DeadLetter:
    return codec(DeadLetter).decode_message(value)


@pytest.mark.parametrize(
    ("topic", "table"),
    [(METADATA_COMMANDS, METADATA_TABLE), (SNAPSHOTS_COMMANDS, SNAPSHOTS_TABLE)],
    ids=["metadata", "snapshots"],
)
def test_of_every_identity_and_command_only_what_is_listed_goes(
    topic: Topic, table: dict[type[Any], frozenset[str]]
) -> None:
    assert set(table) == kinds_of(topic.record), "a new kind of command wants a line in the table"
    wrong = []
    for kind, allowed in table.items():
        for identity in IDENTITIES:
            secured = SecuredPlane()
            body = sample(kind)
            if isinstance(body, records.AcceptLostTail):
                body = fitting(secured, body)
            found = secured.is_allowed(topic, identity, body)
            if found != (identity in allowed):
                wrong.append((kind.__name__, identity, found))
    assert not wrong


def fitting(secured: SecuredPlane, body: records.AcceptLostTail) -> records.AcceptLostTail:
    """One for this very place and state: from an administrator another one stops the shard."""
    while secured.plane.step():
        pass
    state = (
        TablesReader(secured.plane.processes["metadata", 0].store)
        .table(TRANSACTION_INFO_TABLE)
        .get(TRANSACTION_INFO_KEY)
    )
    assert state is not None
    return dataclasses.replace(
        body,
        offset=secured.plane.log.end_offset(METADATA_COMMANDS.name, 0),
        expected_txn=state.txn,
        expected_log_time_ms=state.log_time_ms,
        epoch=state.epoch + 1,
        txn=state.txn + 1,
        chain_version=state.chain_version + 1,
    )


def test_without_an_administrator_nothing_is_demanded() -> None:
    plane = InMemoryPlane()
    client = InMemoryClient(plane)
    for secret in enrolled()[:-1]:
        assert not client.answer(0, client.submit(0, secret)).error
    assert not client.answer(0, client.submit(0, CreateVolume(VOLUME))).error
    assert not client.answer(0, client.submit(0, enrolled()[-1])).error
    assert client.answer(0, client.submit(0, CreateVolume("other"))).error == "PERMISSION_DENIED"


def test_the_whole_way_of_a_deletion_goes_with_every_service_signing() -> None:
    secured = SecuredPlane()
    secured.do(records.DeleteKey(VOLUME, BUCKET, "key"))
    assert not secured.client.request(0, records.DeleteSnapshot(VOLUME, BUCKET, "monday")).error
    assert not secured.client.request(0, records.Settle("settle")).error
    assert secured.client.scm(0).totals().inventory_blocks == 0
    assert not secured.plane.log.records(DEAD_LETTERS.name, 0)


def test_an_unauthorized_sender_makes_no_snapshot_of_a_bucket_that_has_none_yet() -> None:
    secured = SecuredPlane(has_snapshot=False)
    create = CreateSnapshot(VOLUME, BUCKET, "tuesday")
    assert not secured.is_allowed(SNAPSHOTS_COMMANDS, "bob", create)
    assert secured.is_allowed(SNAPSHOTS_COMMANDS, "ann", create)
    (row,) = secured.client.snapshots(0).snapshots(VOLUME, BUCKET)
    assert (row.name, row.owner) == ("tuesday", "ann")


@pytest.mark.parametrize("position", range(0, 400, 7))
def test_a_signed_command_with_any_byte_changed_does_nothing(position: int) -> None:
    secured = signed_once()
    command = MetadataCommand(0, "ann/flip", position + 1, PutKey(VOLUME, BUCKET, "k" * 300, 1, ""))
    value = bytearray(signed_command(METADATA_COMMANDS, command, Signer("ann", SECRETS["ann"]), now(secured)))
    position %= len(value)
    value[position] ^= 1
    before = files(secured)
    secured.offer(METADATA_COMMANDS, bytes(value))
    assert files(secured) == before


@cache
def signed_once() -> SecuredPlane:
    return SecuredPlane()


def now(secured: SecuredPlane) -> int:
    return secured.plane.clock.now_ms()


def files(secured: SecuredPlane) -> list[Any]:
    """Every live file, with the txn that wrote it: what a put changes."""
    return list(TablesReader(secured.plane.processes["metadata", 0].store).table(FILE_TABLE).scan(b"", b"\xff"))


def offered_again(secured: SecuredPlane, make: Callable[[int], bytes], later_ms: int) -> bool:
    """Whether a command that was applied is applied once more when it is sent again later."""
    value = make(now(secured))
    before = files(secured)
    secured.offer(METADATA_COMMANDS, value)
    after = files(secured)
    assert len(after) == len(before) + 1
    secured.plane.clock.advance(later_ms)
    secured.offer(METADATA_COMMANDS, value)
    return files(secured) != after


@pytest.mark.parametrize(
    "later_ms", [0, 1_000, SIGNED_FOR_MS - 1, SIGNED_FOR_MS + 1, 2 * SIGNED_FOR_MS + 10_000, 10**10]
)
def test_a_command_that_is_sent_again_is_not_applied_again_however_late(later_ms: int) -> None:
    secured = SecuredPlane()

    def make(at_ms: int) -> bytes:
        command = MetadataCommand(0, "ann/once", 1, PutKey(VOLUME, BUCKET, "again", 1, ""))
        return signed_command(METADATA_COMMANDS, command, Signer("ann", SECRETS["ann"]), at_ms)

    assert not offered_again(secured, make, later_ms)


@pytest.mark.parametrize("ahead_ms", [SIGNED_FOR_MS + 1_000, -SIGNED_FOR_MS - 1_000])
def test_a_clock_that_is_far_off_is_refused(ahead_ms: int) -> None:
    secured = SecuredPlane()
    command = MetadataCommand(0, "ann/clock", 1, PutKey(VOLUME, BUCKET, "late", 1, ""))
    value = signed_command(METADATA_COMMANDS, command, Signer("ann", SECRETS["ann"]), now(secured) + ahead_ms)
    assert "PERMISSION_DENIED" in secured.outcome(METADATA_COMMANDS, command, value)


def test_a_clock_that_once_jumped_ahead_locks_nobody_out() -> None:
    """The log's time never goes back; the age of a command is measured by the broker's clock at that moment."""
    secured = SecuredPlane()

    def put(number: int) -> str:
        command = MetadataCommand(0, "ann/clock", number, PutKey(VOLUME, BUCKET, f"key-{number}", 1, ""))
        value = signed_command(METADATA_COMMANDS, command, Signer("ann", SECRETS["ann"]), now(secured))
        return secured.outcome(METADATA_COMMANDS, command, value)

    assert not put(1).strip()
    secured.plane.clock.advance(86_400_000)
    assert not put(2).strip()
    secured.plane.clock.advance(-86_400_000)
    assert not put(3).strip()


def test_the_number_zero_and_the_client_of_another_user_are_refused() -> None:
    secured = SecuredPlane()
    for client_id, number in (("ann/zero", 0), ("bob/table", 7), ("ann", 7), ("", 7)):
        command = MetadataCommand(0, client_id, number, PutKey(VOLUME, BUCKET, "x", 1, ""))
        value = signed_command(METADATA_COMMANDS, command, Signer("ann", SECRETS["ann"]), now(secured))
        assert "PERMISSION_DENIED" in secured.outcome(METADATA_COMMANDS, command, value)


def test_a_command_for_one_topic_is_none_for_another() -> None:
    encoder = codec(SnapshotCommand)
    secured = SecuredPlane()
    command = SnapshotCommand(
        0, "ann/topic", 1, CreateSnapshot(VOLUME, BUCKET, "x"), user="ann", issued_at_ms=now(secured)
    )
    value = sign(SECRETS["ann"], METADATA_COMMANDS.name, encoder.encode_message(command))
    assert "PERMISSION_DENIED" in secured.outcome(SNAPSHOTS_COMMANDS, command, value)


def test_what_a_person_orders_is_done_once() -> None:
    secured = SecuredPlane()
    stop = MetadataCommand(0, "", 0, records.StopClaims("look into it"), wants_reply=False)
    value = person_command(stop, Signer("root", SECRETS["root"]), now(secured))
    assert secured.outcome(METADATA_COMMANDS, stop, value) == ""
    assert "was applied already" in secured.outcome(METADATA_COMMANDS, stop, value)


def test_a_secret_is_changed_without_a_gap_and_the_old_one_ends_when_it_is_set_twice() -> None:
    secured = SecuredPlane()
    old, new = SECRETS["bob"], b"n" * 32
    secured.do(CreateVolume("bobs", "bob"))

    def opens(secret: bytes) -> bool:
        secured.number += 1
        command = MetadataCommand(
            0, "bob/change", secured.number, CreateBucket("bobs", f"b{secured.number:03}", BucketLayout.OBJECT_STORE)
        )
        value = signed_command(METADATA_COMMANDS, command, Signer("bob", secret), now(secured))
        return "PERMISSION_DENIED" not in secured.outcome(METADATA_COMMANDS, command, value)

    assert (opens(old), opens(new)) == (True, False)
    secured.do(SetSecret("bob", SecretRole.USER, new))
    assert (opens(old), opens(new)) == (True, True)
    secured.do(SetSecret("bob", SecretRole.USER, new))
    assert (opens(old), opens(new)) == (False, True)
    secured.do(SetSecret("bob", SecretRole.USER, b""))
    assert (opens(old), opens(new)) == (False, False)


@pytest.mark.parametrize(
    "change",
    [
        SetSecret("root", SecretRole.ADMINISTRATOR, b""),
        SetSecret("root", SecretRole.USER, b"r" * 32),
        SetSecret("carl", SecretRole.USER, b"short"),
        SetSecret("carl", SecretRole.USER, b"l" * 129),
        SetSecret("snapshots", SecretRole.USER, b"s" * 32),
        SetSecret("nobody", SecretRole.SERVICE, b"s" * 32),
        SetSecret("a/b", SecretRole.USER, b"s" * 32),
        SetSecret("", SecretRole.USER, b"s" * 32),
    ],
    ids=range(8),
)
def test_a_secret_that_would_lock_out_or_weaken_is_refused(change: SetSecret) -> None:
    client = signed_once().client
    assert client.answer(0, client.submit(0, change)).error == "INVALID_REQUEST"
    assert client.request(0, change).error == "INVALID_REQUEST"


def test_secrets_are_known_again_after_a_start() -> None:
    secured = SecuredPlane()
    for name in ("metadata", "snapshots"):
        secured.plane.start(name, 0)
    put = PutKey(VOLUME, BUCKET, "again", 1, "")
    assert not secured.is_allowed(METADATA_COMMANDS, "bob", put)
    assert not secured.is_allowed(METADATA_COMMANDS, "unsigned", put)
    assert secured.is_allowed(METADATA_COMMANDS, "ann", put)
    rows = dict(TablesReader(secured.plane.processes["metadata", 0].store).table(SECRET_TABLE).scan(b"", b"\xff"))
    assert set(rows) == {name.encode() for name in SECRETS}


@pytest.mark.parametrize("batch", [1, 3, 2_000])
def test_a_rebuild_from_the_log_decides_as_the_first_run_did(batch: int) -> None:
    secured = SecuredPlane()
    for identity in IDENTITIES:
        for kind in (
            records.CreateVolume,
            records.PutKey,
            records.ClaimRows,
            records.StopClaims,
            records.SetCollection,
        ):
            secured.is_allowed(METADATA_COMMANDS, identity, sample(kind))
    secured.do(SetSecret("ann", SecretRole.USER, b"n" * 32))
    secured.do(SetSecret("bob", SecretRole.USER, b""))
    assert secured.is_allowed(METADATA_COMMANDS, "ann", PutKey(VOLUME, BUCKET, "more", 1, ""))
    assert not secured.is_allowed(METADATA_COMMANDS, "bob", PutKey(VOLUME, BUCKET, "most", 1, ""))
    lost = digest_shard(secured.plane.processes["metadata", 0].store)
    assert rebuilt_digest(secured.plane.log, batch).differences(lost) == []


def test_a_secret_is_in_no_text_about_it() -> None:
    change = SetSecret("ann", SecretRole.USER, SECRETS["ann"])
    command = MetadataCommand(0, "root/1", 1, change)
    for text in (repr(change), repr(command), repr(Signer("ann", SECRETS["ann"]))):
        assert "ann----" not in text


def test_who_may_manage_is_an_administrator_or_the_owner() -> None:
    assert may_manage(SecretRole.ADMINISTRATOR, "root", "ann")
    assert may_manage(SecretRole.USER, "ann", "ann")
    assert not may_manage(SecretRole.USER, "ann", "bob")
    assert not may_manage(SecretRole.USER, "", "")
    assert not may_manage(SecretRole.SERVICE, "ann", "ann")
    assert not why_not_named("ann", SecretRole.USER)
    assert why_not_named("mock_scm", SecretRole.USER)
