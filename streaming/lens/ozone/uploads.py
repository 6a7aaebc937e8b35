"""Reads the committed parts of unfinished uploads as rows of keys."""

from __future__ import annotations

from typing import Any

from services.lens.ozone import tables
from services.lens.ozone.messages import KeyInfo, MultipartKeyInfo, MultipartPartInfo
from services.lens.ozone.tables import end_of
from streaming.rocksdb.checkpoint_rows import ReadOnlyRows

PART_NUMBER_BYTES = 4


def parts_of(value: bytes, store: ReadOnlyRows) -> list[Any]:
    """Return the parts of an upload: those in its row, and those in a table of their own with binary keys."""
    upload = MultipartKeyInfo.FromString(value)
    parts = [part.info for part in upload.parts]
    prefix = upload.upload + b"/"
    for key, part in store.scan(tables.MULTIPART_PARTS, prefix, end_of(prefix)):
        if len(key) == len(prefix) + PART_NUMBER_BYTES:
            parts.append(_part(upload, MultipartPartInfo.FromString(part)))
    return parts


def _part(upload: Any, part: Any) -> Any:
    """Return a part as a key's row: the replication is in the row of the upload."""
    info = KeyInfo(type=upload.type, factor=upload.factor, data_bytes=part.data_bytes, object_id=part.object_id)
    info.ec.CopyFrom(upload.ec)
    info.versions.add().CopyFrom(part.versions)
    return info
