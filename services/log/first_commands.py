"""The commands with which the log of a new shard begins: all that this program knows is allowed from the start."""

from __future__ import annotations

from collections.abc import Iterator

from schemas.feature_level import FEATURE_LEVEL, confirmation
from schemas.records import MetadataCommand, SetFeatureLevel
from schemas.schema_files import released_versions
from services.log.signing import Signer, announcement, person_command


def first_commands(shard: int, signer: Signer | None, now_ms: int) -> Iterator[bytes]:
    """Yield the messages that announce the newest schema of commands and make the newest feature level final.

    A shard without a history has no older program to go back to.
    """
    *older, newest = released_versions(MetadataCommand.__name__)
    if older:
        yield announcement(newest.schema_id, shard, signer, now_ms)
    body = SetFeatureLevel(FEATURE_LEVEL, confirmation(FEATURE_LEVEL))
    yield person_command(MetadataCommand(shard, "", 0, body, wants_reply=False), signer, now_ms)
