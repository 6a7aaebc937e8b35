"""The commands with which the log of a new shard begins: all that this program knows is allowed from the start."""

from __future__ import annotations

from collections.abc import Iterator

from schemas.feature_level import FEATURE_LEVEL, confirmation
from schemas.records import MetadataCommand, Replication, SetDefaultReplication, SetFeatureLevel
from schemas.schema_files import released_versions
from services.log.signing import Signer, announcement, person_command


def first_commands(
    shard: int, signer: Signer | None, now_ms: int, replication: Replication = Replication.RATIS_ONE
) -> Iterator[bytes]:
    """Yield the messages that announce the newest schema of commands, make the newest feature level final and, unless
    it is one copy, set the replication of new buckets.

    A shard without a history has no older program to go back to.
    """
    *older, newest = released_versions(MetadataCommand.__name__)
    if older:
        yield announcement(newest.schema_id, shard, signer, now_ms)
    body = SetFeatureLevel(FEATURE_LEVEL, confirmation(FEATURE_LEVEL))
    yield person_command(MetadataCommand(shard, "", 0, body, wants_reply=False), signer, now_ms)
    if replication is not Replication.RATIS_ONE:
        default = SetDefaultReplication(replication)
        yield person_command(MetadataCommand(shard, "", 0, default, wants_reply=False), signer, now_ms)
