"""Compiles the codec of all messages with mypyc: ``python -m schemas.compile``, as ``make setup`` does.

Without a C compiler or Python's headers the same modules run as plain Python, about half as fast.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

from schemas.compiled import HERE, MODULES, SUFFIX, source_digest, source_file_of_compiled


def why_not_compiled() -> str:
    """Return the missing prerequisites for compiling; empty if there are none."""
    compiler = (os.environ.get("CC") or sysconfig.get_config_var("CC") or "gcc").split()[0]
    if shutil.which(compiler) is None:
        return f"no C compiler ({compiler}); Debian: apt-get install gcc"
    if not (Path(sysconfig.get_paths()["include"]) / "Python.h").is_file():
        return "no Python.h; Debian: apt-get install python3-dev"
    return ""


def compile_module(module: str) -> None:
    """Compile one module in place.

    Raises:
        subprocess.CalledProcessError: mypyc or the C compiler failed; its output is printed.
    """
    with tempfile.TemporaryDirectory() as folder:
        package = Path(folder) / HERE.name
        package.mkdir()
        (package / "__init__.py").touch()  # not a copy, which would import schemas.compiled
        shutil.copy(HERE / f"{module}.py", package)
        command = [sys.executable, "-m", "mypyc", f"{HERE.name}/{module}.py"]
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
    source_file_of_compiled(module).write_text(source_digest(module))


def main() -> int:
    """Compile all modules; return 0, also when there is no compiler."""
    if missing := why_not_compiled():
        print(f"Not compiled, so about half as fast: {missing}, then make setup again")
        for module in MODULES:
            for file in HERE.glob(f"{module}*{SUFFIX}"):
                file.unlink()
        return 0
    for module in MODULES:
        compile_module(module)
        print(f"Compiled schemas.{module}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
