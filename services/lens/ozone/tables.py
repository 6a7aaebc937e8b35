"""The tables of an Ozone Manager's database, and the beginnings of the keys of a bucket's rows in them."""

from __future__ import annotations

from dataclasses import dataclass

VOLUME, BUCKET, SNAPSHOT_INFO, TRANSACTION_INFO = (
    "volumeTable",
    "bucketTable",
    "snapshotInfoTable",
    "transactionInfoTable",
)
KEY, FILE, DIRECTORY = "keyTable", "fileTable", "directoryTable"
DELETED, DELETED_DIRECTORY, RENAMED = "deletedTable", "deletedDirectoryTable", "snapshotRenamedTable"
OPEN_KEY, OPEN_FILE, MULTIPART, MULTIPART_PARTS = (
    "openKeyTable",
    "openFileTable",
    "multipartInfoTable",
    "multipartPartsTable",
)
WITHOUT_BLOCKS = frozenset(
    {
        "default",
        "userTable",
        "prefixTable",
        "metaTable",
        "compactionLogTable",
        "dTokenTable",
        "s3SecretTable",
        "tenantStateTable",
        "tenantAccessIdTable",
        "principalToAccessIdsTable",
        "lifecycleConfigurationTable",
        "lifecycleScanStateTable",
    }
)
"""Tables that are never opened: they name no blocks, and some of them hold secrets."""
WITH_BLOCKS = frozenset(
    {VOLUME, BUCKET, SNAPSHOT_INFO, TRANSACTION_INFO, KEY, FILE, DIRECTORY, DELETED, DELETED_DIRECTORY, RENAMED}
    | {OPEN_KEY, OPEN_FILE, MULTIPART, MULTIPART_PARTS}
)
TRANSACTION_KEY = b"#TRANSACTIONINFO"
FILE_SYSTEM_OPTIMIZED = 2
"""Number of the layout whose keys are built from the ids of the parents; the others have the name in the key."""


@dataclass(frozen=True, slots=True)
class BucketKeys:
    """Names and ids of a bucket, from which the keys of its rows are built."""

    volume: bytes
    bucket: bytes
    volume_id: int
    bucket_id: int
    is_file_system: bool

    @property
    def name(self) -> str:
        """Return ``volume/bucket``."""
        return f"{self.volume.decode()}/{self.bucket.decode()}"

    @property
    def by_name(self) -> bytes:
        """Return how keys begin that have the names in them, with the last slash: ``b1`` is not ``b10``."""
        return b"/%b/%b/" % (self.volume, self.bucket)

    @property
    def by_id(self) -> bytes:
        """Return how keys begin that have the ids in them."""
        return b"/%d/%d/" % (self.volume_id, self.bucket_id)

    @property
    def key_table(self) -> str:
        """Return the table with the live keys."""
        return FILE if self.is_file_system else KEY

    @property
    def live_prefix(self) -> bytes:
        """Return how the keys of the live rows begin."""
        return self.by_id if self.is_file_system else self.by_name

    def key_of(self, name: bytes, parent_id: int) -> bytes:
        """Return the key at which a live row with this content stands."""
        if self.is_file_system:
            return b"/%d/%d/%d/%b" % (self.volume_id, self.bucket_id, parent_id, name.rpartition(b"/")[2])
        return self.by_name + name


def end_of(prefix: bytes) -> bytes:
    """Return the first key after all keys that begin with ``prefix``, which ends with a slash."""
    return prefix[:-1] + bytes((prefix[-1] + 1,))
