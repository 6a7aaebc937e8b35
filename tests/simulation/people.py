"""People of a run in which commands are signed: some own a volume or a bucket, some have rights by lists, some nothing.

They change owners, lists and groups, act by tokens that have ended, and try what they may not. What they do to keys is
what other clients do; who they are decides whether it is done.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from schemas import records
from schemas.records import Acl, AclIdentity, AclObject, AclRight, AclScope, BucketLayout, MetadataCommand, SecretRole
from schemas.topics import METADATA_COMMANDS
from services.log.signing import Signer, signed_command
from services.workloads.judge.model_bucket import OperationRefusedError
from tests.simulation.actions import BLOCK_BYTES
from tests.simulation.linker import LINKS
from tests.simulation.side_actor import SideActor
from tests.simulation.signing import ROOT
from tests.simulation.tokens import SIGNS_AS

PEOPLE = {name: name.encode().ljust(32, b"-") for name in ("ann", "bob", "eve")}
BY_TOKEN = b"by token".ljust(32, b"-")
_WEIGHTS = {"write": 8, "change_list": 5, "give": 2, "token": 3, "group": 1, "govern": 2}
_STAFF = "staff"


@dataclass(slots=True)
class People(SideActor):
    """The people of one shard."""

    _numbers: dict[str, int] = field(default_factory=dict)
    _tokens: list[str] = field(default_factory=list)
    """Some that there were once."""

    def __post_init__(self) -> None:
        if self.rate:
            self.enrol()
            self.send(ROOT, records.SetGroups("bob", (_STAFF,)))
            self.send(ROOT, records.SetOwner(self.volume, "", self.random.choice(("ann", "ann", ""))))
            volume, rights = (AclObject.VOLUME, self.volume, "", ""), self.random.choice((AclRight.ALL, AclRight.READ))
            self.send(ROOT, records.AddAcl(*volume, self._entry(rights)))

    def enrol(self) -> None:
        """Give everybody a secret."""
        for name, secret in PEOPLE.items():
            self.send(ROOT, records.SetSecret(name, SecretRole.USER, secret))

    def act(self) -> None:
        """Do one thing."""
        getattr(self, f"_{self.chosen(_WEIGHTS)}")()

    # ---- sending

    def send(self, signer: Signer, body: Any) -> None:
        """Append a command that somebody has signed; sometimes it comes twice."""
        client_id = f"{signer.user}/people"
        number = self._numbers[client_id] = self._numbers.get(client_id, 0) + 1
        command = MetadataCommand(self.actor.shard, client_id, number, body)
        now_ms = self.actor.log.clock.now_ms()
        value = signed_command(METADATA_COMMANDS, command, signer, now_ms)
        for _ in range(self.random.choice((1, 1, 1, 1, 1, 2))):
            self.actor.log.append(METADATA_COMMANDS.name, self.actor.shard, value)

    def _someone(self) -> Signer:
        """A person, or a program that acts by a token which may have ended."""
        present = list(self.actor.model.rights.tokens.present)
        self._tokens = [*self._tokens, *present][-6:]
        if self._tokens and self.random.random() < 0.25:
            return Signer(SIGNS_AS + self.random.choice([*present, *self._tokens]), BY_TOKEN)
        name = self.random.choice(("ann", "ann", "bob", "bob", "bob", "eve"))
        return Signer(name, PEOPLE[name])

    # ---- choosing

    def _bucket(self) -> str:
        """Mostly one that is there."""
        names = ["bucket-a", "bucket-a", "bucket-b", *LINKS]
        present = [name for name in names if self._leads(name)]
        return self.random.choice(present if present and self.random.random() < 0.9 else names)

    def _leads(self, name: str) -> bool:
        try:
            return bool(self.actor.model.found(self.volume, name).name)
        except OperationRefusedError:
            return False

    def _key(self, bucket: str, *, is_directory: bool = False) -> str:
        """Mostly one that is there, since others need no right of their own."""
        try:
            view = self.actor.model.found(self.volume, bucket).bucket.view()
            paths = list(view.directories if is_directory else view.keys)
        except OperationRefusedError:
            paths = []
        return self.random.choice(paths) if paths and self.random.random() < 0.7 else self._new_key()

    def _new_key(self) -> str:
        names = [self.random.choice("abc") for _ in range(self.random.choice((0, 1, 1, 2)))]
        return "/".join([*names, self.random.choice("xya")])

    def _entry(self, right: AclRight | None = None) -> Acl:
        rights = {right or self.random.choice((AclRight.ALL, *AclRight)), self.random.choice(list(AclRight)[:7])}
        identity = self.random.choice((AclIdentity.USER,) * 3 + (AclIdentity.GROUP, AclIdentity.WORLD))
        name = {AclIdentity.USER: self.random.choice(("bob", "eve")), AclIdentity.GROUP: _STAFF}.get(identity, "")
        given = tuple(one for one in AclRight if one in rights)
        return Acl(identity, name, given, self.random.choice((AclScope.ACCESS, AclScope.DEFAULT)))

    # ---- doing

    def _write(self) -> None:
        place = (self.volume, self._bucket())
        key, tag = self._key(place[1]), f"people-{self.random.randrange(1 << 20)}"
        directory = self._key(place[1], is_directory=True)
        sessions = [one for one in self.actor.model.writes.sessions.values() if not one.body.upload_id]
        bodies: list[Any] = [
            *[records.PutKey(*place, self._new_key(), self.random.choice((0, 100, 1_500)), tag, BLOCK_BYTES)] * 2,
            records.PutKey(*place, key, 100, tag, BLOCK_BYTES),
            records.PutKeys(*place, (key, self._new_key()), (100, 1_500), (tag, tag), BLOCK_BYTES),
            records.OpenKey(*place, key, 200, tag, 100),
            records.InitiateUpload(*place, key),
            records.RecoverLease(*place, key),
            *[records.DeleteKey(*place, key)] * 2,
            records.DeleteKeys(*place, (key, self._key(place[1]))),
            records.DeleteDirectory(*place, directory),
            records.MakeDirectory(*place, self._new_key()),
        ]
        target = self._new_key()
        if target not in (key, key.rpartition("/")[0]):
            bodies.append(records.RenameKey(*place, key, target))
        if sessions:
            one = self.random.choice(sessions)
            size_bytes = one.left.size_bytes if one.left else 0
            bodies += [records.CommitKey(*place, one.path, one.txn, size_bytes + 50)] * 2
        self.send(self._someone(), self.random.choice(bodies))

    def _object(self) -> tuple[AclObject, str, str, str]:
        bucket = self._bucket()
        objects = (
            (AclObject.VOLUME, self.volume, "", ""),
            *[(AclObject.BUCKET, self.volume, bucket, "")] * 2,
            *[(AclObject.PREFIX, self.volume, bucket, self.random.choice(("a/", "b/", "a/b/")))] * 2,
            *[(AclObject.KEY, self.volume, bucket, self._key(bucket, is_directory=self.random.random() < 0.4))] * 2,
        )
        return self.random.choice(objects)

    def _change_list(self) -> None:
        """Root does so, too: else few would ever have a right."""
        place, entry = self._object(), self._entry()
        bodies = [
            *[records.AddAcl(*place, entry)] * 4,
            records.RemoveAcl(*place, entry),
            records.SetAcl(*place, (entry, self._entry())),
        ]
        who = ROOT if self.random.random() < 0.5 else self._someone()
        self.send(who, self.random.choice(bodies))

    def _give(self) -> None:
        """Give a volume or bucket to somebody."""
        bucket = self.random.choice(("", self._bucket(), self._bucket()))
        who = ROOT if self.random.random() < 0.6 else self._someone()
        self.send(who, records.SetOwner(self.volume, bucket, self.random.choice(("ann", "bob", ""))))

    def _group(self) -> None:
        body = records.SetGroups(self.random.choice(("bob", "eve", "nobody")), self.random.choice(((), (_STAFF,))))
        self.send(ROOT if self.random.random() < 0.8 else self._someone(), body)

    def _token(self) -> None:
        tokens = self.actor.model.rights.tokens.present
        if not tokens or self.random.random() < 0.3:
            renewer = self.random.choice(("ann", "bob", "bob", "nobody"))
            self.send(self._someone(), records.GetDelegationToken(renewer, BY_TOKEN))
            return
        token_id = self.random.choice([*tokens, *tokens, *self._tokens])
        renewer = tokens[token_id].renewer if token_id in tokens else "ann"
        who = Signer(renewer, PEOPLE[renewer]) if self.random.random() < 0.6 else self._someone()
        kinds = (records.RenewDelegationToken, records.RenewDelegationToken, records.CancelDelegationToken)
        self.send(who, self.random.choice(kinds)(token_id))

    def _govern(self) -> None:
        """Buckets, links and quotas."""
        bucket, link = self._bucket(), self.random.choice(LINKS)
        layout = self.random.choice((BucketLayout.FILE_SYSTEM_OPTIMIZED, BucketLayout.OBJECT_STORE))
        bodies: list[Any] = [
            records.SetQuota(self.volume, bucket, self.random.choice((-1, 20_000)), -1),
            records.SetQuota(self.volume, "", -1, self.random.choice((-1, 8))),
            records.CreateBucketLink(self.volume, link, self.volume, bucket),
            records.CreateBucket(self.volume, link, layout),
            records.DeleteBucket(self.volume, link),
            records.CreateVolume("volume-of-people"),
        ]
        self.send(self._someone(), self.random.choice(bodies))
