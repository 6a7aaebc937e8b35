"""The replay numbers commands as metadata does, whatever is sent, and judges what metadata let come back."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from schemas import records
from schemas.codec import codec
from schemas.records import (
    BucketLayout,
    CaptureSnapshot,
    ClaimRows,
    CreateBucket,
    CreateVolume,
    DeleteDirectory,
    DeletedKind,
    DeleteKey,
    DropSnapshot,
    FinishRows,
    LedgerRows,
    MetadataCommand,
    MetadataReply,
    PutKey,
    RequeueOrphans,
    RowName,
    SecretRole,
    SetSecret,
    Undelete,
)
from schemas.topics import LEDGER, METADATA_COMMANDS, METADATA_REPLIES
from services.domain.row_columns import by_columns
from services.domain.table_keys import local_id
from services.log.memory import MemoryLog
from services.log.signing import Signer, signed_command
from services.metadata.collecting import claims
from services.metadata.reads.tenant_queries import list_tokens
from services.metadata.state.tables import TRANSACTION_INFO_KEY, TRANSACTION_INFO_TABLE
from services.storage.tables import TablesReader
from services.verifier.report import FindingKind, VerifyReport
from services.verifier.run import VerifyError, verify_shard
from tests.unit.test_metadata import Shard
from tests.unit.test_unauthorized_commands import BUCKET, IDENTITIES, SECRETS, VOLUME, SecuredPlane, sample

MAX_BYTES = 2**63 - 1


def verified(shard: Shard) -> VerifyReport:
    """A shard's report; its block store has deleted what the ledger says."""
    deleted = sum(sum(message.groups.sizes_bytes) for message in shard.sent(LEDGER))
    return verify_shard(shard.log, 0, lambda: deleted)


def txn_of(store: object) -> int:
    """How far metadata is."""
    state = TablesReader(store).table(TRANSACTION_INFO_TABLE).get(TRANSACTION_INFO_KEY)  # type: ignore[arg-type]
    assert state is not None
    return state.txn


def back(row: RowName, path: str, bucket: str = "flat") -> Undelete:
    """The command that brings a row back."""
    return Undelete("vol", bucket, path, row.kind, row.object_id, row.birth, row.death)


def free(shard: Shard, row: RowName) -> None:
    """Claim and finish a row."""
    shard.internal(ClaimRows(1, 0, by_columns([row])))
    shard.internal(FinishRows(1, by_columns([row])))


def test_what_metadata_refuses_gets_no_txn() -> None:
    shard = Shard()
    refused = [
        shard.refusal(PutKey("vol", "flat", "k", 1, "t" * 1_025)),
        shard.refusal(CreateVolume("other", "o" * 256)),
        shard.refusal(PutKey("vol", "flat", "k", 1), client_id="me", number=1),
        shard.refusal(Undelete("vol", "flat", "k", DeletedKind.KEY, 1, 1, 1)),
        shard.refusal(Undelete("vol", "flat", "k", DeletedKind.RENAME_ENTRY, 1, 1, 1)),
    ]
    assert all(refused)
    shard.do(PutKey("vol", "flat", "k", 1, "t" * 1_024))
    shard.do(CreateVolume("other", "o" * 255))
    for body in (PutKey("vol", "flat", "l", 1), RequeueOrphans(1, 1, (), 1)):
        shard.send(MetadataCommand(0, "i" * 129, 1, body))
    for snapshot_id in ("", "s" * 65, "ä"):
        shard.send(MetadataCommand(0, "", 0, CaptureSnapshot("vol", "flat", snapshot_id), "snapshots"))
    shard.send(MetadataCommand(0, "", 0, CaptureSnapshot("vol", "flat", "s" * 64), "snapshots"))
    shard.send(MetadataCommand(0, "", 0, records.GrantContainer(7), "snapshots"))
    while shard.runner.step():
        pass
    report = verified(shard)
    assert report.is_clean
    assert report.txn == txn_of(shard.store)


def test_the_bytes_of_a_shard_are_counted_until_they_are_freed() -> None:
    shard = Shard()
    put = PutKey("vol", "flat", "k", MAX_BYTES - 1, "", MAX_BYTES)
    assert not shard.refusal(put)
    assert shard.refusal(put), "what is overwritten is still stored"
    shard.do(DeleteKey("vol", "flat", "k"))
    assert shard.refusal(put), "and so is what is deleted"
    assert not shard.refusal(PutKey("vol", "flat", "l", 1))
    free(shard, shard.row())
    assert not shard.refusal(PutKey("vol", "tree", "a/b", MAX_BYTES - 1, "", MAX_BYTES))
    report = verified(shard)
    assert report.is_clean
    assert report.txn == txn_of(shard.store)


