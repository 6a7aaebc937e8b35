"""The commands of snapshots to metadata."""

from __future__ import annotations

from schemas.records import Barrier, CaptureSnapshot, DropSnapshot, MetadataCommand, RollbackPage, StopClaims
from schemas.topics import METADATA_COMMANDS
from services.runtime.loop.service import Work

SENDER = "snapshots"


def send_to_metadata(body: CaptureSnapshot | DropSnapshot | RollbackPage | StopClaims | Barrier, work: Work) -> None:
    """Send an internal command. Metadata answers on metadata.progress and stores no answer for a client."""
    work.send(METADATA_COMMANDS, MetadataCommand(work.shard, "", 0, body, SENDER, wants_reply=False))
