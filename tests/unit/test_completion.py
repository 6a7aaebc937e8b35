"""Completion, by the shell itself: commands, options, and the names that a running plane has."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import typer

from services.cli import session
from services.cli.arguments import bucket_candidates, snapshot_candidates
from tests.unit.test_command_line import CommandLine

PROGRAM = Path(sys.executable).parent / "deepclean"


def completed(*words: str) -> list[str]:
    """What bash offers for the last of some words."""
    script = f"""
        eval "$({PROGRAM} completion bash)"
        COMP_WORDS=({PROGRAM} {" ".join(f"'{word}'" for word in words)})
        COMP_CWORD={len(words)}
        _deepclean_completion {PROGRAM}
        printf '%s\\n' "${{COMPREPLY[@]}}"
    """
    return subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True).stdout.split()


@pytest.mark.long
@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
@pytest.mark.parametrize(
    ("words", "offered"),
    [
        (["sn"], ["snapshot"]),
        (["snapshot", "roll"], ["rollback"]),
        (["snapshot", "delete", "--d"], ["--dry-run"]),
        (["completion", "f"], ["fish"]),
        (["bucket", "create", "v/b", "--layout", "OB"], ["OBS", "OBJECT_STORE"]),
        (["snapshot", "delete", "vol"], []),
    ],
)
def test_bash_completes(words: list[str], offered: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("DEEPCLEAN_HOME", str(tmp_path))
    assert completed(*words) == offered


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_has_its_script(shell: str) -> None:
    script = subprocess.check_output([PROGRAM, "completion", shell], text=True)
    assert "_DEEPCLEAN_COMPLETE" in script
    if found := shutil.which(shell):
        subprocess.run([found, "-n"], input=script, text=True, check=True)


def test_names_of_the_running_plane_are_offered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    line = CommandLine(tmp_path, 1)
    for words in ("volume create vol1", "volume create other", "bucket create vol1/tree", "bucket create vol1/flat"):
        line.run(*words.split())
    for name in ("monday", "mo-later", "tuesday"):
        line.run("snapshot", "create", "vol1/tree", name)
    monkeypatch.setattr(session, "running_client", lambda _: line.client)
    context = typer.Context(typer.main.get_command(typer.Typer(callback=lambda: None)))
    context.params = {"home": tmp_path, "bucket": "vol1/tree"}
    assert bucket_candidates(context, "vo") == ["vol1/"]
    assert bucket_candidates(context, "vol1/t") == ["vol1/tree"]
    assert snapshot_candidates(context, "mo") == ["monday", "mo-later"]
    context.params = {"home": tmp_path, "bucket": "nothing"}
    assert snapshot_candidates(context, "mo") == []


def test_without_a_plane_nothing_is_offered(tmp_path: Path) -> None:
    context = typer.Context(typer.main.get_command(typer.Typer(callback=lambda: None)))
    context.params = {"home": tmp_path}
    assert bucket_candidates(context, "") == []
