"""Decodes the rows of this project's tables: a column for each field, enumerations as strings, records as structs.

Secrets have no column.
"""

from __future__ import annotations

import typing
from collections.abc import Iterable, Sequence
from dataclasses import fields, is_dataclass
from enum import StrEnum
from types import UnionType
from typing import Any

import pyarrow as pa

from schemas import records
from schemas.codec import DecodeError
from schemas.formats import FAMILY as FORMAT_FAMILY
from schemas.formats import SCHEMAS_OF_ROWS
from schemas.stored_rows import row_codec
from streaming.rocksdb.checkpoint_rows import WHOLE, CheckpointRows, Row

TABLES: dict[str, tuple[type[Any], ...]] = {
    "accountTable": (records.AccountRow,),
    "aclTable": (records.AclRow,),
    "barrierTable": (records.Barrier,),
    "block_data": (records.BlockDataRow,),
    "bucketIdTable": (records.BucketIdentity,),
    "bucketTable": (records.BucketRow,),
    "chainTable": (records.ChainRow,),
    "changedTable": (records.ChangedRow,),
    "changelog": (records.ChangelogRow,),
    "claimHourTable": (records.ClaimHourRow,),
    "clientTable": (records.ClientRow,),
    "collectionTable": (
        records.CollectionRow,
        records.KnownCollectionsRow,
    ),
    "consumerTable": (records.ConsumerRow,),
    "containerTable": (records.ContainerRow,),
    "countTable": (records.CountRow,),
    "dTokenTable": (records.DelegationTokenRow,),
    "deadLetterCountTable": (records.CountRow,),
    "deadLetterPlaceTable": (records.CountRow,),
    "deadLetterTable": (records.DeadLetterRow,),
    "deepCleanTable": (records.SetDeepClean,),
    "delayedDeletionTable": (records.DelayedDeletion,),
    "delete_txns": (records.DeleteTransactionRow,),
    "deletedBlocksTable": (records.DeletedBlocksRow,),
    "deletedDirectoryTable": (records.DeletedDirectoryRow,),
    "deletedNameTable": (records.DeletedNameRow,),
    "deletedTable": (records.DeletedKeyRow,),
    "directoryTable": (records.DirectoryRow,),
    "droppedIdTable": (records.CountRow,),
    "droppedSnapshotTable": (records.DroppedSnapshotRow,),
    "expiryTable": (records.ExpiryRow,),
    "fileTable": (records.KeyRow,),
    "garbageRangeTable": (records.GarbageRangeRow,),
    "inventoryTable": (records.InventoryRow,),
    "keyPartTable": (records.KeyPartRow,),
    "keyTable": (records.KeyRow,),
    "keyVersionTable": (records.KeyRow,),
    "letterTable": (records.DeadLetter,),
    "metadata": (records.ContainerCounterRow,),
    "multipartInfoTable": (records.UploadRow,),
    "multipartPartsTable": (records.PartRow,),
    "openFileTable": (records.OpenKeyRow,),
    "openKeyTable": (records.OpenKeyRow,),
    "orphanSearchTable": (records.OrphanSearchRow,),
    "outbox": (records.OutboxRow,),
    "pendingTable": (records.PendingSnapshot,),
    "pipelineTable": (records.PipelineRow,),
    "positions": (records.PositionRow,),
    "prefixTable": (records.AclRow,),
    "principalToAccessIdsTable": (records.PrincipalAccessIdRow,),
    "reclaimClockTable": (records.ReclaimClockRow,),
    "reclaimTable": (records.ClaimedRow,),
    "retentionTable": (records.RetentionRow,),
    "returnedBarrierTable": (records.MetadataProgress,),
    "rollbackNameTable": (records.RollbackNameRow,),
    "rollbackTable": (
        records.RollbackRow,
        records.RollbackTaskRow,
    ),
    "s3SecretTable": (records.SecretRow,),
    "scmStateTable": (records.ScmState,),
    "sequenceIdTable": (records.SequenceRow,),
    "settleTable": (records.SettleRow,),
    "shadowTable": (records.ShadowHourRow,),
    "snapshotCountTable": (records.SnapshotCountRow,),
    "snapshotInfoTable": (records.SnapshotInfo,),
    "snapshotListTable": (records.SnapshotListRow,),
    "snapshotRenamedTable": (records.RenameRow,),
    "snapshotSizeTable": (records.SnapshotSize,),
    "spaceProgressTable": (records.SpaceUpdate,),
    "spaceTable": (records.SpaceCellValue,),
    "storedRunsTable": (records.InventoryRow,),
    "sweepTable": (records.SweepRow,),
    "tagTable": (records.TagRow,),
    "taskTable": (records.TaskRow,),
    "tenantAccessIdTable": (records.AccessIdRow,),
    "tenantStateTable": (records.TenantRow,),
    "transactionInfoTable": (records.ShardState,),
    "treeTable": (records.TreeRow,),
    "uncapturedTable": (records.CountRow,),
    "unexpandedTable": (records.CountRow,),
    "userTable": (records.UserVolumeRow,),
    "volumeTable": (records.VolumeRow,),
    "waitingDeletionTable": (records.WaitingDeletion,),
    "waitingTable": (records.WaitingPurge,),
    "writeExpiryTable": (records.WriteExpiryRow,),
}
"""The record classes of all tables of all services: the source decodes a table without importing its service."""
_SIMPLE = {int: pa.int64(), str: pa.string(), bytes: pa.binary(), bool: pa.bool_()}


