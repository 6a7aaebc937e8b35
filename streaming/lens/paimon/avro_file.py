"""Reads a small Avro file that is in memory. Spark reads the large ones.

fastavro reads only some of the compressions that Paimon writes; Arrow has the rest.
"""

from __future__ import annotations

import io
import json
import zlib
from collections.abc import Collection, Iterator
from typing import Any

import fastavro
import pyarrow as pa

from services.lens.paimon.metadata import PaimonError

_SYNC = {"name": "sync", "type": {"type": "fixed", "name": "Sync", "size": 16}}
_MAGIC_FIELD = {"name": "magic", "type": {"type": "fixed", "name": "Magic", "size": 4}}
_META = {"name": "meta", "type": {"type": "map", "values": "bytes"}}
_HEADER = fastavro.parse_schema({"type": "record", "name": "Header", "fields": [_MAGIC_FIELD, _META, _SYNC]})
_COUNTED_ROWS = [{"name": "count", "type": "long"}, {"name": "rows", "type": "bytes"}]
_BLOCK = fastavro.parse_schema({"type": "record", "name": "Block", "fields": [*_COUNTED_ROWS, _SYNC]})
_MAGIC = b"Obj\x01"


def rows(content: bytes, columns: Collection[str]) -> list[dict[str, Any]]:
    """Return some columns of the rows of an Avro file.

    Raises:
        PaimonError: it is truncated or damaged.
    """
    try:
        return list(_rows(content, columns))
    except Exception as error:  # whatever a damaged file makes the decoders raise
        raise PaimonError(f"it is no whole Avro file ({error or 'it ends early'})") from None


def _rows(content: bytes, columns: Collection[str]) -> Iterator[dict[str, Any]]:
    file = io.BytesIO(content)
    header: Any = fastavro.schemaless_reader(file, _HEADER, None)
    if header["magic"] != _MAGIC:
        raise ValueError("it does not begin as one")
    written: dict[str, Any] = json.loads(header["meta"]["avro.schema"])
    schema = fastavro.parse_schema(written)
    projected = {**written, "fields": [field for field in written["fields"] if field["name"] in columns]}
    wanted = fastavro.parse_schema(projected)
    codec = header["meta"].get("avro.codec", b"null").decode()
    while file.tell() < len(content):
        block: Any = fastavro.schemaless_reader(file, _BLOCK, None)
        if block["sync"] != header["sync"]:
            raise ValueError("a block is damaged")
        inner = io.BytesIO(_decompressed(codec, block["rows"]))
        for _ in range(block["count"]):
            before = inner.tell()
            row: Any = fastavro.schemaless_reader(inner, schema, wanted)
            if inner.tell() == before:  # no file of Paimon has rows without bytes, of which there could be 2**63
                raise ValueError("a row has no bytes")
            yield row


def _decompressed(codec: str, block: bytes) -> bytes:
    if codec == "null":
        return block
    if codec == "deflate":
        return zlib.decompress(block, -zlib.MAX_WBITS)
    if codec == "zstandard":
        with pa.CompressedInputStream(pa.BufferReader(block), "zstd") as stream:
            return bytes(stream.read())
    if codec == "snappy":
        return bytes(pa.decompress(block[:-4], _snappy_size(block), "snappy"))
    raise ValueError(f"its compression {codec} is not known here")


def _snappy_size(block: bytes) -> int:
    """Return the size that a snappy block begins with, seven bits a byte."""
    size = shift = 0
    for byte in block:
        size |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
        shift += 7
    return size
