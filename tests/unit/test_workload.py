"""The workload format: every operation there and back, and what is said about a bad line."""

import json
from pathlib import Path

import pytest

from schemas.records import BucketLayout
from services.workloads.workload import (
    AbandonKey,
    AbortUpload,
    CommitKey,
    CompleteUpload,
    CreateBucket,
    CreateLink,
    CreateSnapshot,
    CreateVolume,
    DeleteBucket,
    DeleteDirectory,
    DeleteKey,
    DeleteKeys,
    DeleteSnapshot,
    Diff,
    ExpireOpenKeys,
    ExpireSnapshots,
    ExpireUploads,
    Explain,
    InitiateUpload,
    MakeDirectory,
    MoveConsumer,
    Observe,
    OpenKey,
    Operation,
    Plan,
    PutKey,
    PutPart,
    RenameDirectory,
    RenameKey,
    RenameSnapshot,
    RollBack,
    SetQuota,
    Settle,
    SyncKey,
    TagSnapshot,
    UndeleteKey,
    UntagSnapshot,
    WhatIf,
    WorkloadError,
    has_wide_observations,
    parse_line,
    read_operations,
    to_json,
)

LINES: list[tuple[str, Operation]] = [
    (
        '{"op": "create_link", "volume": "v", "bucket": "l", "link_volume": "v", "link_bucket": "b"}',
        CreateLink("v", "l", "v", "b"),
    ),
    (
        '{"op": "set_quota", "volume": "v", "bucket": "b", "bytes": 20000, "namespace": 8}',
        SetQuota("v", "b", 20_000, 8),
    ),
    (
        '{"op": "create_snapshot", "volume": "v", "bucket": "b", "snapshot": "s0", "at_s": 0}',
        CreateSnapshot("v", "b", "s0", 0),
    ),
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
    ('{"op": "delete_bucket", "volume": "v", "bucket": "b"}', DeleteBucket("v", "b")),
    ('{"op": "delete_key", "volume": "v", "bucket": "b", "key": "k"}', DeleteKey("v", "b", "k")),
    ('{"op": "delete_keys", "volume": "v", "bucket": "b", "keys": ["k", "l"]}', DeleteKeys("v", "b", ("k", "l"))),
    ('{"op": "undelete_key", "volume": "v", "bucket": "b", "key": "k"}', UndeleteKey("v", "b", "k")),
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
    (
        '{"op": "create_snapshot", "volume": "v", "bucket": "b", "snapshot": "s1", "at_s": 10}',
        CreateSnapshot("v", "b", "s1", 10_000),
    ),
    (
        '{"op": "create_snapshot", "volume": "v", "bucket": "b", "snapshot": "s1", "at_s": 0.5}',
        CreateSnapshot("v", "b", "s1", 500),
    ),
    (
        '{"op": "tag", "volume": "v", "bucket": "b", "snapshot": "s1", "tag": "t"}',
        TagSnapshot("v", "b", "s1", "t"),
    ),
    (
        '{"op": "untag", "volume": "v", "bucket": "b", "snapshot": "s1", "tag": "t"}',
        UntagSnapshot("v", "b", "s1", "t"),
    ),
    (
        '{"op": "consumer", "volume": "v", "bucket": "b", "consumer": "c", "next": "s1"}',
        MoveConsumer("v", "b", "c", "s1"),
    ),
    (
        '{"op": "consumer", "volume": "v", "bucket": "b", "consumer": "c", "next": null}',
        MoveConsumer("v", "b", "c", None),
    ),
    (
        '{"op": "expire", "volume": "v", "bucket": "b", "num_retained_min": 1, "num_retained_max": 5, "now_s": 200}',
        ExpireSnapshots("v", "b", 1, 5, now_ms=200_000),
    ),
    (
        '{"op": "expire", "volume": "v", "bucket": "b", "time_retained_s": 0.25, "expire_limit": 50}',
        ExpireSnapshots("v", "b", time_retained_ms=250, expire_limit=50),
    ),
    ('{"op": "expire", "volume": "v", "bucket": "b"}', ExpireSnapshots("v", "b")),
    (
        '{"op": "what_if", "volume": "v", "bucket": "b", "snapshots": ["s1", "s2"]}',
        WhatIf("v", "b", ("s1", "s2")),
    ),
    ('{"op": "plan", "volume": "v", "bucket": "b", "free_bytes": 7}', Plan("v", "b", 7)),
    ('{"op": "explain", "volume": "v", "bucket": "b", "path": "d/k"}', Explain("v", "b", path="d/k")),
    ('{"op": "explain", "volume": "v", "bucket": "b", "snapshot": "s1"}', Explain("v", "b", snapshot="s1")),
    (
        '{"op": "rollback", "volume": "v", "bucket": "b", "snapshot": "s1"}',
        RollBack("v", "b", "s1"),
    ),
    (
        '{"op": "put_key", "volume": "v", "bucket": "b", "key": "k", "size": 1, "tag": "t", "if_absent": true}',
        PutKey("v", "b", "k", 1, "t", if_absent=True),
    ),
    (
        '{"op": "put_key", "volume": "v", "bucket": "b", "key": "k", "size": 1, "tag": "t", "if_generation": "p1"}',
        PutKey("v", "b", "k", 1, "t", if_generation="p1"),
    ),
    (
        '{"op": "open_key", "volume": "v", "bucket": "b", "key": "k", "size": 0, "tag": "t", "handle": "h"}',
        OpenKey("v", "b", "k", 0, "t", "h"),
    ),
    ('{"op": "hsync", "volume": "v", "bucket": "b", "handle": "h", "size": 9}', SyncKey("v", "b", "h", 9)),
    ('{"op": "commit_key", "volume": "v", "bucket": "b", "handle": "h", "size": 9}', CommitKey("v", "b", "h", 9)),
    ('{"op": "abandon", "volume": "v", "bucket": "b", "handle": "h"}', AbandonKey("v", "b", "h")),
    ('{"op": "expire_open_keys"}', ExpireOpenKeys()),
    (
        '{"op": "mpu_initiate", "volume": "v", "bucket": "b", "key": "k", "upload": "u"}',
        InitiateUpload("v", "b", "k", "u"),
    ),
    (
        '{"op": "mpu_part", "volume": "v", "bucket": "b", "upload": "u", "part": 1, "size": 5, "tag": "t"}',
        PutPart("v", "b", "u", 1, 5, "t"),
    ),
    (
        '{"op": "mpu_complete", "volume": "v", "bucket": "b", "upload": "u", "parts": [1, 3], "tag": "t"}',
        CompleteUpload("v", "b", "u", (1, 3), "t"),
    ),
    ('{"op": "mpu_abort", "volume": "v", "bucket": "b", "upload": "u"}', AbortUpload("v", "b", "u")),
    ('{"op": "expire_uploads"}', ExpireUploads()),
    ('{"op": "settle"}', Settle()),
    ('{"op": "observe", "label": "after"}', Observe("after")),
]


