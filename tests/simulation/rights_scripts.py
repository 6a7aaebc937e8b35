"""Runs in which commands are signed and rights decide: ann owns the volume, bob has what the lists give him."""

from __future__ import annotations

from typing import Any

from schemas import records
from schemas.records import Acl, AclIdentity, AclObject, AclRight, AclScope, BucketLayout
from services.log.signing import Signer
from tests.simulation.people import BY_TOKEN, PEOPLE
from tests.simulation.scripts import BUCKET, Stage
from tests.simulation.signing import ROOT
from tests.simulation.simulator import Simulation
from tests.simulation.tokens import DAY_MS, SIGNS_AS

_KEY = "d/key"


class _Office(Stage):
    """A bucket, and people who send commands about it."""

    def __init__(self, simulation: Simulation, layout: BucketLayout = BucketLayout.OBJECT_STORE) -> None:
        super().__init__(simulation, layout)
        self.shard.people.enrol()
        self.says("root", records.SetOwner(self.volume, "", "ann"))
        self.says("root", records.SetAcl(AclObject.VOLUME, self.volume, "", "", ()))

    def says(self, who: str, body: Any) -> None:
        """Let somebody send a command, and metadata carry it out."""
        secret = BY_TOKEN if who.startswith(SIGNS_AS) else PEOPLE.get(who, ROOT.secret)
        self.shard.people.send(Signer(who, secret), body)
        self.run("metadata")

    def give(self, right: AclRight, *places: tuple[AclObject, str, str], user: str = "bob") -> None:
        """Give somebody a right to objects."""
        entry = Acl(AclIdentity.USER, user, (right,), AclScope.ACCESS)
        for kind, bucket, path in places:
            self.says("ann", records.AddAcl(kind, self.volume, bucket, path, entry))

    def give_bucket(self) -> None:
        """Let bob write into the bucket."""
        self.give(AclRight.READ, (AclObject.VOLUME, "", ""))
        self.give(AclRight.ALL, (AclObject.BUCKET, BUCKET, ""))

    def puts(self, who: str, key: str = _KEY, bucket: str = BUCKET) -> None:
        """Let somebody write a key."""
        self.says(who, records.PutKey(self.volume, bucket, key, 100, "tag", 1_024))

    def token(self) -> str:
        """Make a token of ann. Return its id."""
        self.says("ann", records.GetDelegationToken("bob", BY_TOKEN))
        return next(reversed(self.shard.model.rights.tokens.present))


def an_expired_token(simulation: Simulation) -> None:
    """A token acts for a day, and then no more."""
    office = _Office(simulation)
    token_id = office.token()
    office.puts(SIGNS_AS + token_id)
    office.simulation.plane.clock.advance(DAY_MS)
    office.puts(SIGNS_AS + token_id)


def a_cancelled_token(simulation: Simulation) -> None:
    """A token acts until it is cancelled."""
    office = _Office(simulation)
    token_id = office.token()
    office.puts(SIGNS_AS + token_id)
    office.says("bob", records.CancelDelegationToken(token_id))
    office.puts(SIGNS_AS + token_id)


def a_key_in_a_bucket_with_a_list(simulation: Simulation) -> None:
    """What is given to a bucket alone is not given to its keys."""
    office = _Office(simulation)
    office.give_bucket()
    office.puts("ann")


def a_key_of_somebody_else(simulation: Simulation) -> None:
    """Who may write into a bucket may not delete keys that others have written."""
    office = _Office(simulation)
    office.give_bucket()
    office.puts("ann")
    office.says("bob", records.DeleteKey(office.volume, BUCKET, _KEY))


def a_prefix_that_is_not_given(simulation: Simulation) -> None:
    """Who may write into a bucket may not into a prefix that has a list of its own."""
    office = _Office(simulation)
    office.give_bucket()
    office.give(AclRight.READ, (AclObject.PREFIX, BUCKET, "d/"), user="eve")
    office.puts("bob", "key")
    office.puts("bob")


def a_move_into_a_prefix_that_is_not_given(simulation: Simulation) -> None:
    """A move to a directory ends below it, where the list of its prefix counts."""
    office = _Office(simulation, BucketLayout.FILE_SYSTEM_OPTIMIZED)
    office.give_bucket()
    office.puts("ann", "key")
    office.give(AclRight.DELETE, (AclObject.KEY, BUCKET, "key"))
    office.says("ann", records.MakeDirectory(office.volume, BUCKET, "d"))
    office.give(AclRight.READ, (AclObject.PREFIX, BUCKET, "d/"), user="eve")
    office.says("bob", records.RenameKey(office.volume, BUCKET, "key", "d"))


def a_link_that_is_not_given(simulation: Simulation) -> None:
    """Who may write into a bucket needs a right to the link by which he names it, too."""
    office = _Office(simulation)
    office.give_bucket()
    office.says("ann", records.CreateBucketLink(office.volume, "link-1", office.volume, BUCKET))
    office.puts("bob", bucket="link-1")


def an_undeleted_key(simulation: Simulation) -> None:
    """A key that comes back has no more the list that it had."""
    office = _Office(simulation)
    office.give_bucket()
    office.puts("ann")
    office.give(AclRight.DELETE, (AclObject.KEY, BUCKET, _KEY))
    office.says("ann", records.DeleteKey(office.volume, BUCKET, _KEY))
    office.says("ann", office.deleted(_KEY))
    office.says("bob", records.DeleteKey(office.volume, BUCKET, _KEY))
