"""Random logs of a shard in which quotas, links, owners, access lists and tokens decide, amid keys written in steps.

A history asks the shard's own database what there is to work with, so that much of it is carried out; the rest is
refused for every reason that there is.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random
from typing import Any

from schemas import records
from schemas.codec import codec
from schemas.records import (
    Acl,
    AclIdentity,
    AclObject,
    AclRight,
    AclScope,
    BucketLayout,
    DeletedKeyRow,
    DeletedKind,
    MetadataCommand,
    MetadataReply,
    RowName,
    SecretRole,
)
from schemas.signatures import sign
from schemas.topics import METADATA_COMMANDS, METADATA_REPLIES
from services.domain.row_columns import by_columns
from services.domain.table_keys import part_key
from services.log.clock import VirtualClock
from services.log.first_commands import first_commands
from services.log.memory import MemoryLog
from services.log.signing import Signer, signed_command
from services.metadata.service import MetadataService
from services.metadata.state.tables import (
    BUCKET_TABLE,
    CHECKPOINTED,
    DELETED_TABLE,
    OPEN_FILE_TABLE,
    OPEN_KEY_TABLE,
    PART_TABLE,
    RECLAIM_TABLE,
    SNAPSHOT_LIST_TABLE,
    TOKEN_TABLE,
    UPLOAD_TABLE,
)
from services.runtime.loop.runner import Runner
from services.storage.memory import MemoryStore
from services.storage.tables import TablesReader

PEOPLE = {name: name.encode().ljust(32, b"-") for name in ("root", "ann", "bob", "eve")}
SERVICES = {name: name.encode().ljust(32, b"-") for name in ("snapshots", "key_deletion")}
VOLUME, OTHER_VOLUME = "volume", "other-volume"
BUCKETS = ("flat", "tree", "link", "link-to-link", "other")
KEYS = ("a", "b", "d/a", "d/e/b", "f/a")
PREFIXES = ("d/", "d/e/", "f/")
_BLOCK_BYTES = 100
_HOUR_MS = 3_600_000


def replay(log: MemoryLog, batch: int) -> tuple[MemoryStore, MemoryLog]:
    """Apply the commands of a log in batches of some size. Return the database, and what was answered."""
    copied = MemoryLog(log.clock)
    copied.partitions[METADATA_COMMANDS.name, 0] = list(log.records(METADATA_COMMANDS.name, 0))
    store = MemoryStore(CHECKPOINTED)
    runner = Runner(MetadataService(), 0, store, copied, log.clock, max_batch_messages=batch)
    while runner.step():
        pass
    return store, copied


def answers(log: MemoryLog) -> list[MetadataReply]:
    """All that metadata has answered."""
    return [codec(MetadataReply).decode_message(one.value) for one in log.records(METADATA_REPLIES.name, 0)]


@dataclass(slots=True)
class RightsHistory:
    """A shard and those who send it commands."""

    random: Random
    clock: VirtualClock = field(default_factory=VirtualClock)
    log: MemoryLog = field(init=False)
    store: MemoryStore = field(init=False)
    kinds: dict[tuple[str, int], str] = field(default_factory=dict)
    """By client and number what was sent."""
    _runner: Runner = field(init=False)
    _numbers: dict[str, int] = field(default_factory=dict)
    _tasks: int = 0

    def __post_init__(self) -> None:
        self.log, self.store = MemoryLog(self.clock), MemoryStore(CHECKPOINTED)
        self._runner = Runner(MetadataService(), 0, self.store, self.log, self.clock, max_batch_messages=7)
        for message in first_commands(0, None, 0):
            self.log.append(METADATA_COMMANDS.name, 0, message)
        for name, secret in SERVICES.items():
            self._send("root", records.SetSecret(name, SecretRole.SERVICE, secret))
        for name, secret in PEOPLE.items():
            role = SecretRole.ADMINISTRATOR if name == "root" else SecretRole.USER
            self._send("root", records.SetSecret(name, role, secret))
        self._send("root", records.SetGroups("bob", ("staff",)))
        for volume in (VOLUME, OTHER_VOLUME):
            self._send("root", records.CreateVolume(volume, "ann"))
        self._send("ann", records.CreateBucket(VOLUME, "flat", BucketLayout.OBJECT_STORE))
        self._send("ann", records.CreateBucket(VOLUME, "tree", BucketLayout.FILE_SYSTEM_OPTIMIZED))
        self._send("ann", records.CreateBucketLink(VOLUME, "link", VOLUME, self.random.choice(("flat", "tree"))))
        self._send("ann", records.CreateBucketLink(VOLUME, "link-to-link", VOLUME, "link"))
        for right in self.random.sample((AclRight.READ, AclRight.WRITE, AclRight.ALL), 2):
            for place in ((AclObject.VOLUME, VOLUME, "", ""), (AclObject.BUCKET, VOLUME, "tree", "")):
                self._send("ann", records.AddAcl(*place, self._entry(right)))
        self._take_in()

    def play(self, commands: int) -> None:
        """Send so many commands, some at once."""
        for _ in range(commands):
            act = self.random.choices((self._write, self._govern, self._serve), (6, 4, 2))[0]
            act()
            if self.random.random() < 0.4:
                self._take_in()
            if self.random.random() < 0.03:
                self.clock.advance(self.random.choice((_HOUR_MS, 25 * _HOUR_MS)))
        self._take_in()

    # ---- sending

    def _take_in(self) -> None:
        while self._runner.step():
            pass

    @property
    def _tables(self) -> TablesReader:
        return TablesReader(self.store)

    def _signer(self) -> Signer:
        """A person, or a token, or somebody who has another's secret."""
        tokens = [row for _, row in self._tables.table(TOKEN_TABLE).scan()]
        if tokens and self.random.random() < 0.2:
            token = self.random.choice(tokens)
            return Signer(f"token {token.token_id}", token.secret)
        name = self.random.choice(("root", "root", "ann", "ann", "ann", "bob", "bob", "bob", "eve"))
        secret = PEOPLE[name] if self.random.random() < 0.97 else PEOPLE["eve"]
        return Signer(name, secret)

    def _send(self, who: str | Signer, body: Any, sender: str = "") -> None:
        signer = who if isinstance(who, Signer) else Signer(who, PEOPLE[who])
        client_id = f"{signer.user}/client"
        number = self._numbers[client_id] = self._numbers.get(client_id, 0) + 1
        self.kinds[client_id, number] = type(body).__name__
        command = MetadataCommand(0, client_id, number, body, sender)
        value = signed_command(METADATA_COMMANDS, command, signer, self.clock.now_ms())
        self.log.append(METADATA_COMMANDS.name, 0, value)
        self.clock.advance(self.random.choice((0, 1, 500)))

    def _send_for(self, service: str, body: Any) -> None:
        value = codec(MetadataCommand).encode_message(MetadataCommand(0, "", 0, body, service, wants_reply=False))
        self.log.append(METADATA_COMMANDS.name, 0, sign(SERVICES[service], METADATA_COMMANDS.name, value))

    # ---- keys

    def _write(self) -> None:
        random, place = self.random, (VOLUME, self.random.choice(BUCKETS))
        key, size_bytes = random.choice(KEYS), random.choice((0, 50, 250, 1_000))
        bodies: list[Any] = [
            *[records.PutKey(*place, key, size_bytes, "tag", _BLOCK_BYTES)] * 4,
            *[records.OpenKey(*place, key, size_bytes, "tag", _BLOCK_BYTES)] * 2,
            records.OpenKey(*place, key, 100, "tag", _BLOCK_BYTES, is_append=True),
            *[records.InitiateUpload(*place, key)] * 2,
            records.MakeDirectory(*place, random.choice(("d", "d/e", "f"))),
            records.DeleteKey(*place, key),
            records.PutKeys(*place, tuple(random.sample(KEYS, 2)), (size_bytes, 50), (), _BLOCK_BYTES),
            records.DeleteKeys(*place, tuple(random.sample(KEYS, 2))),
            records.DeleteDirectory(*place, random.choice(("d", "f"))),
            records.RenameKey(*place, key, random.choice(KEYS)),
            records.RenameDirectory(*place, "d/e", "f"),
            records.RecoverLease(*place, key),
        ]
        steps = [*self._steps(), *self._of_uploads()]
        self._send(self._signer(), random.choice(steps if steps and random.random() < 0.5 else bodies))

    def _steps(self) -> list[Any]:
        """How open keys go on, and open parts of uploads."""
        steps: list[Any] = []
        for table in (OPEN_KEY_TABLE, OPEN_FILE_TABLE):
            for _, row in self._tables.table(table).scan():
                bucket = self.random.choice(("flat" if table is OPEN_KEY_TABLE else "tree", "link"))
                place = (VOLUME, bucket, row.key, row.session)
                size_bytes = (row.synced.size_bytes if row.synced else 0) + self.random.choice((0, 50, 120))
                steps += [
                    records.AllocateBlocks(*place, 200),
                    *[records.SyncKey(*place, size_bytes), records.CommitKey(*place, size_bytes)] * 2,
                    records.AbandonKey(*place),
                ]
        return steps

    def _of_uploads(self) -> list[Any]:
        """How uploads go on."""
        steps: list[Any] = []
        for _, upload in self._tables.table(UPLOAD_TABLE).scan():
            place = (VOLUME, self.random.choice(("flat", "tree", "link")), upload.key)
            parts = self._tables.table(PART_TABLE).scan(part_key(upload.upload_id, 0), part_key(upload.upload_id, 9))
            number, numbers = self.random.choice((1, 2)), tuple(part.part_number for _, part in parts)
            part = records.OpenKey(*place, 150, "part", _BLOCK_BYTES, upload_id=upload.upload_id, part_number=number)
            complete = records.CompleteUpload(*place, upload.upload_id, numbers, "whole")
            steps += [part, part, complete, complete, records.AbortUpload(*place, upload.upload_id)]
        return steps

    # ---- rights and quotas

    def _entry(self, right: AclRight | None = None) -> Acl:
        rights = (right or self.random.choice(list(AclRight)),)
        identity = self.random.choice((AclIdentity.USER, AclIdentity.USER, AclIdentity.GROUP, AclIdentity.WORLD))
        name = {AclIdentity.USER: "bob", AclIdentity.GROUP: "staff"}.get(identity, "")
        return Acl(identity, name, rights, self.random.choice(list(AclScope)))

    def _govern(self) -> None:
        random, bucket = self.random, self.random.choice(BUCKETS)
        objects = [
            (AclObject.VOLUME, VOLUME, "", ""),
            (AclObject.BUCKET, VOLUME, bucket, ""),
            (AclObject.PREFIX, VOLUME, bucket, random.choice(PREFIXES)),
            (AclObject.KEY, VOLUME, bucket, random.choice(KEYS)),
        ]
        place, entry = random.choice(objects), self._entry()
        tokens = [row.token_id for _, row in self._tables.table(TOKEN_TABLE).scan()] or ["0-1"]
        quotas = random.choice((-1, 300, 2_000, 10_000)), random.choice((-1, 3, 8))
        bodies: list[Any] = [
            *[records.AddAcl(*place, entry)] * 3,
            records.RemoveAcl(*place, entry),
            records.SetAcl(*place, (entry, self._entry())),
            *[records.SetQuota(VOLUME, bucket, *quotas)] * 3,
            records.SetQuota(VOLUME, "", random.choice((-1, 30_000)), random.choice((-1, 2, 6))),
            records.SetOwner(VOLUME, random.choice(("", bucket)), random.choice(("ann", "bob"))),
            records.SetGroups("bob", random.choice(((), ("staff",)))),
            records.GetDelegationToken(random.choice(("ann", "nobody")), b"token".ljust(32, b"-")),
            *[records.RenewDelegationToken(random.choice(tokens))] * 2,
            records.CancelDelegationToken(random.choice(tokens)),
            records.CreateBucketLink(VOLUME, "other", random.choice((VOLUME, OTHER_VOLUME)), random.choice(BUCKETS)),
            records.CreateBucket(VOLUME, random.choice(("link", "other")), BucketLayout.FILE_SYSTEM_OPTIMIZED),
            records.DeleteBucket(VOLUME, random.choice(("link", "other"))),
        ]
        self._send(self._signer(), random.choice(bodies))

    # ---- services

    def _serve(self) -> None:
        """Snapshots are taken and dropped; rows are claimed and finished, as metadata has them by now."""
        random, tables = self.random, self._tables
        live = [row.snapshot_id for _, row in tables.table(SNAPSHOT_LIST_TABLE).scan() if row.is_live]
        act = random.choice(("capture", "drop", "claim", "finish", "repair"))
        if act == "capture" and len(live) < 3:
            snapshot_id = f"snapshot-{random.randrange(1 << 30)}"
            self._send_for("snapshots", records.CaptureSnapshot(VOLUME, random.choice(BUCKETS), snapshot_id, ""))
        elif act == "drop" and live:
            self._send_for("snapshots", records.DropSnapshot(random.choice(live)))
        elif act in ("claim", "finish"):
            rows = [*tables.table(DELETED_TABLE).scan()]
            if act == "finish":
                rows = [(key, row.version) for key, row in tables.table(RECLAIM_TABLE).scan()]
            names = by_columns(_row_name(key, row) for key, row in rows)
            self._tasks += 1
            claim, finish = records.ClaimRows(self._tasks, 0, names), records.FinishRows(self._tasks, names)
            self._send_for("key_deletion", claim if act == "claim" else finish)
        elif act == "repair":
            bucket_id = random.choice([row.object_id for _, row in tables.table(BUCKET_TABLE).scan()])
            self._send("root", records.RepairQuota(bucket_id, random.choice((0, 10_000)), 0, 0, 0, 0, 0, 0, 0), "audit")


def _row_name(key: bytes, row: DeletedKeyRow) -> RowName:
    return RowName(DeletedKind.KEY, int(key.split(b"/")[2]), row.key.object_id, row.key.birth, row.death)
