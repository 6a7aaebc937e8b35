"""A version that begins with runs of blocks which earlier commands have allocated: of an open key, or of parts."""

from __future__ import annotations

from collections.abc import Sequence

from schemas.records import BucketRow, KeyRow, OpenRun
from services.metadata.namespace.garbage import replace_live
from services.metadata.namespace.growing import parts_born
from services.metadata.namespace.inheritance import key_created
from services.metadata.namespace.key_parts import put_parts
from services.metadata.namespace.tree import Place
from services.metadata.state.transaction import Transaction


def begin_version(
    transaction: Transaction,
    bucket: BucketRow,
    place: Place[KeyRow],
    path: str,
    runs: Sequence[OpenRun],
    tag: str,
    creation_time_ms: int,
) -> KeyRow:
    """Write the version of a key that has these runs, all of them born now. It replaces the live one, and the caller
    counts its bytes and its name.

    ``creation_time_ms`` is that of a new key; one that is replaced keeps its own.
    """
    table = transaction.work.table(place.table)
    live = table.get(place.db_key)
    key = KeyRow(
        object_id=live.object_id if live else transaction.new_object_id(),
        birth=transaction.txn,
        size_bytes=sum(run.blocks.size_bytes for run in runs),
        blocks=runs[0].blocks if runs else None,
        parent_id=place.parent_id,
        name=place.name,
        update_id=transaction.txn,
        rename_txn=live.rename_txn if live else 0,
        tag=tag,
        creation_time_ms=live.creation_time_ms if live else creation_time_ms,
        modification_time_ms=transaction.log_time_ms,
        is_composed=len(runs) > 1,
    )
    replace_live(transaction, bucket, table, place.db_key, key)
    if live is None:
        key_created(transaction, bucket, key.object_id, place.parent_id, path)
    put_parts(
        transaction.work, (bucket.volume_id, bucket.object_id), key.object_id, parts_born(runs[1:], transaction.txn)
    )
    return key