def test_what_access_lists_tenants_and_tokens_allow_is_replayed() -> None:
    """Nobody asks for answers: metadata gives those that the replay needs."""
    key = b"the secret of somebody"
    secured = SecuredPlane(has_snapshot=False)
    entry = records.Acl(
        records.AclIdentity.USER, "bob", (records.AclRight.READ, records.AclRight.WRITE), records.AclScope.ACCESS
    )

    def send(name: str, body: Any, secret: bytes = b"") -> None:
        secured.number += 1
        command = MetadataCommand(0, f"{name}/unasked", secured.number, body, wants_reply=False)
        signer = Signer(name, secret or SECRETS[name])
        secured.offer(
            METADATA_COMMANDS, signed_command(METADATA_COMMANDS, command, signer, secured.plane.clock.now_ms())
        )

    send("bob", PutKey(VOLUME, BUCKET, "denied", 1))
    for kind, bucket in ((records.AclObject.VOLUME, ""), (records.AclObject.BUCKET, BUCKET)):
        send("ann", records.AddAcl(kind, VOLUME, bucket, "", entry))
    send("bob", PutKey(VOLUME, BUCKET, "allowed", 1))
    send("bob", DeleteKey(VOLUME, BUCKET, "key"))
    send("bob", CreateBucket(VOLUME, "bobs", BucketLayout.OBJECT_STORE))
    send("bob", PutKey(VOLUME, "bobs", "k", 1))
    send("root", records.CreateTenant("ten1", "ten1vol", "bob"))
    send("root", records.DeleteVolume("ten1vol"))
    send("root", records.AssignUserToTenant("ten1", "bob", "ten1$bob", key))
    send("ten1$bob", CreateBucket("ten1vol", "made", BucketLayout.OBJECT_STORE), key)
    send("ten1$bob", CreateVolume("denied"), key)
    send("root", records.SetSecret("ten1$bob", records.SecretRole.USER, key))
    send("ann", records.GetDelegationToken("bob", key))
    (token,) = list_tokens(TablesReader(secured.plane.processes["metadata", 0].store))
    send(f"token {token.token_id}", PutKey(VOLUME, BUCKET, "by-token", 1), key)
    send("bob", records.CancelDelegationToken(token.token_id))
    send(f"token {token.token_id}", PutKey(VOLUME, BUCKET, "denied", 1), key)
    send("ann", records.SetOwner(VOLUME, "", "bob"))
    send("ann", PutKey(VOLUME, BUCKET, "denied", 1))
    while secured.plane.step():
        pass
    report = verify_shard(secured.plane.log, 0, lambda: 0)
    assert report.is_clean, report.examples
    assert report.txn == txn_of(secured.plane.processes["metadata", 0].store)
    paths = [row.path for row in secured.client.metadata(0).entries(VOLUME, BUCKET)]
    assert paths == ["allowed", "by-token", "key"]


@pytest.mark.parametrize("wants_reply", [True, False])
def test_a_key_comes_back_as_itself_dies_again_and_is_freed(wants_reply: bool) -> None:
    shard = Shard()
    shard.do(PutKey("vol", "flat", "k", 10))
    shard.do(DeleteKey("vol", "flat", "k"))
    shard.send(MetadataCommand(0, "", 0, back(shard.row(), "elsewhere"), wants_reply=wants_reply))
    shard.runner.step()
    assert verified(shard).undeletes == 1
    shard.do(DeleteKey("vol", "flat", "elsewhere"))
    free(shard, shard.row())
    report = verified(shard)
    assert report.is_clean, report.examples
    assert (report.rows, report.txn) == (1, txn_of(shard.store))


def test_a_key_that_came_back_as_a_new_object_owns_blocks_that_are_older_than_it() -> None:
    shard = Shard()
    birth = shard.do(PutKey("vol", "tree", "d/k", 10)).txn
    shard.do(DeleteKey("vol", "tree", "d/k"))
    dead = shard.row()
    shard.internal(CaptureSnapshot("vol", "tree", "between"))
    reply = shard.do(back(dead, "new/place", "tree"))
    assert reply.committed is not None
    assert reply.committed.object_id != dead.object_id
    shard.do(DeleteKey("vol", "tree", "new/place"))
    again = shard.row()
    assert again.birth == reply.txn > birth
    free(shard, again)
    report = verified(shard)
    assert report.is_clean, report.examples
    assert report.rows == 1
    # The first version is no more: a record of it would be of blocks that went twice.
    (message,) = shard.sent(LEDGER)
    old = replace(message.groups, object_ids=(dead.object_id,), births=(dead.birth,), deaths=(dead.death,))
    encoder = codec(LedgerRows)
    shard.log.append(LEDGER.name, 0, encoder.encode_message(replace(message, groups=old)))
    assert FindingKind.UNKNOWN_VERSION in verified(shard).findings


