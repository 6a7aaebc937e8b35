"""The column families of one shard's metadata, with Ozone's names where Ozone has them.

========================= ============================================ =================================================
table                     key                                          value
========================= ============================================ =================================================
userTable                 user/volume                                  one volume that a user owns
volumeTable               /volume                                      a volume
bucketTable               /volume/bucket                               a bucket and its used figures
bucketIdTable             /bucketId                                    a bucket's names, kept for ever
keyTable                  /volume/bucket/key                           live key of a flat bucket
fileTable                 /volumeId/bucketId/parentId/name             live key of a tree
directoryTable            /volumeId/bucketId/parentId/name             live directory of a tree
aclTable                  /bucketId/objectId                           access list of a key, directory or bucket
                          /volumeId/volumeId                           access list of a volume
prefixTable               /volume/bucket/prefix/                       list of the keys whose path begins like this
keyPartTable              /volumeId/bucketId/objectId/position         further runs of blocks of a live key, or of a
                                                                       noncurrent version by its own objectID
keyVersionTable           /volumeId/bucketId/objectId/birth            noncurrent version of a live key
openKeyTable              /volume/bucket/key/session                   key of a flat bucket that is being written
openFileTable             /volumeId/bucketId/parentId/name/session     key of a tree that is being written
multipartInfoTable        /volume/bucket/key/uploadId                  upload in parts
multipartPartsTable       uploadId/number                              part of an upload (the number is 4 bytes)
deletedTable              /volumeId/bucketId/death/objectId            version that left the namespace
deletedDirectoryTable     /volumeId/bucketId/death/objectId            directory that left the namespace
snapshotRenamedTable      /volumeId/bucketId/death/objectId            where an object was before a rename
deletedNameTable          /bucketId/n/parentId/name NUL death/objectId death of a directory or held version, by name
                          /bucketId/o/objectId/death/objectId          the same by object, for renamed objects
reclaimTable              /volumeId/bucketId/death/objectId            version that is claimed, until SCM confirmed it
changedTable              /bucketId/ordinal/table/key                  rows that changed between a snapshot and the next
snapshotListTable         /bucketId/ordinal                            live snapshots
                          #snapshot id                                 the same row as it was when captured, or dropped
snapshotCountTable        /bucketId                                    number of snapshots ever in a bucket, its newest
uncapturedTable           snapshot id                                  txn of its drop, when dropped before its capture
droppedIdTable            log time/snapshot id                         txn of a drop: the id is forgotten later
rollbackTable             /bucketId/rollbackId                         every rollback of a bucket, and its progress
rollbackNameTable         /bucketId/objectId                           target of an object in a rollback in progress
orphanSearchTable         #SEARCH                                      the search for owners of orphaned blocks, if any
spaceTable                /bucketId/first/last                         bytes and rows by first and last holder
unexpandedTable           /bucketId/a/death and /bucketId/d/~death     deleted directories that are not expanded yet
accountTable              /bucketId                                    claimed and freed bytes
collectionTable           /bucketId                                    collection state of a bucket; 0: the whole shard
reclaimClockTable         /bucketId                                    when rows of a bucket became reclaimable
claimHourTable            /bucketId                                    claims of a bucket in its present hour
shadowTable               /bucketId/hour                               versions counted in an hour in shadow mode
s3SecretTable             user, service or access id                   the secret that signs its commands
tenantStateTable          tenant                                       a tenant and its volume
tenantAccessIdTable       access id                                    tenant and user of an access id
principalToAccessIdsTable user/access id                               one access id that a user has
dTokenTable               token id                                     delegation token
clientTable               client id                                    last number and answer of a client
transactionInfoTable      #TRANSACTIONINFO                             the shard's counters
========================= ============================================ =================================================

Death and birth are 16 hex digits, a position 8. Snapshot checkpoints contain the tables of the namespace, without open
keys and uploads; all other tables exist only in the database.
"""

from __future__ import annotations

from typing import Any, TypeVar

from schemas import records
from schemas.records import BucketIdentity, BucketLayout, BucketRow
from services.domain.table_keys import flat_key, tree_key
from services.storage.tables import TableDefinition

V = TypeVar("V")


def _swept(name: str, record: type[V], *, is_packed: bool = True) -> TableDefinition[V]:
    """Return a table of garbage rows. Sweeps scan its ranges of deaths, whose rows are removed one after the other."""
    return TableDefinition(name, record, remembers_empty_stretches=True, is_packed=is_packed, prefix_separators=3)


