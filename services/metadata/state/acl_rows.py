"""The access lists of the shard's objects, in rows of their own.

A list belongs to an objectID: a rename keeps it, an overwrite too. Most shards have no list at all. Whether this one
has any is known in memory, so that commands on keys look nothing up as long as there is none.
"""

from __future__ import annotations

from schemas.records import AclRow, BucketRow
from services.domain.acls import Acls
from services.domain.table_keys import flat_key, object_key
from services.metadata.state.tables import ACL_TABLE, PREFIX_TABLE
from services.storage.store import prefix_end
from services.storage.tables import Tables, TablesReader, UnitOfWork


class AclRows:
    """Reads and writes the lists. An object is named by the id of its bucket and its own; a bucket or volume by its
    own id twice.
    """

    def __init__(self) -> None:
        self.is_used = True
        """Whether the shard can have a list. It stays true when the last list is removed: no outcome depends on it."""

    def restore(self, tables: TablesReader) -> None:
        """Look whether there is any list."""
        self.is_used = any(any(True for _ in tables.table(one).scan_encoded()) for one in (ACL_TABLE, PREFIX_TABLE))

    def of(self, tables: Tables, bucket_id: int, object_id: int) -> Acls:
        """Return the list of an object."""
        row = tables.table(ACL_TABLE).get(object_key(bucket_id, object_id)) if self.is_used else None
        return row.acls if row else ()

    def of_prefix(self, tables: Tables, bucket: BucketRow, prefix: str) -> Acls:
        """Return the list of a prefix."""
        row = tables.table(PREFIX_TABLE).get(flat_key(bucket.volume, bucket.bucket, prefix)) if self.is_used else None
        return row.acls if row else ()

    def of_longest_prefix(self, tables: Tables, bucket: BucketRow, path: str) -> Acls:
        """Return the list of the longest prefix of a path that has one."""
        while self.is_used and (slash := path.rfind("/")) >= 0:
            found = self.of_prefix(tables, bucket, path[: slash + 1])
            if found:
                return found
            path = path[:slash]
        return ()

    def put(self, work: UnitOfWork, bucket_id: int, object_id: int, acls: Acls) -> None:
        """Replace the list of an object."""
        table, key = work.table(ACL_TABLE), object_key(bucket_id, object_id)
        if acls:
            table.put(key, AclRow(acls))
            self.is_used = True
        elif self.is_used and table.get(key) is not None:
            table.delete(key)

    def put_prefix(self, work: UnitOfWork, bucket: BucketRow, prefix: str, acls: Acls) -> None:
        """Replace the list of a prefix."""
        table, key = work.table(PREFIX_TABLE), flat_key(bucket.volume, bucket.bucket, prefix)
        if acls:
            table.put(key, AclRow(acls))
            self.is_used = True
        elif table.get(key) is not None:
            table.delete(key)

    def remove_bucket(self, work: UnitOfWork, bucket: BucketRow) -> None:
        """Remove the lists of a bucket that is deleted, and of its prefixes."""
        self.remove(work, bucket.object_id, bucket.object_id)
        prefix, table = flat_key(bucket.volume, bucket.bucket, ""), work.table(PREFIX_TABLE)
        for key, _ in list(table.scan(prefix, prefix_end(prefix))) if self.is_used else ():
            table.delete(key)

    def remove(self, work: UnitOfWork, bucket_id: int, object_id: int) -> None:
        """Remove the list of an object that leaves the namespace."""
        if self.is_used:
            self.put(work, bucket_id, object_id, ())
