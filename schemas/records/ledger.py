"""Records of gc.ledger."""

# Made from schemas/avro by python -m schemas.generate: change the schema, then run that.

from __future__ import annotations

from dataclasses import dataclass

from schemas.records.shared import BlockGroups


@dataclass(frozen=True, slots=True)
class ClaimFacts:
    """Why rows could be claimed, and who asked: the same for all rows of a claim that lie between the same two
    snapshots.
    """

    claim_txn: int
    """txn of the claim."""
    claim_time_ms: int
    """Log time of the claim."""
    chain_version: int
    """The shard's chain version at the claim."""
    previous_txn: int
    """txn of the bucket's newest snapshot, among those live at the claim, that was captured before the death; 0 for
    none. No snapshot held the version if its birth is greater.
    """
    next_txn: int
    """txn of the bucket's oldest snapshot, among those live at the claim, that was captured after the birth; 0 for
    none. No snapshot held the version if this is 0 or not less than its death.
    """
    task: int
    """key_deletion's number for the batch of rows that it asked for."""
    first_judge_version: int
    """Chain version with which streaming judged; of several verdicts in one batch the oldest; 0 when it is not
    known.
    """
    second_judge_version: int
    """Chain version with which key_deletion judged."""


@dataclass(frozen=True, slots=True)
class LedgerRows:
    """Versions that were freed, and why that was safe: one message for each command that finished any. Topic
    gc.ledger, written by metadata, read by clients; nothing in it ever changes.
    """

    finish_txn: int
    """txn that removed the rows, after the storage container manager had confirmed their blocks."""
    finish_time_ms: int
    """Log time of that txn: the confirmation was there by then."""
    claims: tuple[ClaimFacts, ...]
    """What the rows were claimed for, each once."""
    claim_places: tuple[int, ...]
    """Of each row the place of its claim in claims, from 0; as long as the lists of groups."""
    groups: BlockGroups
    """The rows with their blocks."""