USER_TABLE = TableDefinition("userTable", records.UserVolumeRow)
VOLUME_TABLE = TableDefinition("volumeTable", records.VolumeRow, is_cached=True)
BUCKET_TABLE = TableDefinition("bucketTable", records.BucketRow, is_cached=True)
BUCKET_ID_TABLE = TableDefinition("bucketIdTable", records.BucketIdentity, is_cached=True)
KEY_TABLE = TableDefinition("keyTable", records.KeyRow, prefix_separators=3)
FILE_TABLE = TableDefinition("fileTable", records.KeyRow, prefix_separators=4)
DIRECTORY_TABLE = TableDefinition(
    "directoryTable", records.DirectoryRow, is_cached=True, is_absence_cached=False, prefix_separators=4
)
ACL_TABLE = TableDefinition("aclTable", records.AclRow)
PREFIX_TABLE = TableDefinition("prefixTable", records.AclRow)
KEY_PART_TABLE = TableDefinition("keyPartTable", records.KeyPartRow, prefix_separators=4)
KEY_VERSION_TABLE = TableDefinition("keyVersionTable", records.KeyRow, prefix_separators=4)
OPEN_KEY_TABLE = TableDefinition("openKeyTable", records.OpenKeyRow)
OPEN_FILE_TABLE = TableDefinition("openFileTable", records.OpenKeyRow)
UPLOAD_TABLE = TableDefinition("multipartInfoTable", records.UploadRow)
PART_TABLE = TableDefinition("multipartPartsTable", records.PartRow)
DELETED_TABLE = _swept("deletedTable", records.DeletedKeyRow)
DELETED_DIRECTORY_TABLE = _swept("deletedDirectoryTable", records.DeletedDirectoryRow)
SNAPSHOT_RENAMED_TABLE = _swept("snapshotRenamedTable", records.RenameRow)
DELETED_NAME_TABLE = TableDefinition("deletedNameTable", records.DeletedNameRow, is_packed=True)
RECLAIM_TABLE = _swept("reclaimTable", records.ClaimedRow, is_packed=False)
CHANGED_TABLE = TableDefinition("changedTable", records.ChangedRow, is_packed=True)
SNAPSHOT_LIST_TABLE = TableDefinition("snapshotListTable", records.SnapshotListRow)
SNAPSHOT_COUNT_TABLE = TableDefinition("snapshotCountTable", records.SnapshotCountRow)
UNCAPTURED_TABLE = TableDefinition("uncapturedTable", records.CountRow)
DROPPED_ID_TABLE = TableDefinition("droppedIdTable", records.CountRow)
ROLLBACK_TABLE = TableDefinition("rollbackTable", records.RollbackRow)
ROLLBACK_NAME_TABLE = TableDefinition("rollbackNameTable", records.RollbackNameRow)
ORPHAN_SEARCH_TABLE = TableDefinition("orphanSearchTable", records.OrphanSearchRow)
SPACE_TABLE = TableDefinition("spaceTable", records.SpaceCellValue, is_cached=True)
UNEXPANDED_TABLE = TableDefinition("unexpandedTable", records.CountRow, remembers_empty_stretches=True)
ACCOUNT_TABLE = TableDefinition("accountTable", records.AccountRow, is_cached=True)
COLLECTION_TABLE = TableDefinition("collectionTable", records.CollectionRow)
RECLAIM_CLOCK_TABLE = TableDefinition("reclaimClockTable", records.ReclaimClockRow, is_cached=True)
CLAIM_HOUR_TABLE = TableDefinition("claimHourTable", records.ClaimHourRow, is_cached=True)
SHADOW_TABLE = TableDefinition("shadowTable", records.ShadowHourRow, is_cached=True)
SECRET_TABLE = TableDefinition("s3SecretTable", records.SecretRow)
TENANT_TABLE = TableDefinition("tenantStateTable", records.TenantRow)
ACCESS_ID_TABLE = TableDefinition("tenantAccessIdTable", records.AccessIdRow)
PRINCIPAL_TABLE = TableDefinition("principalToAccessIdsTable", records.PrincipalAccessIdRow)
TOKEN_TABLE = TableDefinition("dTokenTable", records.DelegationTokenRow)
CLIENT_TABLE = TableDefinition("clientTable", records.ClientRow, is_cached=True)
TRANSACTION_INFO_TABLE = TableDefinition("transactionInfoTable", records.ShardState)

TRANSACTION_INFO_KEY = b"#TRANSACTIONINFO"
ORPHAN_SEARCH_KEY = b"#SEARCH"

TABLES: tuple[TableDefinition[Any], ...] = tuple(
    one for one in [*globals().values()] if isinstance(one, TableDefinition)
)
"""All tables that are defined above, in this order."""
LATER_TABLES = frozenset(
    table.name
    for table in (
        *(KEY_PART_TABLE, KEY_VERSION_TABLE, OPEN_KEY_TABLE, OPEN_FILE_TABLE, UPLOAD_TABLE, PART_TABLE),
        *(USER_TABLE, ACL_TABLE, PREFIX_TABLE),
        *(TENANT_TABLE, ACCESS_ID_TABLE, PRINCIPAL_TABLE, TOKEN_TABLE),
    )
)
"""Tables that release 0.2.0 did not have. A database that it has written has the same digest as long as they are empty.
"""
CHECKPOINTED = frozenset(
    table.name
    for table in (
        *(VOLUME_TABLE, BUCKET_TABLE, BUCKET_ID_TABLE, KEY_TABLE, FILE_TABLE, DIRECTORY_TABLE),
        *(KEY_PART_TABLE, KEY_VERSION_TABLE),
    )
)


def namespace_key(bucket: BucketRow, parent_id: int, name: str) -> bytes:
    """Return the key of a row of the namespace. In a flat bucket the name is the whole path."""
    if bucket.layout is BucketLayout.FILE_SYSTEM_OPTIMIZED:
        return tree_key(bucket.volume_id, bucket.object_id, parent_id, name)
    return flat_key(bucket.volume, bucket.bucket, name)


def namespace_prefix(bucket: BucketRow | BucketIdentity) -> bytes:
    """Return the prefix of the keys of a bucket's rows in keyTable, or in fileTable and directoryTable."""
    if bucket.layout is BucketLayout.FILE_SYSTEM_OPTIMIZED:
        bucket_id = bucket.object_id if isinstance(bucket, BucketRow) else bucket.bucket_id
        return b"/%d/%d/" % (bucket.volume_id, bucket_id)
    return flat_key(bucket.volume, bucket.bucket, "")
