"""A job that runs as a child: what is heard of it, and that it ends, with all that it has started."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from services.runtime.process.child_job import ChildJobError, run_child_job
from tests.waiting import eventually


def python(text: str) -> list[str]:
    return [sys.executable, "-c", text]


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_only_objects_are_heard(tmp_path: Path) -> None:
    heard: list[Mapping[str, Any]] = []
    text = """print('{"progress": 1}'); print('a library speaks'); print('7'); print('{"done": true}')"""
    run_child_job(python(text), tmp_path / "log", heard.append)
    assert heard == [{"progress": 1}, {"done": True}]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("import sys; sys.exit('it cannot be')", "ended with status 1; it said last: it cannot be"),
        ("import sys; sys.exit(3)", "ended with status 3; it said last: nothing"),
    ],
)
def test_a_failure_says_what_was_said_last(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(ChildJobError) as raised:
        run_child_job(python(text), tmp_path / "log", lambda _: None)
    assert str(raised.value) == said


ENDLESS = """
import json, os, subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
print(json.dumps({"pids": [os.getpid(), child.pid]}), flush=True)
time.sleep(600)
"""


def test_an_error_of_who_listens_ends_the_job_and_what_it_has_started(tmp_path: Path) -> None:
    pids: list[int] = []

    def on_line(line: Mapping[str, Any]) -> None:
        pids.extend(line["pids"])
        raise ValueError("a defect")

    with pytest.raises(ValueError, match="a defect"):
        run_child_job(python(ENDLESS), tmp_path / "log", on_line)
    assert len(pids) == 2
    eventually(lambda: not any(map(is_running, pids)))


@pytest.mark.parametrize("timeout_seconds", [None, 0.2])
def test_a_job_is_ended_early(tmp_path: Path, timeout_seconds: float | None) -> None:
    with pytest.raises(ChildJobError, match="ended with status -9; it said last: nothing"):
        run_child_job(
            python(ENDLESS),
            tmp_path / "log",
            lambda _: None,
            started=(lambda end: end()) if timeout_seconds is None else (lambda _: None),
            timeout_seconds=timeout_seconds,
        )


def test_its_standard_input_is_open_as_long_as_somebody_listens(tmp_path: Path) -> None:
    text = "import os, select; print(int(bool(select.select([0], [], [], 0)[0])) or '{}')"
    heard: list[Mapping[str, Any]] = []
    run_child_job(python(text), tmp_path / "log", heard.append, environment=dict(os.environ))
    assert heard == [{}]
