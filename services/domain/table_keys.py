"""Keys of the tables in Ozone's formats, and the ids in them.

Names and ids are separated by ``/``. A prefix always ends in ``/``, so that a scan of bucket ``b1`` never includes
``b10``. Garbage rows are ordered by death, so a snapshot's garbage range is one range of keys.
"""

from __future__ import annotations

MAX_OBJECTS_PER_COMMAND = 255
"""Maximum new directories and keys of one command: Ozone's object ids have 8 bits for them."""
MAX_OBJECTS_PER_BULK = 10_000
"""New directories and keys after which a PutKeys command refuses further keys: it holds up its shard meanwhile."""
MAX_BLOCKS_PER_COMMAND = 65_535
MAX_RUNS_PER_VERSION = 10_000
"""Maximum runs of blocks of an open key, or of all parts of an upload: the rows that one command changes."""
MAX_VERSION_ROWS = 10_000
"""Maximum rows of the noncurrent versions of a key, further runs included: its deletion changes all of them."""
MAX_PART_NUMBER = 10_000
"""Highest number of a part, as in S3."""
MAX_KEYS_PER_COMMAND = 1_000
"""Maximum keys of one PutKeys or DeleteKeys command, as in S3's DeleteObjects, which keeps the answer small."""
_LOW_62_BITS = (1 << 62) - 1
_64_BITS = (1 << 64) - 1
MOST_SHARDS = 1 << 10
"""A block's id has ten bits for the shard that gave it."""
TXN_BITS = 37
INDEX_BITS = 16
HIGHEST_TXN = (1 << TXN_BITS) - 1
"""The highest txn that fits into a block's id."""
LAST_TXN_WITH_BLOCKS = HIGHEST_TXN - (1 << 34)
"""Commands after this txn get no blocks: an eighth of all txns is left to delete and free what is there."""


def object_id(epoch: int, txn: int, index: int) -> int:
    """Return an object's id: epoch (2 bits), txn, index within the txn (8 bits); signed, as stored and printed."""
    unsigned = epoch << 62 | (txn << 8 | index) & _LOW_62_BITS
    return unsigned - (1 << 64) if unsigned >> 63 else unsigned


def object_txn(object_id: int) -> int:
    """Return the txn that created an object."""
    return (object_id & _LOW_62_BITS) >> 8


def version_object_id(birth: int) -> int:
    """Return the objectID of a noncurrent version: index 0 of the txn of its birth, which no other object has."""
    return birth << 8


def local_id(shard: int, txn: int, index: int) -> int:
    """Return a block's id: shard (10 bits), txn (37), index (16); never negative."""
    return shard << (TXN_BITS + INDEX_BITS) | txn << INDEX_BITS | index


def local_id_txn(local_id: int) -> int:
    """Return the txn that wrote a block."""
    return local_id >> INDEX_BITS & (1 << TXN_BITS) - 1


def local_id_shard(local_id: int) -> int:
    """Return the shard that wrote a block."""
    return local_id >> (TXN_BITS + INDEX_BITS)


def volume_key(volume: str) -> bytes:
    """volumeTable."""
    return f"/{volume}".encode()


def user_key(user: str, volume: str) -> bytes:
    """userTable; with an empty volume the prefix of the user's volumes. No name of a volume has a slash."""
    return f"{user}/{volume}".encode()


def principal_key(user: str, access_id: str) -> bytes:
    """principalToAccessIdsTable; with an empty access id the prefix of the user's. No access id has a slash."""
    return f"{user}/{access_id}".encode()


def bucket_key(volume: str, bucket: str) -> bytes:
    """bucketTable."""
    return f"/{volume}/{bucket}".encode()


def flat_key(volume: str, bucket: str, key: str) -> bytes:
    """keyTable; with an empty key the prefix of the bucket."""
    return f"/{volume}/{bucket}/{key}".encode()


def tree_key(volume_id: int, bucket_id: int, parent_id: int, name: str) -> bytes:
    """fileTable and directoryTable; with an empty name the prefix of the parent's children."""
    return f"/{volume_id}/{bucket_id}/{parent_id}/{name}".encode()


def key_version_key(volume_id: int, bucket_id: int, object_id: int, birth: int) -> bytes:
    """keyVersionTable: a noncurrent version of a key, oldest first."""
    return b"/%d/%d/%d/%016x" % (volume_id, bucket_id, object_id, birth)


def key_versions_prefix(volume_id: int, bucket_id: int) -> bytes:
    """Prefix of the rows of one bucket in keyVersionTable."""
    return b"/%d/%d/" % (volume_id, bucket_id)


def key_of_version(key: bytes) -> tuple[int, int]:
    """objectID of the key and birth in a key of keyVersionTable."""
    _, _, _, object_id, birth = key.split(b"/")
    return int(object_id), int(birth, 16)


def key_part_key(volume_id: int, bucket_id: int, object_id: int, position: int) -> bytes:
    """keyPartTable: a run of blocks of a live key, or of a noncurrent version, by its place in the content, from 1."""
    return b"/%d/%d/%d/%08x" % (volume_id, bucket_id, object_id, position)


def key_parts_prefix(volume_id: int, bucket_id: int, object_id: int) -> bytes:
    """Prefix of the rows of one key in keyPartTable and keyVersionTable."""
    return b"/%d/%d/%d/" % (volume_id, bucket_id, object_id)


def open_key(row_key: bytes, session: int) -> bytes:
    """openKeyTable and openFileTable: the key's own row key, and the id of the open key."""
    return b"%b/%d" % (row_key, session)


def upload_key(volume: str, bucket: str, key: str, upload_id: str) -> bytes:
    """multipartInfoTable."""
    return f"/{volume}/{bucket}/{key}/{upload_id}".encode()