def decoder_of(rows: CheckpointRows, table: str) -> OwnRows | None:
    """Return the decoder of a table. Where two services have tables of one name, the database says whose it is."""
    found = TABLES.get(table, ())
    stored = {
        key.removeprefix(SCHEMAS_OF_ROWS).partition(b"/")[0].decode() for key, _ in rows.scan(FORMAT_FAMILY, *WHOLE)
    }
    wanted = [one for one in found if one.__name__ in stored] or list(found)
    return OwnRows(wanted[0]) if wanted else None


class OwnRows:
    """Decodes the rows of one record class."""

    def __init__(self, record_class: type[Any]) -> None:
        self._record_class = record_class
        self.fields = _fields_of(record_class)

    def columns(self, rows: Sequence[Row]) -> Sequence[pa.Array]:
        """Return the columns of some rows."""
        decode = row_codec(self._record_class).decode
        decoded = []
        for key, value in rows:
            try:
                decoded.append(decode(value))
            except DecodeError as error:
                raise DecodeError(f"the row {key!r}: {error}") from error
        return [
            pa.array([_plain(getattr(row, field.name), field.type) for row in decoded], field.type)
            for field in self.fields
        ]


def _fields_of(record_class: type[Any]) -> list[pa.Field]:
    hints = typing.get_type_hints(record_class, vars(records))
    # What is a secret is kept out of the text of a record, and so it is kept out of its columns.
    return [pa.field(field.name, _type_of(hints[field.name])) for field in fields(record_class) if field.repr]


def _type_of(hint: Any) -> pa.DataType:
    if isinstance(hint, UnionType):
        branches = [branch for branch in typing.get_args(hint) if branch is not type(None)]
        return _type_of(branches[0]) if len(branches) == 1 else _struct_of_branches(branches)
    if typing.get_origin(hint) is tuple:
        return pa.list_(_type_of(typing.get_args(hint)[0]))
    if hint in _SIMPLE:
        return _SIMPLE[hint]
    return pa.string() if issubclass(hint, StrEnum) else pa.struct(_fields_of(hint))


def _struct_of_branches(branches: Iterable[type[Any]]) -> pa.DataType:
    """Return a struct with a field for each record of a union, of which one is not null."""
    return pa.struct([pa.field(branch.__name__, _type_of(branch)) for branch in branches])


def _plain(value: Any, type_: pa.DataType) -> Any:
    """Return a field's value as Arrow takes it."""
    if isinstance(value, StrEnum):
        return str(value)
    if isinstance(value, tuple):
        return [_plain(one, type_.value_type) for one in value]
    if not is_dataclass(value):
        return value
    name = type(value).__name__
    if type_.get_field_index(name) >= 0:  # a union of records
        return {name: _plain(value, type_.field(name).type)}
    return {field.name: _plain(getattr(value, field.name), field.type) for field in type_}
