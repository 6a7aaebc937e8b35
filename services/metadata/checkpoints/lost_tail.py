"""Going on after the log has lost its tail: a person accepts it, and nothing that was named before is named again.

The lost commands were applied here and seen elsewhere: txns, block ids and chain versions that come from them are in
databases, in the block store and with clients. So the shard leaps over all of them. The database keeps what the lost
commands did; the log cannot tell it any more, so that from here on a shard is made again from a later backup only.
"""

from __future__ import annotations

from schemas.records import AcceptLostTail
from services.domain.errors import InvalidMessageError, InvariantError
from services.metadata.checkpoints.capture_drop import publish_full_chain
from services.metadata.state.transaction import Transaction

HIGHEST_EPOCH = 3
"""An objectID has two bits for it."""


def check_place(command: AcceptLostTail, offset: int) -> None:
    """Refuse one that is not where it was meant to be: sent again, or by somebody who does not know the log."""
    if command.offset != offset:
        raise InvalidMessageError(f"a lost tail is accepted at offset {command.offset}, not at {offset}")


def accept(transaction: Transaction, command: AcceptLostTail) -> None:
    """Leap to another epoch, and over every txn and chain version that anybody may have seen.

    It is where it was meant to be and from who may send it: were it put aside, the shard would go on as if nothing
    had been lost.

    Raises:
        InvariantError: it would go back, or this database was built without the commands that were lost.
    """
    counters = transaction.counters
    is_forward = command.txn >= counters.txn and command.chain_version > counters.chain_version
    if not is_forward or not counters.epoch < command.epoch <= HIGHEST_EPOCH:
        raise InvariantError(
            f"shard {transaction.shard}: at offset {command.offset} a lost tail is accepted with "
            f"epoch {command.epoch}, txn {command.txn} and chain version "
            f"{command.chain_version}, but this shard is at {counters.epoch}, {counters.txn} and "
            f"{counters.chain_version}: it only goes forward; put a "
            f"backup in its place that was taken later (deepclean restore-backup), or report it"
        )
    if (counters.txn, counters.log_time_ms) != (command.expected_txn, command.expected_log_time_ms):
        raise InvariantError(
            f"shard {transaction.shard}: the log has lost commands before offset {command.offset}, and this database "
            f"was built without them: put a backup in its place that was taken later (deepclean restore-backup)"
        )
    counters.skipped_txns = command.txn - 1 - command.offset  # the next command has the next txn and the next offset
    counters.epoch, counters.txn, counters.chain_version = command.epoch, command.txn, command.chain_version
    publish_full_chain(transaction)
