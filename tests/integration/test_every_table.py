"""Every table of Ozone's metadata on a real plane: commands of clients fill it, and others empty it again.

The table in docs/architecture.md ("Ozone's tables and ours") says which commands these are. What is in the tables is
read with ``deepclean tables``, beside the services.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from schemas.records import (
    AbandonKey,
    AbortUpload,
    Acl,
    AclIdentity,
    AclObject,
    AclRight,
    AclScope,
    AddAcl,
    AllocateBlocks,
    AssignUserToTenant,
    BucketLayout,
    BucketVersioning,
    CancelDelegationToken,
    CommitKey,
    Committed,
    CreateBucket,
    CreateBucketLink,
    CreateSnapshot,
    CreateTenant,
    CreateVolume,
    DeleteBucket,
    DeleteDirectory,
    DeleteKey,
    DeleteSnapshot,
    DeleteTenant,
    DeleteVolume,
    GetDelegationToken,
    InitiateUpload,
    OpenKey,
    PutKey,
    RemoveAcl,
    RenameKey,
    RevokeS3Secret,
    RevokeUserFromTenant,
    SecretRole,
    SetBucketVersioning,
    SetS3Secret,
    SetSecret,
    Settle,
    SyncKey,
)
from services.cli.main import app
from services.client.kafka_plane import KafkaPlane
from services.client.plane import NamespaceCommand, SnapshotRequest
from services.log.signing import Signer
from services.plane.stack.enrolment import send_secrets
from services.plane.stack.stack import Stack

pytestmark = [pytest.mark.broker, pytest.mark.spark, pytest.mark.timeout(300), pytest.mark.long]
ARCHITECTURE = Path(__file__).parents[2] / "docs" / "architecture.md"
VOLUME, FLAT, TREE = "all", "flat", "tree"
ANN = Signer("ann", b"a" * 32)
SECRET = b"s" * 32
READERS = Acl(AclIdentity.GROUP, "readers", (AclRight.READ,), AclScope.ACCESS)
ON_PREFIX, ON_BUCKET = (AclObject.PREFIX, VOLUME, FLAT, "logs/"), (AclObject.BUCKET, VOLUME, FLAT, "")
NOT_OURS = {"compactionLogTable", "metaTable", "formatTable"}
"""Ozone's alone; and the format of the database, which every command that opens one reads."""
ALWAYS_FULL = {"transactionInfoTable"}
"""A table of one row."""
KEPT = {"bucketIdTable", "transactionInfoTable", "snapshotInfoTable", "snapshotListTable"}
"""Tables whose rows stay: of deleted buckets, of the shard, and of dropped snapshots, whose ids are not used again."""


def documented_tables() -> set[str]:
    """Return the tables that the page names, Ozone's and ours."""
    page = ARCHITECTURE.read_text("utf-8").partition("## Ozone's tables and ours\n")[2].partition("\n## ")[0]
    rows = [line.split("|")[1:3] for line in page.splitlines() if line.startswith("| ")]
    return set(re.findall(r"\w+Table\b", " ".join(cell for row in rows for cell in row))) - NOT_OURS


class Story:
    """What clients do, one command after the other; each must succeed."""

    def __init__(self, stack: Stack, plane: KafkaPlane) -> None:
        self._stack, self._plane = stack, plane

    def do(self, command: NamespaceCommand) -> Committed:
        reply = self._plane.answer(0, self._plane.submit(0, command))
        assert reply.error == "", (command, reply.message)
        return reply.committed or Committed(0)

    def request(self, asked: SnapshotRequest) -> None:
        reply = self._plane.request(0, asked)
        assert reply.error == "", reply.message

    def open(self, bucket: str, key: str, size_bytes: int = 1, **parts: Any) -> int:
        return self.do(OpenKey(VOLUME, bucket, key, size_bytes, **parts)).session

    def count(self, table: str) -> int:
        """Return the number of rows, as the command prints it."""
        words = ["--home", str(self._stack.home), "tables", "count", table, "--service", self._service(table), "--json"]
        result = CliRunner().invoke(app, words)
        assert result.exit_code == 0, result.output
        return int(json.loads(result.stdout)["rows"])

    @staticmethod
    def _service(table: str) -> str:
        return "snapshots" if table == "snapshotInfoTable" else "metadata"


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    with Stack(tmp_path_factory.mktemp("tables"), is_secured=True) as plane:
        yield plane


