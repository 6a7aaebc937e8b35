"""Parts of a plane of an earlier release are upgraded one after the other, while clients of both versions write."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import TypeVar

import pytest
from typer.testing import CliRunner

from schemas.records import (
    BucketLayout,
    CreateBucket,
    CreateSnapshot,
    CreateVolume,
    DeleteDirectory,
    DeleteKey,
    DeleteSnapshot,
    PutKey,
    RenameKey,
    Settle,
)
from services.cli.main import app
from services.client.errors import UnreachableError
from services.client.kafka_plane import KafkaPlane
from services.plane.broker import topics
from services.plane.machine.errors import StackError
from services.plane.stack.plane_file import running_plane
from services.plane.stack.process_names import HTTP_PROCESSES, METADATA
from services.plane.stack.stack import Stack
from services.plane.upkeep.backups import backups_directory, find_backup, make_backup, restore_backup
from tests.integration.test_stack import execute, request
from tests.upgrade.kept_home import VERSIONS, unpack_program
from tests.upgrade.later_version import environment, make_later_version
from tests.upgrade.rows_in_between import RowsInBetween

pytestmark = [pytest.mark.broker, pytest.mark.spark, pytest.mark.timeout(1_500), pytest.mark.long]
ROUND_SECONDS = 120
R = TypeVar("R")
ROOT = Path(__file__).parents[2]
LATER_CLIENT = """
import sys
from pathlib import Path
from schemas.records import MetadataCommand
from services.plane.stack.stack import running_client
from tests.upgrade.test_rolling_upgrade import one_round
assert MetadataCommand(0, "", 0, None).added_later == 0, "this is not the later version"
with running_client(Path(sys.argv[1])) as plane:
    one_round(plane, sys.argv[2])
