"""The wheel that this tree makes: it has the codec compiled, and all files that the packages read."""

from __future__ import annotations

import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from hatch_build import why_not_compiled
from tests.metric_catalogue import ROOT

PACKAGES = ("deepclean", "services", "streaming", "schemas")
FILES = ("pyproject.toml", "README.md", "LICENSE", "hatch_build.py")
USES_IT = """
import sys
import deepclean
from schemas import avro_binary, codec, compiled
from schemas.records import Settle
from services.plane.machine.jars import locked_jars
assert codec.codec(Settle).decode(codec.codec(Settle).encode(Settle("one"))) == Settle("one")
assert codec.released_versions("MetadataCommand") and locked_jars()
assert compiled.unused_modules() == ()
from importlib.metadata import entry_points
from importlib.resources import files
assert all((files(package) / "py.typed").is_file() for package in ("deepclean", "schemas", "services"))
(file_system,) = {entry.load() for entry in entry_points(group="fsspec.specs", name="deepclean")}
assert file_system.protocol == "deepclean"
print(avro_binary.__file__)
"""


@pytest.mark.long
@pytest.mark.timeout(180)
def test_a_wheel_has_the_codec_compiled_and_all_that_it_reads(tmp_path: Path) -> None:
    source, wheels, installed = tmp_path / "source", tmp_path / "wheels", tmp_path / "installed"
    source.mkdir()
    for name in PACKAGES:
        shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("*.so", "*.compiled", "__pycache__"))
    for name in FILES:
        shutil.copy(ROOT / name, source)
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "wheel", "--quiet", "--no-index", "--no-deps"]
    subprocess.run([*pip, "--no-build-isolation", "-w", wheels, source], check=True)
    (wheel,) = wheels.iterdir()
    with zipfile.ZipFile(wheel) as files:
        files.extractall(installed)
    used = subprocess.run(
        [sys.executable, "-P", "-c", f"import sys; sys.path.insert(0, {str(installed)!r}){USES_IT}"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert used.returncode == 0, used.stderr
    is_compiled = not why_not_compiled()
    assert Path(used.stdout.strip()).is_relative_to(installed)
    assert used.stdout.strip().endswith(".so") is is_compiled
    assert wheel.name.endswith("-none-any.whl") is not is_compiled
