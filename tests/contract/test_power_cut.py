"""What the store calls written is there after a power cut: on a disk that loses all that was not synced."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.contract.test_store import BEYOND, open_rocks, rows
from tests.power_cut.disk import LosingDisk

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler to make the disk with")

WRITER = """
import sys
from pathlib import Path
from services.storage.rocks_backups import copy_files
from tests.contract.test_store import open_rocks
from tests.faults.fault import apply_in_this_process
apply_in_this_process()
root = Path(sys.argv[1])
store = open_rocks(root / "home" / "metadata" / "0")
number = 0
while True:
    number += 1
    store.write({"fileTable": {b"/%06d" % number: b"x" * 2_000}, "outbox": {b"last": b"%d" % number}})
    if number % 40 == 20:
        store.checkpoint(f"at-{number}")
    if number == 30:
        store.back_up_to(root / "backups" / "one" / "metadata" / "0")
        copy_files(root / "backups" / "one" / "metadata" / "0", root / "restored" / "metadata" / "0")
    print(number, flush=True)
"""
"""Says a number when it is written, and the checkpoint or the backup that goes with it made."""


def _cut_off_after(number: int, disk: LosingDisk) -> int:
    """Have a process write until it has said a number, and the power cut; the last number that it has said."""
    disk.root.mkdir(exist_ok=True)
    command = [sys.executable, "-c", WRITER, str(disk.root)]
    with subprocess.Popen(command, env=disk.environment(), stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        said = 0
        while said < number:
            said = int(process.stdout.readline())
        process.kill()
        said = max([said, *(int(line) for line in process.stdout.read().split() if line.isdigit())])
    disk.cut_power()
    return said


def _check(place: Path, said: int) -> None:
    """All that was said to be written is in a database, and what is there is whole."""
    store = open_rocks(place / "metadata" / "0")
    last = int(store.get("outbox", b"last") or 0)
    assert last >= said, "a write that was acknowledged is lost"
    assert list(rows(store)) == [b"/%06d" % one for one in range(1, last + 1)]
    made = [f"at-{one}" for one in range(20, said + 1, 40)]
    assert set(made) <= set(store.checkpoints()), "a checkpoint that was acknowledged is lost"
    for name in store.checkpoints():
        view = store.open_checkpoint(name)
        assert len(list(view.scan("fileTable", b"", BEYOND))) == int(name.removeprefix("at-"))
        view.close()
    store.close()


@pytest.mark.parametrize("number", [1, 20, 150])
def test_what_was_written_outlives_a_power_cut(tmp_path: Path, number: int) -> None:
    disk = LosingDisk(tmp_path / "disk", tmp_path / "notes")
    said = _cut_off_after(number, disk)
    _check(disk.root / "home", said)


def test_a_backup_and_a_restored_copy_outlive_a_power_cut(tmp_path: Path) -> None:
    disk = LosingDisk(tmp_path / "disk", tmp_path / "notes")
    _cut_off_after(30, disk)
    _check(disk.root / "backups" / "one", 30)
    _check(disk.root / "restored", 30)


def test_the_disk_loses_what_was_not_synced(tmp_path: Path) -> None:
    """The disk itself: a file with half of it synced, one in a directory that was not, one renamed over another."""
    disk = LosingDisk(tmp_path / "disk", tmp_path / "notes")
    disk.root.mkdir()
    script = f"""
import os
os.chdir({str(disk.root)!r})
root = os.open(".", os.O_RDONLY)
half = open("half", "wb", buffering=0)
half.write(b"kept"); os.fsync(half.fileno()); os.fsync(root)
half.write(b"lost")
open("unnamed", "wb", buffering=0).write(b"never synced")
for name, text in (("current", b"old"), ("next", b"new")):
    with open(name, "wb", buffering=0) as file:
        file.write(text); os.fdatasync(file.fileno())
os.fsync(root)
os.rename("next", "current")
"""
    subprocess.run([sys.executable, "-c", script], env=disk.environment(), check=True)
    assert (disk.root / "current").read_bytes() == b"new"
    disk.cut_power()
    assert {path.name: path.read_bytes() for path in disk.root.iterdir()} == {
        "half": b"kept",
        "current": b"old",
        "unnamed": b"",
    }
