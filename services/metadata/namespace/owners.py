"""Giving volumes and buckets other owners."""

from __future__ import annotations

from dataclasses import replace

from schemas.records import Committed, SetOwner
from services.domain.names import MAX_OWNER_LENGTH, check_length
from services.domain.table_keys import bucket_key, volume_key
from services.metadata.namespace.buckets import named_bucket, volume_row
from services.metadata.state.owned_volumes import change_owner
from services.metadata.state.tables import BUCKET_TABLE, VOLUME_TABLE
from services.metadata.state.transaction import Transaction


def set_owner(transaction: Transaction, command: SetOwner) -> Committed:
    """Give a volume or a bucket another owner."""
    check_length("an owner", command.owner, MAX_OWNER_LENGTH)
    work = transaction.work
    if command.bucket:
        bucket = named_bucket(work, command.volume, command.bucket)
        owned = replace(bucket, owner=command.owner, update_id=transaction.txn)
        work.table(BUCKET_TABLE).put(bucket_key(bucket.volume, bucket.bucket), owned)
        return Committed(bucket.object_id)
    volume = volume_row(work, command.volume)
    row = replace(volume, owner=command.owner, update_id=transaction.txn)
    work.table(VOLUME_TABLE).put(volume_key(command.volume), row)
    change_owner(work, transaction.counters.feature_level, command.volume, volume.owner, command.owner)
    return Committed(volume.object_id)
