"""Resuming after the log has lost its newest commands: an operator accepts the loss, and no number is used twice.

The lost commands were applied here and published: their txns, block ids and chain versions are in databases, in the
block store and with clients. So the shard skips all of these numbers. The database keeps the effects of the lost
commands, but the log does not contain them any more: from here on the shard can be rebuilt only from a later backup.
"""

from __future__ import annotations

from schemas.records import AcceptLostTail
from services.domain.errors import InvalidMessageError, InvariantError
from services.metadata.checkpoints.capture_drop import publish_full_chain
from services.metadata.state.transaction import Transaction

HIGHEST_EPOCH = 3
"""An objectID has two bits for the epoch."""


def check_place(command: AcceptLostTail, offset: int) -> None:
    """Refuse a command that is not at the offset that it names: it was sent again, or for another log."""
    if command.offset != offset:
        raise InvalidMessageError(
            f"this command accepts a lost tail at offset {command.offset}, but is at offset {offset}"
        )


def accept(transaction: Transaction, command: AcceptLostTail) -> None:
    """Start another epoch, and skip every txn and chain version that may have been published.

    The command has the right offset and sender. So an error here must stop the process: if the command were
    dead-lettered, the shard would continue as if nothing had been lost.

    Raises:
        InvariantError: the numbers would go back, or this database was built without the lost commands.
    """
    counters = transaction.counters
    is_forward = command.txn >= counters.txn and command.chain_version > counters.chain_version
    if not is_forward or not counters.epoch < command.epoch <= HIGHEST_EPOCH:
        raise InvariantError(
            f"shard {transaction.shard}: the command at offset {command.offset} accepts a lost tail with "
            f"epoch {command.epoch}, txn {command.txn} and chain version "
            f"{command.chain_version}, but this shard is at {counters.epoch}, {counters.txn} and "
            f"{counters.chain_version}, and these numbers only rise; restore a later backup "
            f"(deepclean restore-backup), or report it with the log"
        )
    if (counters.txn, counters.log_time_ms) != (command.expected_txn, command.expected_log_time_ms):
        raise InvariantError(
            f"shard {transaction.shard}: the log has lost commands before offset {command.offset}, and this database "
            f"was built without them: restore a later backup (deepclean restore-backup)"
        )
    # The next command has the next txn and the next offset.
    counters.skipped_txns = max(counters.skipped_txns, command.txn - 1 - command.offset)
    counters.epoch, counters.txn, counters.chain_version = command.epoch, command.txn, command.chain_version
    publish_full_chain(transaction)
