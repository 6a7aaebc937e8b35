"""The messages in an Ozone Manager's tables, as far as the lens reads them; other fields are skipped.

The classes are made at import from field numbers, so that no generated code has to be kept. Ids are declared signed:
Ozone declares many of them unsigned, but they are Java longs, and both have the same bytes.
"""

from __future__ import annotations

from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

_FIELDS: dict[str, dict[str, tuple[int, str]]] = {
    "KeyValue": {"key": (1, "string"), "value": (2, "string")},
    "Uuid": {"most": (1, "int64"), "least": (2, "int64")},
    "EcReplication": {"data": (1, "int32"), "parity": (2, "int32"), "cell_bytes": (4, "int32")},
    "ContainerBlockId": {"container": (1, "int64"), "local": (2, "int64")},
    "BlockId": {"id": (1, "ContainerBlockId"), "commit_sequence": (2, "int64")},
    "KeyLocation": {
        "block": (1, "BlockId"),
        "offset": (3, "int64"),
        "length": (4, "int64"),
        "create_version": (5, "int64"),
    },
    "KeyLocationList": {"version": (1, "int64"), "locations": (2, "KeyLocation*")},
    "KeyInfo": {
        "volume": (1, "bytes"),
        "bucket": (2, "bytes"),
        "name": (3, "bytes"),
        "data_bytes": (4, "int64"),
        "type": (5, "int32"),
        "factor": (6, "int32"),
        "versions": (7, "KeyLocationList*"),
        "metadata": (11, "KeyValue*"),
        "object_id": (14, "int64"),
        "update_id": (15, "int64"),
        "parent_id": (16, "int64"),
        "ec": (17, "EcReplication"),
    },
    "RepeatedKeyInfo": {"infos": (1, "KeyInfo*"), "bucket_id": (2, "int64")},
    "DirectoryInfo": {"name": (1, "bytes"), "object_id": (6, "int64"), "parent_id": (8, "int64")},
    "VolumeInfo": {"name": (3, "bytes"), "object_id": (8, "int64")},
    "BucketInfo": {
        "volume": (1, "bytes"),
        "bucket": (2, "bytes"),
        "object_id": (9, "int64"),
        "source_volume": (12, "bytes"),
        "source_bucket": (13, "bytes"),
        "used_bytes": (14, "int64"),
        "used_namespace": (17, "int64"),
        "layout": (18, "int32"),
        "snapshot_used_bytes": (21, "int64"),
        "snapshot_used_namespace": (22, "int64"),
    },
    "SnapshotInfo": {
        "id": (1, "Uuid"),
        "name": (2, "string"),
        "volume": (3, "bytes"),
        "bucket": (4, "bytes"),
        "status": (5, "int32"),
        "creation_time_ms": (6, "int64"),
        "previous": (8, "Uuid"),
        "referenced_bytes": (15, "int64"),
        "exclusive_bytes": (17, "int64"),
        "last_transaction": (20, "bytes"),
        "exclusive_delta_bytes": (21, "int64"),
        "create_transaction": (23, "bytes"),
    },
    "PartKeyInfo": {"number": (2, "int32"), "info": (3, "KeyInfo")},
    "MultipartKeyInfo": {
        "upload": (1, "bytes"),
        "type": (3, "int32"),
        "factor": (4, "int32"),
        "parts": (5, "PartKeyInfo*"),
        "object_id": (6, "int64"),
        "ec": (9, "EcReplication"),
        "schema_version": (10, "int32"),
    },
    "MultipartPartInfo": {
        "number": (2, "int32"),
        "versions": (4, "KeyLocationList"),
        "data_bytes": (5, "int64"),
        "object_id": (7, "int64"),
    },
}
"""Field numbers and types by our names; ``*`` marks a repeated field. Names are bytes: keys are built from them."""

_PACKAGE = "deepclean.ozone"


def _classes() -> dict[str, Any]:
    field_types = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name="deepclean/ozone.proto", package=_PACKAGE, syntax="proto2")
    for name, fields in _FIELDS.items():
        message = file.message_type.add(name=name)
        for field, (number, kind) in fields.items():
            base = kind.removesuffix("*")
            added = message.field.add(name=field, number=number)
            added.label = field_types.LABEL_OPTIONAL if base == kind else field_types.LABEL_REPEATED
            if base in _FIELDS:
                added.type, added.type_name = field_types.TYPE_MESSAGE, f".{_PACKAGE}.{base}"
            else:
                added.type = getattr(field_types, f"TYPE_{base.upper()}")
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{_PACKAGE}.{name}")) for name in _FIELDS}


MESSAGES: dict[str, Any] = _classes()
KeyInfo: Any = MESSAGES["KeyInfo"]
RepeatedKeyInfo: Any = MESSAGES["RepeatedKeyInfo"]
DirectoryInfo: Any = MESSAGES["DirectoryInfo"]
VolumeInfo: Any = MESSAGES["VolumeInfo"]
BucketInfo: Any = MESSAGES["BucketInfo"]
SnapshotInfo: Any = MESSAGES["SnapshotInfo"]
MultipartKeyInfo: Any = MESSAGES["MultipartKeyInfo"]
MultipartPartInfo: Any = MESSAGES["MultipartPartInfo"]