def test_every_table_is_filled_and_emptied_by_commands(stack: Stack) -> None:
    with stack.client() as plane:
        story = Story(stack, plane)
        send_secrets(plane, [SetSecret(ANN.user, SecretRole.USER, ANN.secret)])
        before = {table: story.count(table) for table in documented_tables()}
        names_and_rights(story)
        in_steps = keys_in_steps(story)
        snapshot_and_garbage(story)
        token_id = secrets_and_tenants(story, stack)
        filled = {table: story.count(table) for table in before}
        assert not [table for table in before if filled[table] <= before[table] and table not in ALWAYS_FULL]

        in_steps.end()
        for body in (CancelDelegationToken(token_id), RevokeS3Secret("ten$ann"), RevokeUserFromTenant("ten$ann")):
            story.do(body)
        story.do(DeleteTenant("ten"))
        story.do(DeleteVolume("tenvol"))
        for place in (ON_PREFIX, ON_BUCKET):
            story.do(RemoveAcl(*place, READERS))
        story.do(DeleteKey(VOLUME, TREE, "renamed"))
        story.do(DeleteDirectory(VOLUME, TREE, "kept"))
        for key in ("kept", "log"):
            story.do(DeleteKey(VOLUME, FLAT, key))
        for bucket in (FLAT, TREE):
            story.request(DeleteSnapshot(VOLUME, bucket, "held"))
        story.request(Settle("everything is freed"))
        for bucket in ("link", FLAT, TREE):
            story.do(DeleteBucket(VOLUME, bucket))
        story.do(DeleteVolume(VOLUME))
        emptied = {table: story.count(table) for table in before}
        assert {table: rows for table, rows in emptied.items() if table not in KEPT} == {
            table: rows for table, rows in before.items() if table not in KEPT
        }
        assert plane.scm(0).totals().inventory_blocks == 0


def names_and_rights(story: Story) -> None:
    """Volumes, buckets, a link, access lists, keys, one with two versions, and directories."""
    story.do(CreateVolume(VOLUME, ANN.user))
    story.do(CreateBucket(VOLUME, FLAT, BucketLayout.OBJECT_STORE))
    story.do(CreateBucket(VOLUME, TREE, BucketLayout.FILE_SYSTEM_OPTIMIZED))
    story.do(CreateBucketLink(VOLUME, "link", VOLUME, FLAT))
    for place in (ON_PREFIX, ON_BUCKET):
        story.do(AddAcl(*place, READERS))
    story.do(SetBucketVersioning(VOLUME, FLAT, BucketVersioning.ENABLED))
    for key in ("held", "kept", "kept"):
        story.do(PutKey(VOLUME, "link", key, 1_000))
    for path in ("directory/file", "kept/file", "to-rename"):
        story.do(PutKey(VOLUME, TREE, path, 1_000))


class KeysInSteps:
    """Keys that are being written, one in each bucket, and an upload that has a part."""

    def __init__(self, story: Story) -> None:
        self._story = story
        self._sessions = {bucket: story.open(bucket, "open") for bucket in (FLAT, TREE)}
        self._upload_id = story.do(InitiateUpload(VOLUME, FLAT, "upload")).upload_id
        part = story.open(FLAT, "upload", 100, upload_id=self._upload_id, part_number=1)
        story.do(CommitKey(VOLUME, FLAT, "upload", part, 100))

    def end(self) -> None:
        """Give all of them up."""
        for bucket, session in self._sessions.items():
            self._story.do(AbandonKey(VOLUME, bucket, "open", session))
        self._story.do(AbortUpload(VOLUME, FLAT, "upload", self._upload_id))


def keys_in_steps(story: Story) -> KeysInSteps:
    """Open keys and an upload, and a key with two runs of blocks."""
    log = story.open(FLAT, "log", 10, block_size_bytes=10)
    story.do(SyncKey(VOLUME, FLAT, "log", log, 10))
    story.do(AllocateBlocks(VOLUME, FLAT, "log", log, 10))
    story.do(CommitKey(VOLUME, FLAT, "log", log, 20))
    return KeysInSteps(story)


def snapshot_and_garbage(story: Story) -> None:
    """Snapshots that hold a deleted key, a deleted directory and the first name of a renamed key."""
    for bucket in (FLAT, TREE):
        story.request(CreateSnapshot(VOLUME, bucket, "held"))
    story.do(DeleteKey(VOLUME, FLAT, "held"))
    story.do(DeleteDirectory(VOLUME, TREE, "directory"))
    story.do(RenameKey(VOLUME, TREE, "to-rename", "renamed"))


def secrets_and_tenants(story: Story, stack: Stack) -> str:
    """Return the id of ann's delegation token."""
    story.do(CreateTenant("ten", "tenvol", ""))
    story.do(AssignUserToTenant("ten", ANN.user, "ten$ann", SECRET))
    story.do(SetS3Secret("ten$ann", SECRET[::-1] + b"2"))
    with KafkaPlane(replace(stack.address, signer=ANN)) as ann:
        return Story(stack, ann).do(GetDelegationToken(ANN.user, SECRET)).token_id