@pytest.mark.parametrize(("line", "operation"), LINES)
def test_there_and_back(line: str, operation: Operation) -> None:
    assert parse_line(line, 0) == operation
    assert to_json(operation) == line


def test_null_is_as_left_out_where_something_may_be_left_out() -> None:
    line = '{"op": "expire", "volume": "v", "bucket": "b", "num_retained_max": null, "now_s": null}'
    assert parse_line(line, 0) == ExpireSnapshots("v", "b")
    line = '{"op": "create_snapshot", "volume": "v", "bucket": "b", "snapshot": "s", "at_s": null}'
    assert parse_line(line, 0) == CreateSnapshot("v", "b", "s")


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


COMPLETE = {"op": "mpu_complete", "volume": "v", "bucket": "b", "upload": "u", "tag": "t"}
EXPIRE = {"op": "expire", "volume": "v", "bucket": "b"}
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
        (json.dumps({**EXPIRE, "expire_limit": 1.5}), "expire_limit must be a whole number"),
        (json.dumps({**EXPIRE, "now_s": -1}), "now_s must be a number of seconds"),
        (json.dumps({**EXPIRE, "now_s": True}), "now_s must be"),
        (json.dumps({**EXPIRE, "now_s": "1"}), "now_s must be"),
        ('{"op": "expire", "volume": "v", "bucket": "b", "now_s": NaN}', "now_s must be"),
        ('{"op": "expire", "volume": "v", "bucket": "b", "now_s": 1e999}', "now_s must be"),
        ('{"op": "consumer", "volume": "v", "bucket": "b", "consumer": "c"}', "consumer lacks next"),
        ('{"op": "tag", "volume": "v", "bucket": "b", "snapshot": null, "tag": "t"}', "snapshot must be a string"),
        (json.dumps({**PUT, "key": 7}), "key must be a string, not 7"),
        (json.dumps({**PUT, "key": "\ud800"}), "surrogate"),
        ('{"op": "create_bucket", "volume": "v", "bucket": "b", "layout": "fso"}', "unknown layout 'fso'"),
        ('{"op": "explain", "volume": "v", "bucket": "b"}', "explain has exactly one of path, snapshot"),
        (
            '{"op": "explain", "volume": "v", "bucket": "b", "path": "k", "snapshot": "s"}',
            "explain has exactly one of path, snapshot",
        ),
        ('{"op": "plan", "volume": "v", "bucket": "b", "free_bytes": "much"}', "free_bytes must be a whole number"),
        ('{"op": "what_if", "volume": "v", "bucket": "b", "snapshots": "s1"}', "snapshots must be a list of names"),
        ('{"op": "delete_keys", "volume": "v", "bucket": "b", "keys": "k"}', "keys must be a list of names"),
        ('{"op": "what_if", "volume": "v", "bucket": "b", "snapshots": [1]}', "snapshot must be a string, not 1"),
        (json.dumps({**PUT, "if_absent": 1}), "if_absent must be true or false, not 1"),
        (json.dumps({**PUT, "if_absent": True, "if_generation": "p"}), "at most one of if_absent, if_generation"),
        (json.dumps({**COMPLETE, "parts": 1}), "parts must be a list of numbers, not 1"),
        (json.dumps({**COMPLETE, "parts": [1, "2"]}), "part must be a whole number"),
        (json.dumps({**COMPLETE, "parts": [True]}), "part must be a whole number"),
        (
            '{"op": "open_key", "volume": "v", "bucket": "b", "key": "k", "size": 1, "tag": "t"}',
            "open_key lacks handle",
        ),
        ('{"op": "expire_uploads", "volume": "v"}', "unknown fields 'volume'"),
        ('{"op": "set_quota", "volume": "v", "bytes": -2}', "bytes must be a whole number"),
        ('{"op": "set_quota", "volume": "v", "namespace": "8"}', "namespace must be a whole number"),
        ('{"op": "set_quota", "bucket": "b", "bytes": 1}', "set_quota lacks volume"),
        ('{"op": "create_link", "volume": "v", "bucket": "l"}', "create_link lacks link_volume, link_bucket"),
    ],
)
def test_a_bad_line_is_named_and_explained(line: str, reason: str) -> None:
    with pytest.raises(WorkloadError, match="line 41 ") as caught:
        parse_line(line, 41)
    assert reason in str(caught.value)
    assert caught.value.number == 41


