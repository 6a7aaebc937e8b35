"""The command that puts many keys: each at a txn of its own, as if its client had sent a ``PutKey`` for each."""

from __future__ import annotations

from collections.abc import Iterator

from schemas.error_codes import ErrorCode
from schemas.records import Committed, KeysPut, PutKey, PutKeys
from services.domain.names import InvalidNameError
from services.domain.refusals import CommandError
from services.domain.table_keys import MAX_OBJECTS_PER_BULK, local_id
from services.metadata.applied import applied
from services.metadata.namespace.buckets import find_bucket
from services.metadata.namespace.keys import check_key_count, put_key
from services.metadata.state.transaction import Transaction


def put_keys(transaction: Transaction, command: PutKeys) -> Committed:
    """Put many keys, each as ``put_key`` does. A key that is refused has no effect, but its txn is used all the same.

    So a replay of the log numbers the commands behind it by the length of this one, whatever was refused.
    """
    bucket = find_bucket(transaction.work, command.volume, command.bucket)
    _check_lists(command)
    first_local_id = local_id(transaction.shard, transaction.txn, 0)
    refused: dict[int, str] = {}
    objects = 0
    for place, put in enumerate(_puts(command)):
        if place:
            applied(transaction)
            transaction.begin_next()
        try:
            if objects >= MAX_OBJECTS_PER_BULK:
                raise CommandError(ErrorCode.LIMIT_EXCEEDED, "the command has created as many objects as one may")
            put_key(transaction, put)
            objects += transaction.objects
        except (CommandError, InvalidNameError) as error:
            transaction.work.undo_message()
            transaction.undo()
            refused[place] = str(error.code)
    put_count, container_id = len(command.keys) - len(refused), transaction.container_for(bucket)
    done = KeysPut(put_count, tuple(refused), tuple(refused.values()), container_id, first_local_id)
    return Committed(0, keys_put=done)


def _check_lists(command: PutKeys) -> None:
    """Refuse the command as a whole if it has too many keys, or lists that do not fit each other."""
    check_key_count(command.keys)
    count = len(command.keys)
    if len(command.sizes_bytes) != count or len(command.tags) not in (0, count):
        raise CommandError(
            ErrorCode.INVALID_REQUEST,
            f"{count} keys have {len(command.sizes_bytes)} sizes and {len(command.tags)} tags; each has a size, and "
            f"each a tag or none has",
        )


def _puts(command: PutKeys) -> Iterator[PutKey]:
    tags = command.tags or ("",) * len(command.keys)
    for key, size_bytes, tag in zip(command.keys, command.sizes_bytes, tags, strict=True):
        yield PutKey(command.volume, command.bucket, key, size_bytes, tag, command.block_size_bytes)