def test_a_directory_comes_back_with_all_that_died_with_it_and_nothing_else() -> None:
    shard = Shard()
    for path in ("a/b/c/deep", "a/b/flat", "a/before"):
        shard.do(PutKey("vol", "tree", path, 10))
    shard.do(DeleteKey("vol", "tree", "a/before"))
    before = shard.row()
    shard.do(DeleteDirectory("vol", "tree", "a/b", True))
    shard.do(back(shard.row(), "z", "tree"))
    shard.do(PutKey("vol", "tree", "z/c/deep", 11))
    report = verified(shard)
    assert report.is_clean, report.examples
    assert (report.undeletes, report.txn) == (1, txn_of(shard.store))
    overwritten = shard.row()
    free(shard, overwritten)
    free(shard, before)
    report = verified(shard)
    assert report.is_clean, report.examples
    assert report.rows == 2


def test_answers_to_those_who_do_not_number_commands_are_told_apart() -> None:
    shard = Shard()
    for name in ("a", "b"):
        shard.do(PutKey("vol", "flat", name, 10))
        shard.do(DeleteKey("vol", "flat", name))
    a, b = shard.row(-2), shard.row(-1)
    shard.do(PutKey("vol", "flat", "taken", 10))
    for command in (back(a, "taken"), back(b, "b"), back(b, "c"), back(a, "b"), back(a, "a")):
        shard.send(MetadataCommand(0, "", 0, command, wants_reply=False))
    while shard.runner.step():
        pass
    assert set(shard.names("flat")) == {"taken", "a", "b"}
    report = verified(shard)
    assert report.is_clean, report.examples
    assert (report.undeletes, report.txn) == (2, txn_of(shard.store))


def _lied(shard: Shard, command: Undelete, object_id: int) -> VerifyReport:
    """What verifying says when metadata answers that it has brought back what it should not have."""
    refusal = shard.refusal(command)
    assert refusal
    txn = txn_of(shard.store) + 1
    answer = MetadataReply("me", shard.number, txn, committed=records.Committed(object_id))
    shard.log.append(METADATA_REPLIES.name, 0, codec(MetadataReply).encode_message(answer))
    return verified(shard)


def test_what_should_not_have_come_back_is_found() -> None:
    shard = Shard()
    shard.do(PutKey("vol", "flat", "k", 10))
    shard.internal(CaptureSnapshot("vol", "flat", "holder"))
    shard.do(DeleteKey("vol", "flat", "k"))
    dead = shard.row()
    shard.internal(CaptureSnapshot("vol", "flat", "between"))
    report = _lied(shard, back(dead, "k"), dead.object_id)
    assert report.findings == {FindingKind.BROUGHT_BACK: 1}
    assert "a snapshot was taken since it died" in report.examples[0].reason
    assert not report.has_losses


def test_what_has_no_place_to_come_back_to_is_found() -> None:
    shard = Shard()
    shard.do(PutKey("vol", "flat", "k", 10))
    shard.do(DeleteKey("vol", "flat", "k"))
    dead = shard.row()
    shard.do(PutKey("vol", "flat", "k", 20))
    report = _lied(shard, back(dead, "k"), dead.object_id)
    assert report.findings == {FindingKind.BROUGHT_BACK: 1}


def test_a_record_whose_claim_is_older_than_an_undelete_is_of_a_live_version() -> None:
    shard = Shard()
    shard.do(PutKey("vol", "flat", "k", 10))
    shard.do(DeleteKey("vol", "flat", "k"))
    dead = shard.row()
    free(shard, dead)
    assert verified(shard).is_clean
    # As if the claim had been refused, the undelete let through, and the blocks deleted all the same.
    log = shard.log
    command = back(dead, "k")
    shard.send(MetadataCommand(0, "me", 1_000, command))
    answer = MetadataReply("me", 1_000, txn_of(shard.store) + 1, committed=records.Committed(dead.object_id))
    finish = log.partitions[METADATA_COMMANDS.name, 0].pop(-2)
    log.append(METADATA_REPLIES.name, 0, codec(MetadataReply).encode_message(replace(answer, txn=answer.txn - 1)))
    log.append(METADATA_COMMANDS.name, 0, finish.value)
    report = verified(shard)
    assert FindingKind.FREED_WHILE_LIVE in report.findings
    assert report.has_losses


