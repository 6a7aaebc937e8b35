"""A shell in a directory that looks like a new checkout: what the reader of a document has before him."""

from __future__ import annotations

import contextlib
import os
import pty
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
HEARD_SECONDS = 10.0
"""After this time a command that still runs gets a second Ctrl-C."""
_OWN = {".deepclean", ".venv"}
"""Entries of a checkout that each session has for itself."""
_MADE = (".venv/.installed", ".venv/.compiled", ".deepclean/jars/.complete", ".deepclean/jars/.classes")
"""What ``make`` takes as made: the tests run with what is installed."""


@dataclass(frozen=True, slots=True)
class Ran:
    """What a command did."""

    status: int
    output: str
    errors: str


class Shell:
    """One shell for a whole session, so that a later command sees what an earlier one has exported."""

    def __init__(self, directory: Path, environment: dict[str, str], scratch: Path) -> None:
        self.directory = directory
        """Where it was started."""
        self.scratch = scratch
        """A place for files beside the session."""
        self._bash = subprocess.Popen(
            ["bash", "--noprofile", "--norc"],
            cwd=directory,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def run(self, command: str, answer: str = "") -> Ran:
        """Run a command as if it were typed. It gets nothing to read, or a terminal at which the answer was typed."""
        with _terminal(answer) if answer else contextlib.nullcontext(os.devnull) as read:
            return self._ran(f"eval {shlex.quote(command)} <{shlex.quote(read)}")

    def start(self, command: str) -> Started:
        """Start a command that runs until Ctrl-C."""
        # Under job control it has a process group of its own, and does not ignore Ctrl-C as background jobs do.
        output, errors = self.scratch / "started.output", self.scratch / "started.errors"
        for file in (output, errors):
            file.write_bytes(b"")  # whoever waits for a line finds none of an earlier command
        redirected = f"</dev/null >{shlex.quote(str(output))} 2>{shlex.quote(str(errors))}"
        process_id = self._asked(f"set -m\neval {shlex.quote(command)} {redirected} &\necho $!\nset +m")
        return Started(int(process_id), output, errors, self)

    def ended(self, started: Started) -> Ran:
        """Wait for the end of a command that was started and interrupted."""
        status = int(self._asked(f"wait {started.process_id}\necho $?"))
        return Ran(status, started.output.read_text("utf-8"), started.errors.read_text("utf-8"))

    def _ran(self, command: str) -> Ran:
        output, errors = self.scratch / "output", self.scratch / "errors"
        status = self._asked(f"{command} >{shlex.quote(str(output))} 2>{shlex.quote(str(errors))}\necho $?")
        return Ran(int(status), output.read_text("utf-8"), errors.read_text("utf-8"))

    def _asked(self, lines: str) -> str:
        """Have bash read lines that print one line, and return it."""
        assert self._bash.stdin
        assert self._bash.stdout
        self._bash.stdin.write(f"{lines}\n")
        self._bash.stdin.flush()
        return self._bash.stdout.readline()

    def close(self) -> None:
        """End the shell."""
        self._bash.communicate(timeout=60)


@dataclass(frozen=True, slots=True)
class Started:
    """A command that runs until Ctrl-C. ``output`` and ``errors`` are what it has printed so far."""

    process_id: int
    output: Path
    errors: Path
    _shell: Shell

    def interrupt(self) -> Ran:
        """Type Ctrl-C, and return what the command did."""
        with contextlib.suppress(ProcessLookupError):  # it has ended
            while True:  # a shell that is about to start a program may miss the first one
                os.killpg(self.process_id, signal.SIGINT)
                self._await_end(HEARD_SECONDS)
        return self._shell.ended(self)

    def _await_end(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            os.killpg(self.process_id, 0)
            time.sleep(0.02)


@contextlib.contextmanager
def _terminal(typed: str) -> Iterator[str]:
    """Yield the name of a terminal at which something was typed."""
    master, slave = pty.openpty()
    try:
        os.write(master, typed.encode())
        yield os.ttyname(slave)
    finally:
        os.close(slave)
        os.close(master)


@contextlib.contextmanager
def checkout(directory: Path) -> Iterator[Shell]:
    """Yield a shell in a directory that looks like this checkout after ``make setup``, and has a home of its own.

    ``deepclean up`` takes free ports, beside whatever runs here. A plane that is left running is stopped.
    """
    place = directory / "checkout"
    programs = place / ".venv" / "bin"
    programs.mkdir(parents=True)
    for entry in ROOT.iterdir():
        if entry.name not in _OWN:
            (place / entry.name).symlink_to(entry)
    (place / ".deepclean").mkdir()
    (place / ".deepclean" / "jars").symlink_to((ROOT / ".deepclean" / "jars").resolve())
    _program(programs / "python", f'{_python(ROOT)} "$@"')
    write_deepclean(programs / "deepclean", ROOT, "services.cli")
    make = subprocess.run(["which", "make"], capture_output=True, text=True, check=False).stdout.strip() or "make"
    _program(programs / "make", f'exec {make} {" ".join(f"-o {one}" for one in _MADE)} --silent "$@"')
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("DEEPCLEAN_", "MAKE"))}
    environment = {
        **kept,
        "DEEPCLEAN_HOME": str(place / ".deepclean"),
        "PATH": f"{programs}{os.pathsep}{kept['PATH']}",
        "TZ": "UTC",
        "TMPDIR": str(directory),
    }
    shell = Shell(place, environment, directory)
    try:
        yield shell
    finally:
        shell.run("deepclean down")
        shell.close()


def write_deepclean(program: Path, packages: Path, module: str) -> None:
    """Write a program ``deepclean`` that takes these packages, also in the processes that it starts."""
    free_ports = 'if [ "$1" = up ]; then set -- "$@" --base-port 0; fi'
    # As of an installed program, none of the directory in which it is called.
    _program(program, f'{free_ports}\nPYTHONSAFEPATH=1 {_python(packages)} -m {module} "$@"')


def _python(packages: Path) -> str:
    return f"PYTHONPATH={shlex.quote(str(packages))} exec {shlex.quote(sys.executable)}"


def _program(path: Path, text: str) -> None:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
