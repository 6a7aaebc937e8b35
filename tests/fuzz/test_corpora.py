"""Every input that is kept holds its target's promises, and each target fails when the product breaks one."""

from __future__ import annotations

import os
import subprocess
import sys
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import typer

from schemas import avro_binary
from schemas.codec import Codec
from services.cli.collection import space
from services.domain import table_keys
from services.runtime.http import reads
from services.snapshots.reads import queries as snapshots_queries
from tests.fuzz import __main__ as fuzz
from tests.fuzz import corpora, decoders
from tests.fuzz.sandbox import LeftOutError, Sandbox
from tests.fuzz.target import PromiseError, checksum, chosen
from tests.fuzz.targets import TARGETS

MAX_BYTES_PER_INPUT_BYTE = 500


def _play_all(name: str) -> None:
    play = TARGETS[name].prepare()
    for file in corpora.kept(name):
        try:
            play(file.read_bytes())
        except Exception as error:
            error.add_note(f"python -m tests.fuzz --play {file}")
            raise


@pytest.mark.parametrize("name", TARGETS)
def test_every_kept_input_holds_the_promises(name: str) -> None:
    _play_all(name)


@pytest.mark.parametrize("name", TARGETS)
def test_a_corpus_is_small_and_named_by_what_is_in_it(name: str) -> None:
    kept = corpora.kept(name)
    assert 1 <= len(kept) <= corpora.MOST_FILES
    for file in kept:
        assert file.name.removeprefix(corpora.FOUND) == corpora.file_name(file.read_bytes())
    assert sum(file.stat().st_size for one in TARGETS for file in corpora.kept(one)) <= corpora.MOST_BYTES


def test_kept_messages_take_no_more_memory_than_they_are() -> None:
    play = TARGETS["decoders"].prepare()
    inputs = [file.read_bytes() for file in corpora.kept("decoders")]
    for data in inputs:
        play(data)  # what is made once is made
    tracemalloc.start()
    try:
        for data in inputs:
            tracemalloc.reset_peak()
            before = tracemalloc.get_traced_memory()[0]
            play(data)
            assert tracemalloc.get_traced_memory()[1] - before < MAX_BYTES_PER_INPUT_BYTE * len(data) + 200_000
    finally:
        tracemalloc.stop()


def _raising(error: Exception) -> Callable[..., Any]:
    def broken(*_: Any, **__: Any) -> Any:
        raise error

    return broken


def _decode_as_twice(self: Codec[Any], body: bytes, start: int = 0) -> Any:
    record, _ = avro_binary.read_all(self._kind, body, start)  # what follows behind it is not looked at
    return record


DEFECTS: dict[str, tuple[str, Any, str, Any]] = {
    "decoders: another exception": ("decoders", Codec, "rewritten", _raising(KeyError("field"))),
    "decoders: what follows is ignored": ("decoders", Codec, "decode", _decode_as_twice),
    "stored rows: what follows is ignored": ("stored_rows", Codec, "decode", _decode_as_twice),
    "stored rows: an id loses its sign": ("stored_rows", table_keys, "_64_BITS", 2**63 - 1),
    "http: a failure": ("http_requests", snapshots_queries, "snapshot_chain", _raising(KeyError("row"))),
    "http: an undocumented status": ("http_requests", reads, "status_of", lambda code: 500),
    "command line: an exception": ("command_line", space, "parse_size", _raising(ZeroDivisionError())),
    "command line: another status": ("command_line", space, "parse_size", _raising(typer.Exit(7))),
    "a plane: an exception": ("commands_on_a_plane", space, "view_of", _raising(ZeroDivisionError())),
}


@pytest.mark.long
@pytest.mark.parametrize("defect", DEFECTS)
def test_a_planted_defect_is_found_by_what_is_kept(defect: str, monkeypatch: pytest.MonkeyPatch) -> None:
    name, owner, attribute, broken = DEFECTS[defect]
    assert hasattr(owner, attribute)
    _play_all(name)  # else a module that its first use imports keeps the defect for the tests that follow
    monkeypatch.setattr(owner, attribute, broken)
    with pytest.raises((PromiseError, KeyError, ZeroDivisionError)):
        _play_all(name)


def test_a_name_more_changes_what_few_inputs_mean() -> None:
    before = [chosen(decoders.NAMES, number) for number in range(0, 2**16, 64)]
    after = [chosen([*decoders.NAMES, "gc.another"], number) for number in range(0, 2**16, 64)]
    changed = {now for then, now in zip(before, after, strict=True) if then != now}
    assert changed <= {"gc.another"}
    assert {chosen(decoders.NAMES, checksum(name)) for name in decoders.NAMES} == set(decoders.NAMES)


def test_of_many_inputs_those_that_add_most_are_kept() -> None:
    control = "4\n0\na\nb\nc\nd\nSTARTED 0 5\nFT 0 1 2 3\nCOV 0 1\nFT 1 3 4\nFT 2 1 2\nFT 3 5\n"
    assert corpora.reaching_most(control, 2) == [Path("a"), Path("b")]
    assert corpora.reaching_most(control, 9) == [Path("a"), Path("b"), Path("d")]


def test_what_is_played_stays_in_its_place(tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    sandbox = Sandbox(tmp_path / "home")
    with sandbox.entered():
        Path("inside").write_text("text")
        assert Path("inside").read_text() == "text"
        for attempt in (
            lambda: Path("../outside").write_text("text"),
            lambda: Path("/dev/zero").read_bytes(),
            lambda: Path("../outside").mkdir(),
            lambda: Path("inside").rename("../outside"),
            lambda: subprocess.run(["true"], check=False),
        ):
            with pytest.raises(LeftOutError):
                attempt()
    Path(tmp_path / "outside").write_text("text")


def test_without_a_fuzzer_it_is_left_out(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(fuzz, "is_installed", lambda: False)
    assert fuzz.main([]) == 0
    assert capsys.readouterr().out == "left out: atheris is not installed (make fuzz does it)\n"


@pytest.mark.skipif(not fuzz.is_installed(), reason="no fuzzer is installed")
def test_a_fuzzer_finds_a_planted_defect(tmp_path: Path) -> None:
    """In a process of its own, since it ends with it."""
    root = str(Path(__file__).parents[2])
    planted = "import runpy, sys; from services.domain import table_keys; table_keys._64_BITS = 1; "
    play = "sys.argv = ['tests.fuzz.one_target', 'stored_rows', '-runs=100000', sys.argv[1]]; "
    run = subprocess.run(
        [sys.executable, "-c", f"{planted}{play}runpy.run_module('tests.fuzz.one_target', run_name='__main__')", "."],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": os.pathsep.join((root, os.environ.get("PYTHONPATH", "")))},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "PromiseError" in run.stdout + run.stderr
    assert list(tmp_path.glob("crash-*"))
