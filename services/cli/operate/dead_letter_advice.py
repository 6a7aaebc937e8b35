"""The consequence of a dead-lettered message and the operator's action, by the topic of the message."""

from __future__ import annotations

from dataclasses import dataclass

from schemas.records import MetadataCommand, SnapshotCommand
from schemas.topics import (
    DEAD_LETTERS,
    DELETED_ENTRIES,
    METADATA_COMMANDS,
    METADATA_PROGRESS,
    PURGE_DIRECTORIES,
    PURGE_KEYS,
    SCM_COMMANDS,
    SCM_REPLIES,
    SNAPSHOT_CHAIN,
    SNAPSHOTS_COMMANDS,
    SPACE,
    SWEEP_RESULTS,
)
from services.domain.authorization import SIGNED_FOR_MS, is_timely


@dataclass(frozen=True, slots=True)
class Advice:
    """The consequence of a dead letter, and the operator's action."""

    consequence: str
    action: str
    is_retry_allowed: bool = True


_KEPT = (
    "No block is lost. The rows stay in the garbage tables, and their blocks are kept until the rows are judged again."
)
_JUDGED_AGAIN = "A sweep publishes the rows again, in buckets with snapshots within an hour."
_RETRY_IS_SAFE = (
    "A retry is safe: every row is judged again, and rows that were removed meanwhile are answered with 'missing'."
)
_UNKNOWN = Advice(
    "The topic does not belong to this plane, and no service waits for the message.",
    "Find the program that writes dead letters here, then drop this letter.",
    is_retry_allowed=False,
)

_BY_TOPIC = {
    METADATA_COMMANDS.name: Advice(
        "The command was not executed and got no reply. A service sends its command again; a client does not.",
        "Mend the sender, or upgrade the plane when the sender is newer. Sent again, the command is carried out in the "
        "state of then: a delete may find a newer key of the same name. A client that has numbered later commands "
        "since gets OLD_REQUEST; let it send a new command and drop this one.",
    ),
    SNAPSHOTS_COMMANDS.name: Advice(
        "The request was not executed and got no reply.",
        "Repair the sender, let it send the request with a new number, then drop this letter.",
    ),
    DELETED_ENTRIES.name: Advice(_KEPT, f"{_JUDGED_AGAIN} {_RETRY_IS_SAFE}"),
    PURGE_KEYS.name: Advice(_KEPT, f"{_JUDGED_AGAIN} {_RETRY_IS_SAFE}"),
    PURGE_DIRECTORIES.name: Advice(
        "The deleted directories are not expanded and their contents are kept. Sizes stay marked '~'.",
        f"Send it again. {_RETRY_IS_SAFE}",
    ),
    SWEEP_RESULTS.name: Advice(
        "A page of a sweep counts as not judged. The garbage range is swept again later.",
        "No action is needed. Drop the letter when deepclean snapshot list shows the snapshot clean.",
    ),
    METADATA_PROGRESS.name: Advice(
        "An answer of metadata was not applied. The service that waits for it sends its request again.",
        "A retry is safe: an answer to a completed request is ignored.",
    ),
    SPACE.name: Advice(
        "Sizes of snapshots in this bucket may be old until the same figures change again. Nothing is freed by them.",
        "Do not send it again once newer figures came: they are absolute. Build snapshots again instead, then drop it.",
    ),
    SCM_COMMANDS.name: Advice(
        "Either blocks were not reported to the block store, which then confirms their deletion without having them; "
        "or a deletion was not carried out, which key_deletion tries again automatically.",
        "Send it again; a report behind later ones is ignored by the store, and its blocks are found by comparing its "
        "inventory with the namespace.",
    ),
    SCM_REPLIES.name: Advice(
        "A confirmation was not applied. The rows stay claimed, and key_deletion sends its request again.",
        "A retry is safe: a confirmation of an earlier attempt is ignored.",
    ),
    SNAPSHOT_CHAIN.name: Advice(
        "Judging has stopped, because a marker of the snapshot chain is missing. Nothing is freed.",
        "Make gc.snapshot-chain whole again, start the service that has stopped, then drop this one. A marker is never "
        "sent a second time.",
        is_retry_allowed=False,
    ),
    DEAD_LETTERS.name: Advice(
        "The dead letter itself cannot be read: another program writes to dead-letters, or a service is newer.",
        "Find the writer, then drop this letter.",
        is_retry_allowed=False,
    ),
}


def advice_for(topic: str) -> Advice:
    """Return the advice for a dead letter about a message of this topic."""
    return _BY_TOPIC.get(topic, _UNKNOWN)


def advice_for_record(topic: str, record: object, now_ms: int) -> Advice:
    """Return the advice for a dead letter whose message could be decoded.

    A user's command with a signature that is too old must not be sent again: the service would refuse it without a
    new letter and answer only its sender, who no longer waits.
    """
    advice = advice_for(topic)
    if not isinstance(record, MetadataCommand | SnapshotCommand) or not record.user:
        return advice
    if is_timely(record.issued_at_ms, now_ms):
        return advice
    return Advice(
        advice.consequence,
        f"Its user has signed it more than {SIGNED_FOR_MS // 60_000} minutes from now, and so old a signature would be "
        f"refused. Issue the command again, as that user, if it is still wanted; then drop this letter.",
        is_retry_allowed=False,
    )
