"""Runs in which commands are signed: everybody's secrets, and orders of strangers who have another one, or none.

A plane that asks for signatures must do all that it does otherwise, and nothing of what a stranger orders, in neither a
client's nor a service's name.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

from schemas import records
from schemas.codec import codec
from schemas.records import MetadataCommand, SecretRole, SetSecret, SnapshotCommand
from schemas.signatures import sign
from schemas.topics import METADATA_COMMANDS, SNAPSHOTS_COMMANDS, Topic
from services.domain.authorization import SERVICES
from services.log.signing import Signer
from services.snapshots.reads import queries
from tests.simulation.model import ShardModel
from tests.simulation.plane import SimulatedPlane

SECRETS: Mapping[str, bytes] = {name: name.encode().ljust(32, b"-") for name in sorted(SERVICES)}
"""What each service signs with."""
ROOT = Signer("root", b"root".ljust(32, b"-"))
"""Whom all clients of a run belong to."""
_STRANGE = (b"a stranger's".ljust(32, b"-"), *SECRETS.values())


def enrolment() -> list[SetSecret]:
    """What makes everybody known: services first, since an administrator is what switches the demand on."""
    services = [SetSecret(name, SecretRole.SERVICE, secret) for name, secret in SECRETS.items()]
    return [*services, SetSecret(ROOT.user, SecretRole.ADMINISTRATOR, ROOT.secret)]


@dataclass(slots=True)
class UnauthorizedSender:
    """Somebody who may reach a shard's topics of commands, and has nobody's secret but perhaps another service's."""

    shard: int
    random: Random
    plane: SimulatedPlane
    orders: int = field(default=0, init=False)
    requests: set[tuple[str, int]] = field(default_factory=set, init=False)
    """Client and number of all that was wanted of snapshots: none of it may be done."""

    def signed(self, topic: Topic, command: Any) -> bytes:
        """A command as if somebody else had sent it: unsigned, or signed with what is not his."""
        encoder = codec(topic.record)
        if not command.sender:
            user = self.random.choice(("", ROOT.user, ROOT.user, "nobody", "key_deletion"))
            command = replace(command, user=user, issued_at_ms=self.plane.clock.now_ms())
        value = encoder.encode_message(command)
        secret = self.random.choice(_STRANGE)
        if self.random.random() < 0.3 or secret == SECRETS.get(command.sender):
            return value
        return sign(secret, topic.name, value)

    def order(self, model: ShardModel) -> tuple[Topic, bytes]:
        """What only an administrator may, or a service that has it from its own state."""
        if self.random.random() < 0.5:
            return SNAPSHOTS_COMMANDS, self.signed(SNAPSHOTS_COMMANDS, self._request(model))
        return METADATA_COMMANDS, self.signed(METADATA_COMMANDS, self._command(model))

    def _client(self) -> tuple[str, int]:
        """In the place of a client, with a number that would make it deaf to all that it sends later."""
        self.orders += 1
        return f"{ROOT.user}/{self.random.choice(('client-one', 'unauthorized'))}", 1_000_000 + self.orders

    def _command(self, model: ShardModel) -> MetadataCommand:
        bodies: list[Any] = [
            records.StopClaims("a stranger's order"),
            records.SetCollection("", "", records.CollectionState.PAUSED, "a stranger's order"),
            records.SetCollection("", "", records.CollectionState.RUNNING, "a stranger's order", ends_stop=True),
            SetSecret(ROOT.user, SecretRole.ADMINISTRATOR, b"a stranger's".ljust(32, b"-")),
        ]
        for one in model.live_buckets():
            paths = sorted(one.bucket.view().keys)
            bodies += [records.DeleteKeys(one.volume, one.name, tuple(paths))] * bool(paths)
            bodies.append(records.PutKey(one.volume, one.name, "x", 1_000))
        return MetadataCommand(self.shard, *self._client(), self.random.choice(bodies))

    def _request(self, model: ShardModel) -> SnapshotCommand:
        live = [(one, snapshot_id) for one in model.live_buckets() for snapshot_id in one.snapshots]
        if live and self.random.random() < 0.5:
            flags = records.SetDeepClean(
                self.random.choice(live)[1], 1 << 40, has_deep_cleaned_keys=True, has_deep_cleaned_directories=True
            )
            return SnapshotCommand(self.shard, "", 0, flags, "key_deletion")
        bodies: list[Any] = [records.Settle("a stranger's order")]
        tables = self.plane.tables("snapshots", self.shard)
        for one in model.live_buckets():
            names = [row.name for row in queries.list_snapshots(tables, one.volume, one.name)]
            bodies += [records.DeleteSnapshot(one.volume, one.name, name) for name in names]
        client = self._client()
        self.requests.add(client)
        return SnapshotCommand(self.shard, *client, self.random.choice(bodies))
