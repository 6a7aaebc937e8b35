"""Compiles the codec of all messages with mypyc: in place (``python hatch_build.py``, as ``make setup`` does), and into
a wheel.

Without a C compiler or Python's headers the same module runs as plain Python, about half as fast, and a wheel is pure
Python.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

sys.path.insert(0, str(Path(__file__).parent))

from schemas.compiled import DIGEST, HERE, MODULE, SOURCE, SUFFIX, source_digest


class CompiledWheel(BuildHookInterface[Any]):
    """Hatchling calls it for every wheel. An editable install is compiled by ``make setup``, after each change."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile, and have the wheel say for which machine it is."""
        if version == "editable" or why_not_compiled():
            return
        compile_codec()
        build_data["pure_python"] = False
        build_data["infer_tag"] = True
        build_data["artifacts"] += ["schemas/*.so", "schemas/*.compiled"]


def why_not_compiled() -> str:
    """Return the missing prerequisites for compiling; empty if there are none."""
    compiler = (os.environ.get("CC") or sysconfig.get_config_var("CC") or "gcc").split()[0]
    if shutil.which(compiler) is None:
        return f"no C compiler ({compiler}); Debian: apt-get install gcc"
    if not (Path(sysconfig.get_paths()["include"]) / "Python.h").is_file():
        return "no Python.h; Debian: apt-get install python3-dev"
    return ""


def compile_codec() -> None:
    """Compile the codec in place.

    Raises:
        subprocess.CalledProcessError: mypyc or the C compiler failed; its output is printed.
    """
    with tempfile.TemporaryDirectory() as folder:
        package = Path(folder) / HERE.name
        package.mkdir()
        (package / "__init__.py").touch()  # not a copy, which would import schemas.compiled
        shutil.copy(SOURCE, package)
        command = [sys.executable, "-m", "mypyc", f"{HERE.name}/{SOURCE.name}"]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
        if done.returncode:
            sys.stderr.write(done.stdout + done.stderr)
            done.check_returncode()
        # The library first, then the module that loads it. Each is renamed into place: running processes have the old
        # file mapped, and would read bytes that are written over it.
        for file in sorted(package.glob(f"*{SUFFIX}"), key=lambda one: one.name, reverse=True):
            beside = HERE / f".{file.name}.new"
            shutil.copy(file, beside)
            beside.replace(HERE / file.name)
    DIGEST.write_text(source_digest())


if __name__ == "__main__":
    if missing := why_not_compiled():
        print(f"Not compiled, so about half as fast: {missing}, then make setup again")
        for stale in HERE.glob(f"{MODULE}*{SUFFIX}"):
            stale.unlink()
    else:
        compile_codec()
        print(f"Compiled schemas.{MODULE}")
