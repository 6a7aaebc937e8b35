"""Stored rows: a key and a value of any table of any service.

An input is two bytes that choose a table (``chosen``), one with the length of the key, the key, and the value.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

from schemas.codec import DecodeError
from schemas.records import DeleteBlocks
from schemas.stored_rows import row_codec
from services.datanode.tables import TABLES as DATANODE_TABLES
from services.directory_deletion.service import DirectoryDeletionService
from services.domain import table_keys
from services.domain.row_columns import NO_GROUPS
from services.key_deletion import tables as key_deletion_tables
from services.key_deletion.service import KeyDeletionService
from services.metadata.service import MetadataService
from services.mock_scm import tables as scm_tables
from services.mock_scm.service import MockScmService
from services.runtime.loop.runner import RUNTIME_TABLES
from services.snapshots.service import SnapshotsService
from tests.fuzz.target import PromiseError, Target, check_record, checksum, chosen

_SERVICES: tuple[Any, ...] = (
    *(MetadataService, SnapshotsService, KeyDeletionService, DirectoryDeletionService, MockScmService),
)
RECORDS: dict[str, type[Any]] = {
    f"{service.name}/{table.name}": table.record
    for service in _SERVICES
    for table in (*service.tables, *RUNTIME_TABLES)
} | {f"datanode/{table.name}": table.record for table in DATANODE_TABLES}
NAMES = sorted(RECORDS)
HEAD_BYTES = 3
MOST_KEY_BYTES = 255
_NUMBERS = struct.Struct(">QQqq")
"""Two that are counted, so never negative, and two ids."""

Numbers = tuple[int, int, int, int]
KeyOf = Callable[[Numbers], bytes]
Parse = Callable[[bytes], Any]
Expected = Callable[[Numbers], Any]


def _garbage_key(numbers: Numbers) -> bytes:
    death, _, bucket_id, object_id = numbers
    return table_keys.garbage_key(object_id, bucket_id, death, object_id)


_GARBAGE = (_garbage_key, table_keys.identity_of_garbage_key, lambda n: (n[2], n[0], n[3]))
_NUMBER = (lambda n: key_deletion_tables.number_key(n[0]), key_deletion_tables.number_of_key, lambda n: n[0])
_DELETION = (
    lambda n: scm_tables.deletion_key(n[0], DeleteBlocks(n[1], n[2] & 0x7FFFFFFF, NO_GROUPS)),
    scm_tables.order_of_key,
    lambda n: n[0],
)
_CELL = (lambda n: table_keys.cell_key(n[2], n[0], n[1]), table_keys.holders_of_cell, lambda n: n[:2])
KEYS: dict[str, tuple[tuple[KeyOf, Parse, Expected], ...]] = {
    "metadata/deletedTable": (_GARBAGE,),
    "metadata/deletedDirectoryTable": (_GARBAGE,),
    "metadata/snapshotRenamedTable": (_GARBAGE,),
    "metadata/reclaimTable": (_GARBAGE,),
    "metadata/deletedNameTable": (
        (
            lambda n: table_keys.deleted_name_key(n[2], n[3], f"a/{n[1]}", n[0], n[3]),
            table_keys.end_of_name_key,
            lambda n: (n[0], n[3]),
        ),
        (lambda n: table_keys.deleted_object_key(n[2], n[3], n[0]), table_keys.end_of_name_key, lambda n: (n[0], n[3])),
    ),
    "metadata/spaceTable": (
        _CELL,
        (lambda n: table_keys.cell_key(n[2], n[0], n[1]), table_keys.bucket_id_of_cell, lambda n: n[2]),
    ),
    "snapshots/spaceTable": (_CELL,),
    "metadata/collectionTable": (
        (lambda n: table_keys.bucket_id_key(n[2]), table_keys.bucket_id_of_key, lambda n: n[2]),
    ),
    "metadata/shadowTable": (
        (lambda n: table_keys.shadow_key(n[2], n[0]), table_keys.hour_of_shadow_key, lambda n: n[0]),
        (lambda n: table_keys.shadow_key(n[2], n[0]), table_keys.bucket_id_of_cell, lambda n: n[2]),
    ),
    "metadata/unexpandedTable": (
        (lambda n: table_keys.ascending_death_key(n[2], n[0]), table_keys.death_of_key, lambda n: n[0]),
        (lambda n: table_keys.descending_death_key(n[2], n[0]), table_keys.death_of_key, lambda n: n[0]),
    ),
    "key_deletion/taskTable": (_NUMBER,),
    "key_deletion/waitingTable": (_NUMBER,),
    "mock_scm/waitingDeletionTable": (_DELETION,),
    "mock_scm/delayedDeletionTable": (_DELETION,),
}
"""By table how a key is made of numbers, what takes it apart, and which numbers that gives."""


def input_of(table: str, key: bytes, value: bytes) -> bytes:
    """The input that is such a row."""
    return checksum(table).to_bytes(2, "big") + bytes([min(len(key), MOST_KEY_BYTES)]) + key[:MOST_KEY_BYTES] + value


def play(data: bytes) -> bool:
    """Read a row with both decoders, and take its key apart.

    Raises:
        PromiseError: see ``check_record``; or a key that was made of numbers gives others.
    """
    if len(data) < HEAD_BYTES:
        return False
    table = chosen(NAMES, int.from_bytes(data[:2], "big"))
    value_at = HEAD_BYTES + data[2]
    key, value = data[HEAD_BYTES:value_at], data[value_at:]
    with suppress(DecodeError):
        row_codec(RECORDS[table]).decode(value)
    body = value[1:]
    is_row = check_record(RECORDS[table], body)
    for key_of, parse, expected in KEYS.get(table, ()):
        is_row = _is_key(parse, key) or is_row
        if len(body) >= _NUMBERS.size:
            numbers = _NUMBERS.unpack_from(body)
            if parse(key_of(numbers)) != expected(numbers):
                raise PromiseError(f"{key_of(numbers)!r} of {table} gives {parse(key_of(numbers))}, not {numbers}")
    return is_row


def _is_key(parse: Parse, key: bytes) -> bool:
    """Whether a key can be taken apart; what cannot is refused by one kind of error."""
    try:
        parse(key)
    except ValueError:
        return False
    return True


def seeds() -> Iterator[bytes]:
    """What a plane has stored."""
    from tests.fuzz.played_plane import rows

    for service, table, key, value in rows():
        yield input_of(f"{service}/{table}", key, value)
    for table in KEYS:
        yield input_of(table, b"", _NUMBERS.pack(5, 2**63 - 1, -(2**63), -1))


TARGET = Target("stored_rows", lambda: play, seeds)
