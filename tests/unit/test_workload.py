"""The workload format: every operation there and back, and what is said about a bad line."""

import json
from pathlib import Path

import pytest

from schemas.records import BucketLayout
from services.client.workload import (
    CreateBucket,
    CreateSnapshot,
    CreateVolume,
    DeleteDirectory,
    DeleteKey,
    DeleteSnapshot,
    Diff,
    MakeDirectory,
    Observe,
    Operation,
    PutKey,
    RenameDirectory,
    RenameKey,
    RenameSnapshot,
    Settle,
    WorkloadError,
    parse_line,
    read_operations,
    to_json,
)

LINES: list[tuple[str, Operation]] = [
    (
        '{"op": "diff", "volume": "v", "bucket": "b", "from": "s1", "to": "active"}',
        Diff("v", "b", "s1", "active"),
    ),
    ('{"op": "create_volume", "volume": "v"}', CreateVolume("v")),
    (
        '{"op": "create_bucket", "volume": "v", "bucket": "b", "layout": "FSO"}',
        CreateBucket("v", "b", BucketLayout.FILE_SYSTEM_OPTIMIZED),
    ),
    (
        '{"op": "put_key", "volume": "v", "bucket": "b", "key": "a/\\n\\u00e9", "size": 0, "tag": "p1"}',
        PutKey("v", "b", "a/\né", 0, "p1"),
    ),
    ('{"op": "delete_key", "volume": "v", "bucket": "b", "key": "k"}', DeleteKey("v", "b", "k")),
    (
        '{"op": "rename_key", "volume": "v", "bucket": "b", "from": "k", "to": "l"}',
        RenameKey("v", "b", "k", "l"),
    ),
    (
        '{"op": "rename_dir", "volume": "v", "bucket": "b", "from": "d", "to": "e"}',
        RenameDirectory("v", "b", "d", "e"),
    ),
    ('{"op": "mkdir", "volume": "v", "bucket": "b", "dir": "d"}', MakeDirectory("v", "b", "d")),
    ('{"op": "delete_dir", "volume": "v", "bucket": "b", "dir": "d"}', DeleteDirectory("v", "b", "d")),
    (
        '{"op": "create_snapshot", "volume": "v", "bucket": "b", "snapshot": "s1"}',
        CreateSnapshot("v", "b", "s1"),
    ),
    (
        '{"op": "delete_snapshot", "volume": "v", "bucket": "b", "snapshot": "s1"}',
        DeleteSnapshot("v", "b", "s1"),
    ),
    (
        '{"op": "rename_snapshot", "volume": "v", "bucket": "b", "from": "s1", "to": "s2"}',
        RenameSnapshot("v", "b", "s1", "s2"),
    ),
    ('{"op": "settle"}', Settle()),
    ('{"op": "observe", "label": "after"}', Observe("after")),
]


@pytest.mark.parametrize(("line", "operation"), LINES)
def test_there_and_back(line: str, operation: Operation) -> None:
    assert parse_line(line, 0) == operation
    assert to_json(operation) == line


@pytest.mark.parametrize(
    ("name", "layout"),
    [
        ("OBS", BucketLayout.OBJECT_STORE),
        ("OBJECT_STORE", BucketLayout.OBJECT_STORE),
        ("FILE_SYSTEM_OPTIMIZED", BucketLayout.FILE_SYSTEM_OPTIMIZED),
        ("LEGACY", BucketLayout.LEGACY),
    ],
)
def test_layouts_have_two_names(name: str, layout: BucketLayout) -> None:
    line = json.dumps({"op": "create_bucket", "volume": "v", "bucket": "b", "layout": name})
    assert parse_line(line, 0) == CreateBucket("v", "b", layout)


PUT = {"op": "put_key", "volume": "v", "bucket": "b", "key": "k", "size": 1, "tag": "t"}


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("{", "not JSON"),
        ("[" * 100_000, "not JSON"),
        ("[]", "not a JSON object"),
        ('{"volume": "v"}', "unknown op None"),
        ('{"op": ["settle"]}', "unknown op"),
        ('{"op": "explode"}', "unknown op 'explode'; known are create_volume"),
        ('{"op": "put_key", "volume": "v"}', "put_key lacks bucket, key, size, tag"),
        ('{"op": "settle", "seconds": 3}', "unknown fields 'seconds'"),
        (json.dumps({**PUT, "size": -1}), "size must be"),
        (json.dumps({**PUT, "size": 2**63}), "size must be"),
        (json.dumps({**PUT, "size": True}), "size must be"),
        (json.dumps({**PUT, "size": 1.0}), "size must be"),
        (json.dumps({**PUT, "key": 7}), "key must be a string, not 7"),
        (json.dumps({**PUT, "key": "\ud800"}), "surrogate"),
        ('{"op": "create_bucket", "volume": "v", "bucket": "b", "layout": "fso"}', "unknown layout 'fso'"),
    ],
)
def test_a_bad_line_is_named_and_explained(line: str, reason: str) -> None:
    with pytest.raises(WorkloadError, match="line 41 ") as caught:
        parse_line(line, 41)
    assert reason in str(caught.value)
    assert caught.value.number == 41


def test_a_file_s_line_numbers_count_blank_lines(tmp_path: Path) -> None:
    path = tmp_path / "workload.jsonl"
    # U+2028 ends a line for some readers, not for this one.
    path.write_bytes(b'{"op": "settle"}\r\n\n{"op": "observe", "label": "\xe2\x80\xa8"}')
    assert list(read_operations(path)) == [(0, Settle()), (2, Observe("\u2028"))]
    path.write_bytes(b'{"op": "settle"}\n{"op": "observe", "label": "\xff"}\n')
    with pytest.raises(WorkloadError, match=r"line 1 .*UTF-8"):
        list(read_operations(path))