def part_key(upload_id: str, part_number: int) -> bytes:
    """multipartPartsTable: the number in 4 bytes, most significant first; with the number 0 before all parts."""
    return b"%b/%b" % (upload_id.encode(), part_number.to_bytes(4, "big"))


def garbage_key(volume_id: int, bucket_id: int, death: int, object_id: int) -> bytes:
    """deletedTable, deletedDirectoryTable, snapshotRenamedTable and reclaimTable: ordered by death."""
    return b"/%d/%d/%016x/%016x" % (volume_id, bucket_id, death, object_id & _64_BITS)


def garbage_from(volume_id: int, bucket_id: int, death: int) -> bytes:
    """First key of a bucket's garbage rows with this death or a later one."""
    return b"/%d/%d/%016x/" % (volume_id, bucket_id, death)


def garbage_end(volume_id: int, bucket_id: int) -> bytes:
    """First key behind all garbage rows of a bucket."""
    return b"/%d/%d0" % (volume_id, bucket_id)


def identity_of_garbage_key(key: bytes) -> tuple[int, int, int]:
    """Bucket id, death and objectID in the key of a garbage row."""
    _, _, bucket_id, death, object_id = key.split(b"/")
    unsigned = int(object_id, 16)
    return int(bucket_id), int(death, 16), unsigned - (1 << 64) if unsigned >> 63 else unsigned


def name_prefix(bucket_id: int, parent_id: int, name: str) -> bytes:
    """deletedNameTable: prefix of all deaths under a name; ``parent_id`` is 0 in a flat bucket.

    The NUL after the name ends the prefix: no name contains one, so no name is a prefix of another.
    """
    return b"/%d/n/%d/%b\0" % (bucket_id, parent_id, name.encode())


def deleted_name_key(bucket_id: int, parent_id: int, name: str, death: int, object_id: int) -> bytes:
    """deletedNameTable, by name."""
    return b"/%d/n/%d/%b\0%016x/%016x" % (bucket_id, parent_id, name.encode(), death, object_id & _64_BITS)


def deleted_object_key(bucket_id: int, object_id: int, death: int) -> bytes:
    """deletedNameTable, by object."""
    return b"/%d/o/%016x/%016x/%016x" % (bucket_id, object_id & _64_BITS, death, object_id & _64_BITS)


def end_of_name_key(key: bytes) -> tuple[int, int]:
    """Death and objectID in a key of deletedNameTable: its last 33 bytes, after the name."""
    unsigned = int(key[-16:], 16)
    return int(key[-33:-17], 16), unsigned - (1 << 64) if unsigned >> 63 else unsigned


def snapshot_list_key(bucket_id: int, ordinal: int) -> bytes:
    """snapshotListTable: a live snapshot of a bucket."""
    return b"/%d/%016x" % (bucket_id, ordinal)


def snapshot_id_key(snapshot_id: str) -> bytes:
    """snapshotListTable: a snapshot by its id, also when it is dropped. These keys are before those of all buckets."""
    return b"#" + snapshot_id.encode()


def changed_key(bucket_id: int, ordinal: int, table: bytes = b"", key: bytes = b"") -> bytes:
    """changedTable: a row that changed after a bucket's snapshot of this ordinal; without a table the first such key.

    ``table`` is one letter; ``key`` is the row's key without the leading bucket.
    """
    return b"/%d/%016x/%b%b" % (bucket_id, ordinal, table, key)


def cell_key(bucket_id: int, first_holder: int, last_holder: int) -> bytes:
    """spaceTable."""
    return b"/%d/%016x/%016x" % (bucket_id, first_holder, last_holder)


def holders_of_cell(key: bytes) -> tuple[int, int]:
    """First and last holder in a key of spaceTable."""
    _, _, first, last = key.split(b"/")
    return int(first, 16), int(last, 16)


def bucket_id_of_cell(key: bytes) -> int:
    """Bucket id in a key of spaceTable."""
    return int(key[1 : key.index(b"/", 1)])


def bucket_id_key(bucket_id: int) -> bytes:
    """Tables with one row for each bucket id; also the first part of keys by bucket id."""
    return b"/%d" % bucket_id


def bucket_id_of_key(key: bytes) -> int:
    """Bucket id in the key of a table with one row for each bucket id."""
    return int(key[1:])


def shadow_key(bucket_id: int, hour: int) -> bytes:
    """shadowTable: hours since 1970."""
    return b"/%d/%016x" % (bucket_id, hour)


def hour_of_shadow_key(key: bytes) -> int:
    """Hour in a key of shadowTable."""
    return int(key.rpartition(b"/")[2], 16)


def bucket_id_prefix(bucket_id: int) -> bytes:
    """Prefix of all rows of a bucket in the tables whose keys begin with the bucket id."""
    return b"/%d/" % bucket_id


def rollback_key(bucket_id: int, rollback_id: str) -> bytes:
    """rollbackTable."""
    return b"/%d/%s" % (bucket_id, rollback_id.encode())


def object_key(bucket_id: int, object_id: int) -> bytes:
    """rollbackNameTable and aclTable."""
    return b"/%d/%016x" % (bucket_id, object_id & _64_BITS)


def ascending_death_key(bucket_id: int, death: int) -> bytes:
    """unexpandedTable: oldest death first."""
    return b"/%d/a/%016x" % (bucket_id, death)


def descending_death_key(bucket_id: int, death: int) -> bytes:
    """unexpandedTable: newest death first."""
    return b"/%d/d/%016x" % (bucket_id, _64_BITS - death)


def death_of_key(key: bytes) -> int:
    """Death in an ascending or descending key of unexpandedTable."""
    _, _, order, digits = key.split(b"/")
    return int(digits, 16) if order == b"a" else _64_BITS - int(digits, 16)
