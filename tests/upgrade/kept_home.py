"""Makes and opens the home of a release: ``python -m tests.upgrade.kept_home VERSION`` makes one by this program.

``tests/upgrade/releases/<version>`` has the home (databases, snapshot checkpoints, a backup and the broker's log), what
a plane showed of it, and the wheel of the release. It is made once, at the release, and never changes.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path
from typing import Any

import httpx

from schemas.records import (
    BucketLayout,
    CollectionState,
    CreateBucket,
    CreateSnapshot,
    CreateTag,
    CreateVolume,
    DeleteDirectory,
    DeleteKey,
    DeleteKeys,
    DeleteSnapshot,
    PutKey,
    RenameDirectory,
    RenameKey,
    RetentionPolicy,
    SetCollection,
    SetConsumer,
    SetRetention,
    Settle,
    Undelete,
)
from services.client.kafka_plane import KafkaPlane
from services.plane.stack.plane_file import running_plane
from services.plane.stack.stack import Stack
from services.plane.upkeep.backups import backups_directory, make_backup
from tests.integration.test_stack import execute, request
from tests.upgrade.observed import digest_of_stopped, observed
from tests.waiting import eventually

ROOT = Path(__file__).parents[2]
RELEASES = Path(__file__).parent / "releases"
HOME, EXPECTED = "home.tar.xz", "expected.json"
VERSIONS = sorted(path.name for path in RELEASES.iterdir() if path.is_dir())
KEPT = ("broker/records", "data", "backups")
"""The parts of a home that are its state."""
ROCKSDB_LOG = re.compile(r"LOG(\.old\.\d+)?")
"""The text that RocksDB writes about its work; it names places of the machine."""
TREE, FLAT, PAUSED, CLAIMED = ("kept", "tree"), ("kept", "flat"), ("kept", "paused"), ("claimed", "bucket")


def make(version: str) -> Path:
    """Make the wheel and the home of a release by this program, and return their directory."""
    target = RELEASES / version
    target.mkdir(parents=True)
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "wheel", "--quiet", "--no-index", "--no-deps"]
    command = [*pip, "--no-build-isolation", "-w", str(target), str(ROOT)]
    subprocess.run(command, env={**os.environ, "CC": "none"}, check=True)  # for every machine: not compiled
    with tempfile.TemporaryDirectory() as scratch:
        home = Path(scratch) / "home"
        with Stack(home) as stack, stack.client() as plane:
            write(plane)
            expected: dict[str, Any] = {"observed": observed(plane)}
            make_backup(running_plane(home), backups_directory(home))
            leave_claims(stack, plane)
        expected["digest"] = digest_of_stopped(home)
        (target / EXPECTED).write_text(json.dumps(expected, indent=1, sort_keys=True) + "\n", "utf-8")
        with tarfile.open(target / HOME, "w:xz") as archive:
            for name in KEPT:
                archive.add(home / name, name, filter=_without_logs)
    return target


def _without_logs(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
    """Leave out logs, and who has written a file."""
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    return None if ROCKSDB_LOG.fullmatch(Path(member.name).name) else member


def unpack_program(version: str, folder: Path) -> Path:
    """Unpack the wheel of a release into a new folder, and return it."""
    (wheel,) = (RELEASES / version).glob("*.whl")
    with zipfile.ZipFile(wheel) as files:
        files.extractall(folder)  # noqa: S202  a wheel of our own
    return folder


def unpack(version: str, home: Path) -> Any:
    """Unpack the home of a release into a new directory, and return what is expected of it."""
    home.mkdir(parents=True)
    with tarfile.open(RELEASES / version / HOME) as archive:
        archive.extractall(home, filter="data")
    return json.loads((RELEASES / version / EXPECTED).read_text("utf-8"))


def write(plane: KafkaPlane) -> None:
    """Fill three buckets so that all tables have rows, and settle."""
    execute(plane, 0, CreateVolume(TREE[0], "ann"))
    for place, layout in (
        (TREE, BucketLayout.FILE_SYSTEM_OPTIMIZED),
        (FLAT, BucketLayout.OBJECT_STORE),
        (PAUSED, None),
    ):
        execute(plane, 0, CreateBucket(*place, layout or BucketLayout.OBJECT_STORE))
        execute(
            plane, 0, *(PutKey(*place, f"2026/{month}/{day}", 1_000 + day) for month in range(3) for day in range(9))
        )
        request(plane, 0, CreateSnapshot(*place, "first"))
    execute(
        plane, 0, *(PutKey(*TREE, f"2026/1/{day}", 7) for day in range(4)), RenameKey(*TREE, "2026/0/0", "2026/0/new")
    )
    execute(plane, 0, RenameDirectory(*TREE, "2026/2", "moved"), DeleteDirectory(*TREE, "2026/1"))
    execute(plane, 0, DeleteKeys(*FLAT, tuple(f"2026/0/{day}" for day in range(5))), DeleteKey(*FLAT, "2026/1/1"))
    for place in (TREE, FLAT):
        request(plane, 0, CreateSnapshot(*place, "second"))
    execute(plane, 0, DeleteKey(*TREE, "moved/3"), DeleteKey(*FLAT, "2026/2/2"), PutKey(*FLAT, "2026/2/3", 5))
    request(plane, 0, CreateSnapshot(*FLAT, "dropped"))
    execute(plane, 0, DeleteKey(*FLAT, "2026/2/4"))
    request(plane, 0, DeleteSnapshot(*FLAT, "dropped"))
    request(plane, 0, CreateTag(*TREE, "first", "audit", "ann", "kept for the audit", 0))
    request(plane, 0, SetConsumer(*TREE, "reader", "second"))
    request(plane, 0, SetRetention(*TREE, RetentionPolicy()))
    execute(plane, 0, SetCollection(*PAUSED, CollectionState.PAUSED, "kept for later"))
    execute(plane, 0, *(PutKey(*PAUSED, f"late/{number}", 50) for number in range(4)))
    execute(plane, 0, *(DeleteKey(*PAUSED, f"late/{number}") for number in range(4)))
    undo_one(plane)
    plane.send_again("metadata.commands", 0, b"no command", b"key", [])
    request(plane, 0, Settle("kept"))


def undo_one(plane: KafkaPlane) -> None:
    """Undelete one of the deleted keys of the paused bucket."""
    one = plane.metadata(0).deleted(*PAUSED)[0]
    execute(plane, 0, Undelete(*PAUSED, one.path, one.kind, one.object_id, one.birth, one.death))


def leave_claims(stack: Stack, plane: KafkaPlane) -> None:
    """Leave versions that are claimed, and that the block store has not confirmed."""
    url = f"{stack.url('mock_scm')}/v1/switches"
    httpx.put(url, json={"fail_share": 1.0}, trust_env=False).raise_for_status()
    execute(plane, 0, CreateVolume(CLAIMED[0]), CreateBucket(*CLAIMED, BucketLayout.OBJECT_STORE))
    execute(plane, 0, *(PutKey(*CLAIMED, f"{number}", 100) for number in range(5)))
    execute(plane, 0, *(DeleteKey(*CLAIMED, f"{number}") for number in range(5)))
    eventually(lambda: plane.metadata(0).space(*CLAIMED).claimed_bytes == 500)


if __name__ == "__main__":
    print(make(sys.argv[1]))
