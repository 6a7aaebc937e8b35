"""Records as an enemy fills them in: figures at the edges of their range, names that break out, ids that exist."""

from __future__ import annotations

import typing
from enum import StrEnum
from types import UnionType
from typing import Any

from hypothesis import strategies as st

from schemas import records
from schemas.schema_files import own_schema
from services.domain.table_keys import object_id

LONG_EDGES = (0, 1, -1, 2**31 - 1, 2**31, 2**53, 2**62, 2**63 - 1, -(2**63), -(2**31) - 1)
INT_EDGES = (0, 1, -1, 2, 2**31 - 1, -(2**31))
KNOWN_NUMBERS = (*range(1, 40), *(object_id(0, txn, 1) for txn in range(1, 20)))
"""Txns, offsets and ids as a plane that has done little has given them out."""
HOSTILE_NAMES = (
    "",
    "/",
    "//",
    ".",
    "..",
    "../../x",
    "a/",
    "/a",
    "a//b",
    "a/../b",
    "\0",
    "a\0b",
    "\n",
    "\x1b[31m",
    "%2e%2e",
    "é" * 2_048,
    "é" * 2_049,
    "\U0001f4a3" * 1_024,
    "a" * 4_096,
    "a" * 4_097,
    "a/" * 260 + "a",
    "x" * 70_000,
    "\ufeff",
    ".snapshot/x",
    "'; drop table",
)
KNOWN_NAMES = ("vol1", "tree", "flat", "dir", "dir/k", "dir/sub", "k", "snap1", "snap2", "client", "OPEN")
LONG = st.one_of(st.sampled_from(KNOWN_NUMBERS), st.sampled_from(LONG_EDGES))
INT = st.one_of(st.sampled_from(INT_EDGES), st.integers(0, 20))
TEXT = st.one_of(st.sampled_from(KNOWN_NAMES), st.sampled_from(HOSTILE_NAMES), st.text(max_size=10))
_SIMPLE: dict[Any, st.SearchStrategy[Any]] = {str: TEXT, bytes: st.binary(max_size=20), bool: st.booleans()}
SENDERS = st.sampled_from(
    ["", "snapshots", "key_deletion", "directory_deletion", "mock_scm", "metadata", "unauthorized"]
)


def hostile(record: type[Any]) -> st.SearchStrategy[Any]:
    """Any well formed record of a kind, most likely one that does harm."""
    hints = typing.get_type_hints(record, vars(records))
    fields = own_schema(record.__name__)["fields"]
    values = {field["name"]: _values(hints[field["name"]], field["type"]) for field in fields}
    if "sender" in values:
        values["sender"] = SENDERS
    if "shard" in values:
        values["shard"] = st.sampled_from([0, 0, 0, 0, 0, 0, 0, 1, -1])
    return st.builds(record, **values)


def _values(hint: Any, avro: Any) -> st.SearchStrategy[Any]:
    if isinstance(hint, UnionType):
        branches = [st.none() if branch is type(None) else hostile(branch) for branch in typing.get_args(hint)]
        return st.one_of(branches)
    if typing.get_origin(hint) is tuple:
        return st.lists(_values(typing.get_args(hint)[0], avro["items"]), max_size=3).map(tuple)
    if hint is int:
        return INT if avro == "int" else LONG
    if hint in _SIMPLE:
        return _SIMPLE[hint]
    return st.sampled_from(list(hint)) if issubclass(hint, StrEnum) else hostile(hint)
