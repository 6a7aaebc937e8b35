"""Records of gc.ledger."""

# Made from schemas/avro by python -m schemas.generate: change the schema, then run that.

from __future__ import annotations

from schemas.frozen import record
from schemas.records.shared import BlockGroups


@record
class ClaimFacts:
    """Facts that justify the claim of rows. All rows of one claim between the same two snapshots share them."""

    claim_txn: int
    """txn of the claim."""
    claim_time_ms: int
    """Log time of the claim."""
    chain_version: int
    """The shard's chain version at the claim."""
    previous_txn: int
    """txn of the bucket's newest snapshot, among those live at the claim, that was captured before the death; 0 for
    none. No snapshot held the version if its birth is greater than this.
    """
    next_txn: int
    """txn of the bucket's oldest snapshot, among those live at the claim, that was captured after the birth; 0 for
    none. No snapshot held the version if this is 0, or not less than its death.
    """
    task: int
    """key_deletion's number for the batch of rows."""
    first_judge_version: int
    """Oldest chain version with which streaming judged one of the rows of the batch; 0 when it is not known."""
    second_judge_version: int
    """Chain version with which key_deletion judged."""


@record
class LedgerRows:
    """Freed versions, with the facts that justify their claims: one message for each command that finished any.
    Topic gc.ledger, written by metadata, read by clients. A message is never changed.
    """

    finish_txn: int
    """txn that removed the rows, after the storage container manager had confirmed their blocks."""
    finish_time_ms: int
    """Log time of that txn; the confirmation arrived no later."""
    claims: tuple[ClaimFacts, ...]
    """Facts of the claims, each once."""
    claim_places: tuple[int, ...]
    """For each row, the index of its claim in claims, from 0; as long as the lists of groups."""
    groups: BlockGroups
    """The rows with their blocks."""