"""


PREPARE = """
import sys
from services.cli.main import app
app(["--home", sys.argv[1], "upgrade", "prepare"])
"""


@pytest.fixture(scope="module")
def later(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_later_version(tmp_path_factory.mktemp("later") / "version")


def one_round(plane: KafkaPlane, volume: str) -> None:
    """Write, snapshot and delete in a new volume; nothing that the snapshot holds is freed, and then all of it is."""
    place = (volume, "tree")
    blocks = execute(
        plane, 0, CreateVolume(volume), CreateBucket(*place, BucketLayout.FILE_SYSTEM_OPTIMIZED),
        *(PutKey(*place, f"a/b/{number}", 1_000) for number in range(10)), RenameKey(*place, "a/b/0", "a/b/renamed"),
    )  # fmt: skip
    request(plane, 0, CreateSnapshot(*place, "held"))
    execute(plane, 0, *(DeleteKey(*place, f"a/b/{number}") for number in range(1, 6)))
    execute(plane, 0, DeleteDirectory(*place, "a"))
    request(plane, 0, Settle(f"held in {volume}"))
    assert patiently(lambda: plane.scm(0).exist(blocks)) == [True] * 10
    held = patiently(lambda: plane.snapshots(0).snapshot(*place, "held"))
    entries = patiently(lambda: plane.metadata(0).entries(*place, snapshot_id=held.snapshot_id))
    assert len([entry for entry in entries if not entry.is_directory]) == 10
    request(plane, 0, DeleteSnapshot(*place, "held"))
    request(plane, 0, Settle(f"freed in {volume}"))
    assert patiently(lambda: plane.scm(0).exist(blocks)) == [False] * 10
    space = patiently(lambda: plane.metadata(0).space(*place))
    assert (space.live_bytes, space.deleted_bytes, space.freed_bytes) == (0, 0, 10_000)


def patiently(ask: Callable[[], R]) -> R:
    """Ask a service again while its process is restarted."""
    deadline = time.monotonic() + ROUND_SECONDS
    while True:
        try:
            return ask()
        except UnreachableError:
            assert time.monotonic() < deadline
            time.sleep(0.1)


def patient_client(stack: Stack) -> KafkaPlane:
    """Return a client that waits while processes are restarted."""
    return KafkaPlane(stack.address, answer_seconds=ROUND_SECONDS)


class Writer:
    """Plays rounds, one after the other, by the client of this version, until it is stopped."""

    def __init__(self, stack: Stack) -> None:
        self._stack = stack
        self._changed = threading.Condition()
        self._is_stopping = False
        self._begun = self._ended = 0
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="writer")

    def __enter__(self) -> Writer:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_stopping = True
        self._thread.join()

    def await_round(self) -> None:
        """Wait until a round is over that has not begun yet."""
        with self._changed:
            wanted = self._begun + 1
            is_over = self._changed.wait_for(lambda: self._error or self._ended >= wanted, 2 * ROUND_SECONDS)
        if self._error is not None:
            raise self._error
        assert is_over, "no round comes to its end"

    def _run(self) -> None:
        try:
            with patient_client(self._stack) as plane:
                for number in count():
                    if self._is_stopping:
                        return
                    with self._changed:
                        self._begun += 1
                    one_round(plane, f"round-{number}")
                    with self._changed:
                        self._ended += 1
                        self._changed.notify_all()
        except BaseException as error:
            with self._changed:
                self._error = error
                self._changed.notify_all()


@pytest.fixture(params=VERSIONS)
def stack(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Stack]:
    """A plane of an earlier release, at the first feature level; each command on it is signed."""
    monkeypatch.setattr(topics, "first_commands", lambda *_: ())
    settings = environment(unpack_program(request.param, tmp_path / "earlier"))
    with Stack(tmp_path / "plane", settings=settings, is_secured=True) as started:
        yield started


def restart(stack: Stack, name: str, folder: Path | None) -> None:
    """Start a process again, of another version; None is the earlier release."""
    child = stack.children[name]
    child.ask_to_stop()
    child.stop()
    child.start({} if folder is None else environment(folder))
    child.await_ready(stack.require_running)


def run_later(later: Path, program: str, *arguments: str) -> None:
    """Run a program of the later version."""
    command = [sys.executable, "-c", program, *arguments]
    subprocess.run(command, env={**os.environ, **environment(later, ROOT)}, check=True, timeout=ROUND_SECONDS)


def restore_snapshots(stack: Stack) -> None:
    """Put the database of the service snapshots back to the backup, by this version, and start the earlier release."""
    child = stack.children["snapshots"]
    child.ask_to_stop()
    child.stop()
    shutil.rmtree(stack.home / "data" / "snapshots")
    backups = backups_directory(stack.home)
    restore_backup(stack.home, find_backup(backups), ["snapshots"])
    child.start()
    child.await_ready(stack.require_running)


def test_parts_are_upgraded_in_any_order_and_taken_back(stack: Stack, later: Path) -> None:
    """Of any two parts each is the first one once: up in one order, back, and up again in the reverse order.

    What the earlier release leaves is finished and freed by the later version, and the other way round. The database
    of snapshots from before the upgrade becomes current again by a changelog with rows of the later version.
    """
    with Writer(stack) as writer:
        writer.await_round()
        with pytest.raises(StackError, match=r"is not published.*run deepclean upgrade prepare"):
            restart(stack, "mock_scm", later)
        restart(stack, "mock_scm", None)
        make_backup(running_plane(stack.home), backups_directory(stack.home), has_digest=False)
        run_later(later, PREPARE, str(stack.home))
        of_earlier = RowsInBetween(stack, "of-earlier")
        for name in HTTP_PROCESSES:
            restart(stack, name, later)
            if name == METADATA:
                of_earlier.finish_claims()
            writer.await_round()
        of_later = RowsInBetween(stack, "of-later")
        for name in HTTP_PROCESSES:
            restart(stack, name, None)
            if name == METADATA:
                of_later.finish_claims()
        writer.await_round()
        restore_snapshots(stack)
        of_later.free()
        writer.await_round()
        for name in reversed(HTTP_PROCESSES):
            restart(stack, name, later)
            writer.await_round()
        of_earlier.free()
        run_later(later, LATER_CLIENT, str(stack.home), "later-client")
        writer.await_round()
    with stack.client() as plane:
        assert list(plane.snapshots(0).dead_letter_counts()) == []
        assert plane.scm(0).totals().inventory_bytes == 0
    verified = CliRunner().invoke(app, ["--home", str(stack.home), "verify"])
    assert not verified.exit_code, "this version replays the log, with the commands of the later one"
    assert "from the beginning of the log" in verified.output