def test_no_limit_is_written_as_null_or_left_out_or_minus_one() -> None:
    for line in ('"bytes": null', '"bytes": -1', '"namespace": null, "bytes": null'):
        assert parse_line(f'{{"op": "set_quota", "volume": "v", "bucket": "b", {line}}}', 0) == SetQuota("v", "b")


def test_only_steps_conditions_links_and_quotas_widen_observations() -> None:
    plain = [Settle(), Observe("x"), PutKey("v", "b", "k", 1, "t"), UndeleteKey("v", "b", "k")]
    assert not has_wide_observations(enumerate(plain))
    for more in (PutKey("v", "b", "k", 1, "t", if_absent=True), PutKey("v", "b", "k", 1, "t", if_generation="p")):
        assert has_wide_observations(enumerate([*plain, more]))
    in_steps = [ExpireUploads(), ExpireOpenKeys(), SyncKey("v", "b", "h", 1), AbortUpload("v", "b", "u")]
    for one in (SetQuota("v"), CreateLink("v", "l", "v", "b"), *in_steps):
        assert has_wide_observations(enumerate([*plain, one]))


def test_a_file_s_line_numbers_count_blank_lines(tmp_path: Path) -> None:
    path = tmp_path / "workload.jsonl"
    # U+2028 ends a line for some readers, not for this one.
    path.write_bytes(b'{"op": "settle"}\r\n\n{"op": "observe", "label": "\xe2\x80\xa8"}')
    assert list(read_operations(path)) == [(0, Settle()), (2, Observe("\u2028"))]
    path.write_bytes(b'{"op": "settle"}\n{"op": "observe", "label": "\xff"}\n')
    with pytest.raises(WorkloadError, match=r"line 1 .*UTF-8"):
        list(read_operations(path))
