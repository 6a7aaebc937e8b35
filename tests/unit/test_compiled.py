"""A compiled module is taken only if it is of the source beside it; else the source is, and says so."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import schemas
from schemas.compiled import SUFFIX
from schemas.compiled import source_digest as digest_here

PROGRAM = """
from schemas.compiled import unused_modules
import schemas.avro_binary
from schemas import avro_binary
from schemas.codec import codec
from schemas.records import CountRow
assert codec(CountRow).decode(codec(CountRow).encode(CountRow(7))) == CountRow(7)
assert avro_binary is schemas.avro_binary
print(avro_binary.__file__, *unused_modules(), sep="\\n")
"""
GARBAGE = b"this is no library: whoever loads it fails"


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """The package as it is checked out, without anything compiled."""
    source = Path(schemas.__file__).parent
    shutil.copytree(source, tmp_path / "schemas", ignore=shutil.ignore_patterns("*.so", "*.compiled", "__pycache__"))
    return tmp_path / "schemas"


def imported(copy: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", PROGRAM], cwd=copy.parent, capture_output=True, text=True, timeout=60, check=False
    )


@pytest.mark.parametrize("compiled_of", ["of another source", None])
def test_a_module_that_was_compiled_of_another_source_is_not_used_and_reported(
    copy: Path, compiled_of: str | None
) -> None:
    (copy / f"avro_binary{SUFFIX}").write_bytes(GARBAGE)
    if compiled_of is not None:
        (copy / "avro_binary.compiled").write_text(compiled_of)
    file, reason = imported(copy).stdout.splitlines()
    assert file == str(copy / "avro_binary.py")
    assert reason.startswith("schemas/avro_binary.py has changed since it was compiled")
    assert "make setup" in reason


def test_a_module_that_was_compiled_of_this_source_is_used(copy: Path) -> None:
    """Here it cannot be loaded, which tells that it was what Python tried."""
    (copy / f"avro_binary{SUFFIX}").write_bytes(GARBAGE)
    (copy / "avro_binary.compiled").write_text(digest_here())
    assert "ImportError" in imported(copy).stderr
    with (copy / "avro_binary.py").open("a") as source:
        source.write("# changed\n")
    assert imported(copy).stdout.splitlines()[0] == str(copy / "avro_binary.py")


def test_without_anything_compiled_the_source_runs_and_nothing_is_said(copy: Path) -> None:
    assert imported(copy).stdout.splitlines() == [str(copy / "avro_binary.py")]
