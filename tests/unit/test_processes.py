"""Child processes: known by more than their id, awaited until they are ready, reported with what they said last."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from services.plane.machine.errors import StackError
from services.plane.machine.ports import free_ports
from services.plane.machine.processes import ChildProcess, ProcessIdentity, identify, started_mark
from services.plane.machine.signals import stopping_on_signals
from services.plane.stack.plane_file import (
    PlaneFile,
    PlaneProcess,
    PlaneState,
    read_plane_file,
    remove_plane_file,
    running_plane,
    write_plane_file,
)

SERVER = """
import http.server, sys
class Answer(http.server.BaseHTTPRequestHandler):
    asked = 0
    def do_GET(self):
        Answer.asked += 1
        self.send_response(200 if Answer.asked > int(sys.argv[2]) else 503)
        self.end_headers()
        self.wfile.write(b"far behind")
http.server.HTTPServer(("127.0.0.1", int(sys.argv[1])), Answer).serve_forever()
"""


def child(tmp_path: Path, program: str, *arguments: str, port: int = 1, **options: Any) -> ChildProcess:
    command = [sys.executable, "-c", program, *arguments]
    return ChildProcess("example", command, os.environ, tmp_path / "example.log", f"http://127.0.0.1:{port}", **options)


@pytest.fixture
def free_port() -> int:
    return free_ports(1)[0]


def test_a_process_is_known_by_when_it_started() -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        identity = identify(process.pid)
        assert identity.is_alive()
        assert not ProcessIdentity(process.pid, "an earlier time").is_alive()
        ProcessIdentity(process.pid, "an earlier time").send(signal.SIGKILL)
        assert identity.is_alive()
        assert not identity.await_end(0.05)
        identity.send(signal.SIGKILL)
        assert identity.await_end(10), "one that has ended counts as gone, though its parent has not yet asked for it"
    assert started_mark(process.pid) is None
    identity.send(signal.SIGKILL)


def test_a_child_is_awaited_until_it_is_ready_and_then_stopped(tmp_path: Path, free_port: int) -> None:
    started = child(tmp_path, SERVER, str(free_port), "2", port=free_port)
    started.start()
    try:
        assert started.identity == identify(started.identity.pid if started.identity else 0)
        started.await_ready()
        started.require_running()
    finally:
        assert started.stop() == -signal.SIGTERM
    assert not started.is_running


def test_a_child_that_never_gets_ready_says_why(tmp_path: Path, free_port: int) -> None:
    started = child(tmp_path, SERVER, str(free_port), "1000", port=free_port, ready_seconds=0.3)
    started.start()
    try:
        with pytest.raises(StackError, match=r"example was not ready within 0.3 seconds \(far behind\): read"):
            started.await_ready()
    finally:
        started.kill()


def test_a_child_that_never_answers_is_given_less_time(tmp_path: Path) -> None:
    started = child(tmp_path, "import signal; signal.pause()", answer_seconds=0.2)
    started.start()
    try:
        with pytest.raises(StackError, match=r"not ready within 0.2 seconds \(it does not answer\)"):
            started.await_ready()
    finally:
        started.kill()


def test_a_child_that_ends_is_reported_with_its_last_lines(tmp_path: Path) -> None:
    program = "import sys; [print('line', number) for number in range(50)]; sys.exit('no disk, free some space')"
    started = child(tmp_path, program)
    started.start()
    with pytest.raises(StackError) as caught:
        started.await_ready()
    first, *rest = str(caught.value).splitlines()
    assert first == (
        f"example ended with status 1: read {tmp_path / 'example.log'}, mend what it names and start again."
    )
    assert len(rest) == 12
    assert "no disk, free some space" in str(caught.value)
    assert started.stop() == 1


def test_a_child_that_does_not_listen_is_ended(tmp_path: Path) -> None:
    started = ChildProcess(
        "example", ["sh", "-c", "trap '' TERM; echo up; sleep 60"], os.environ, tmp_path / "log", "", stop_seconds=0.2
    )
    started.start()
    deadline = time.monotonic() + 10
    while "up" not in (tmp_path / "log").read_text():
        assert time.monotonic() < deadline
    assert started.stop() == -signal.SIGKILL


def test_what_is_written_down_about_a_plane_is_read_again(tmp_path: Path) -> None:
    assert read_plane_file(tmp_path) is None
    ourselves, nobody = identify(os.getpid()), ProcessIdentity(os.getpid(), "an earlier time")
    processes = {
        "metadata": PlaneProcess(ourselves, "http://127.0.0.1:1", "metadata.log"),
        "snapshots": PlaneProcess(nobody, "http://127.0.0.1:2", "snapshots.log"),
    }
    plane = PlaneFile(PlaneState.RUNNING, str(tmp_path), 2, ourselves, "127.0.0.1:9", processes)
    write_plane_file(tmp_path, plane)
    assert read_plane_file(tmp_path) == plane
    assert running_plane(tmp_path).is_up()
    assert plane.left_behind() == {}
    abandoned = PlaneFile(PlaneState.RUNNING, str(tmp_path), 2, nobody, "127.0.0.1:9", processes)
    assert list(abandoned.left_behind()) == ["metadata"]
    write_plane_file(tmp_path, abandoned)
    with pytest.raises(StackError, match="No plane runs on"):
        running_plane(tmp_path)
    remove_plane_file(tmp_path)
    assert read_plane_file(tmp_path) is None


def test_a_plane_that_is_not_ready_yet_is_no_running_one(tmp_path: Path) -> None:
    write_plane_file(tmp_path, PlaneFile(PlaneState.STARTING, str(tmp_path), 1, identify(os.getpid())))
    with pytest.raises(StackError, match="is starting: try again when it runs"):
        running_plane(tmp_path)


def test_a_file_that_is_not_ours_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "plane.json").write_text("{}")
    with pytest.raises(StackError, match="is not one that this version has written"):
        read_plane_file(tmp_path)


def test_a_signal_ends_a_block_and_a_second_one_does_not_disturb_the_clean_up() -> None:
    handlers = signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)
    cleaned_up = []

    def stopped_twice() -> None:
        with stopping_on_signals():
            try:
                signal.raise_signal(signal.SIGTERM)
            finally:
                signal.raise_signal(signal.SIGTERM)
                signal.raise_signal(signal.SIGINT)
                cleaned_up.append(True)

    with pytest.raises(KeyboardInterrupt):
        stopped_twice()
    assert cleaned_up
    assert (signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)) == handlers