def test_what_no_claim_of_the_log_named_is_not_shown_to_have_been_free() -> None:
    shard = Shard()
    shard.do(PutKey("vol", "flat", "k", 10))
    shard.do(DeleteKey("vol", "flat", "k"))
    free(shard, shard.row())
    assert verified(shard).is_clean
    commands = shard.log.partitions[METADATA_COMMANDS.name, 0]
    claim = codec(MetadataCommand).decode_message(commands[-2].value)
    forged = codec(MetadataCommand).encode_message(replace(claim, body=ClaimRows(1, 0, by_columns([]))))
    commands[-2] = commands[-2]._replace(value=forged)
    report = verified(shard)
    assert FindingKind.NOT_CLAIMED in report.findings
    assert report.has_losses


def test_a_claim_that_metadata_did_not_grant_is_nobodys_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    """Claims may be held back for reasons that the replay knows nothing of: the record names the one that counts."""
    shard = Shard()
    for number in range(3):
        shard.do(PutKey("vol", "flat", f"k{number}", 10))
        shard.do(DeleteKey("vol", "flat", f"k{number}"))
    with monkeypatch.context() as forged:
        forged.setattr(claims._Claim, "_is_held", lambda *_: True)
        for index in (0, 1, 2):
            shard.claim(shard.row(index))
    assert verified(shard).unfinished_rows == 3
    shard.do(back(shard.row(2), "k2"))
    shard.internal(CaptureSnapshot("vol", "flat", "later"))
    shard.internal(DropSnapshot("later"))
    free(shard, shard.row(0))
    report = verified(shard)
    assert report.is_clean, report.examples
    assert report.rows == 1


def test_an_undelete_whose_answer_was_trimmed_cannot_be_judged() -> None:
    shard = Shard()
    shard.do(PutKey("vol", "flat", "k", 10))
    shard.do(DeleteKey("vol", "flat", "k"))
    shard.do(back(shard.row(), "k"))
    shard.do(PutKey("vol", "flat", "l", 10))
    shard.log.trim(METADATA_REPLIES.name, 0, shard.log.end_offset(METADATA_REPLIES.name, 0) - 1)
    with pytest.raises(VerifyError, match="was trimmed"):
        verified(shard)


def test_rights_are_read_from_the_log() -> None:
    secured = SecuredPlane()
    for identity in IDENTITIES:
        for kind in (
            *(records.CreateVolume, records.CreateBucket, records.PutKey, records.DeleteKey, records.SetSecret),
            *(records.CaptureSnapshot, records.ClaimRows, records.GrantContainer, records.Undelete),
            *(records.StopClaims, records.SetCollection, records.SetBreaker, records.ResetBreaker, records.Barrier),
        ):
            secured.is_allowed(METADATA_COMMANDS, identity, sample(kind))
    secured.do(SetSecret("ann", SecretRole.USER, b"n" * 32))
    secured.do(SetSecret("bob", SecretRole.USER, b""))
    for name in ("ann", "bob", "root"):
        secured.is_allowed(METADATA_COMMANDS, name, PutKey(VOLUME, BUCKET, f"by-{name}", 1, ""))
    secured.do(SetSecret("ann", SecretRole.USER, b"n" * 32))
    secured.is_allowed(METADATA_COMMANDS, "ann", PutKey(VOLUME, BUCKET, "with-the-old-secret", 1, ""))
    secured.plane.clock.advance(3_600_001)
    secured.do(CreateBucket(VOLUME, "late", BucketLayout.OBJECT_STORE))
    while secured.plane.step():
        pass
    log = secured.plane.log
    assert isinstance(log, MemoryLog)
    report = verify_shard(log, 0, lambda: secured.client.scm(0).totals().deleted_bytes)
    assert report.is_clean, report.examples
    assert report.txn == txn_of(secured.plane.processes["metadata", 0].store)


def test_orphans_that_have_an_owner_anywhere_in_the_shard_are_not_requeued() -> None:
    shard = Shard()
    put = shard.do(PutKey("vol", "tree", "owner", 10))
    assert put.committed is not None
    owned = put.committed.blocks
    assert owned is not None
    shard.do(PutKey("vol", "flat", "k", 10))
    shard.do(DeleteKey("vol", "flat", "k"))
    freed = shard.row()
    free(shard, freed)
    run = replace(owned, first_local_id=local_id(0, freed.birth, 0))
    flat_id = shard.bucket("flat").object_id
    for blocks in ((owned,), (run, owned), (replace(run, block_count=1 << 17),), ()):
        assert shard.refusal(RequeueOrphans(flat_id, freed.birth, blocks, 100), sender="audit")
    assert not shard.refusal(RequeueOrphans(flat_id, freed.birth, (run,), 100), sender="audit")
    free(shard, shard.row())
    report = verified(shard)
    assert report.is_clean, report.examples
    assert (report.rows, report.txn) == (2, txn_of(shard.store))
