"""The sessions in the documents, and how they are played: each command in its order, its output compared.

- A block of ``console`` has commands behind ``$``, and what they print. A block of ``bash`` has commands alone. A block
  with a title is a file that the reader saves.
- A line that is only ``…`` stands for any lines, and ``…`` within a line for anything in it. A time, txn, objectID,
  UUID, long id or port stands for any other, and a gap between columns for any gap.
- Standard error, such as progress, is shown behind the output or left out. A command ends with status 0, or prints the
  error that the document shows.
- A block behind ``<!-- not run: … -->`` is left out. The commands of one behind ``<!-- not compared: … -->`` are run,
  and may print something else. Such a comment says why.

``python -m tests.documented_sessions PAGE`` plays a page and prints what its commands really print.
"""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
BY_THEMSELVES = (
    *sorted((DOCS / "tutorials").glob("*.md")),
    DOCS / "getting-started.md",
    DOCS / "lens.md",
    DOCS / "security.md",
)
"""Pages that are played from a new checkout on."""
ON_A_PLANE = (ROOT / "README.md", DOCS / "concepts.md", DOCS / "audit.md")
"""Pages whose commands need the plane of the first session of ``getting-started.md``."""
NOT_PLAYED = {
    "block-store.md": "its plane has three datanodes; tests/integration/test_datanodes.py plays the same",
    "clients.md": "its programs are run by tests/integration/test_plain_producer.py and test_foreign_consumers.py",
    "deploying.md": "it needs a Kafka cluster; tests/integration/test_topics_command.py has one",
    "ledger.md": "ids of objects differ from plane to plane; the tutorial of an own store lists and verifies",
    "lens-iceberg.md": "it names tables of the reader; the tutorial makes one",
    "lens-ozone.md": "it names a database of the reader; tests/integration/test_ozone_import.py imports one",
    "operations/recover.md": "each block follows a loss; tests/integration/test_recovery.py has the losses",
    "operations/run.md": "each block is for another state of a plane",
    "page.md": "its commands run until Ctrl-C; tests/browser opens the page",
    "performance.md": "it measures for most of an hour; make figures runs each row",
    "tables.md": "it needs catalogs of the reader; tests/integration/test_export_command.py exports",
    "tracing.md": "some of its commands run until Ctrl-C; tests/integration/test_trace.py has a collector",
    "upgrading.md": "it needs two releases; tests/upgrade upgrades",
}
"""Pages with commands that no test types in their order, and why; ``test_commands_exist`` reads them, too."""
ANYTHING = "…"
_FENCE = re.compile(r"^```(\w*)(?: title=\"([^\"]+)\")?$")
_REMARK = re.compile(r"^<!-- not (run|compared): .+ -->$")
_VARYING = (
    r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d",
    r"\b(?:txn|objectID) \d+\b",
    r"\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b",
    r"\b\d{12,19}\b",
    r"\b127\.0\.0\.1:\d+\b",
)
"""What differs from run to run: one such value in a document stands for any of its kind."""
_OWN = {".deepclean", ".venv"}
"""Entries of a checkout that each session has for itself."""
_MADE = (".venv/.installed", ".venv/.compiled", ".deepclean/jars/.complete", ".deepclean/jars/.classes")
"""What ``make`` takes as made: the tests run with what is installed."""


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block of a document."""

    line: int
    language: str
    title: str
    lines: tuple[str, ...]
    is_run: bool
    is_compared: bool


@dataclass(frozen=True, slots=True)
class Save:
    """The reader saves a file."""

    line: int
    name: str
    text: str


@dataclass(frozen=True, slots=True)
class Command:
    """The reader types a command. ``shown`` is the output in the document; None: it shows none."""

    line: int
    text: str
    shown: tuple[str, ...] | None


@dataclass(frozen=True, slots=True)
class Ran:
    """What a command did."""

    status: int
    output: str
    errors: str


class SessionError(AssertionError):
    """A document shows something else than what a command prints."""


def blocks(document: Path) -> list[Block]:
    """Return the fenced blocks of a document that begin at the start of a line."""
    found: list[Block] = []
    lines = document.read_text("utf-8").splitlines()
    opened, start = None, 0
    for number, line in enumerate(lines):
        if opened is None and (opened := _FENCE.match(line)):
            start = number
        elif opened is not None and line == "```":
            remark = _REMARK.match(lines[start - 1]) if start else None
            left_out = remark[1] if remark else ""
            inner = tuple(lines[start + 1 : number])
            found.append(Block(start + 1, opened[1], opened[2] or "", inner, left_out != "run", left_out != "compared"))
            opened = None
    return found


def steps(document: Path) -> list[Save | Command]:
    """Return what a reader of a document does, in its order."""
    found: list[Save | Command] = []
    for block in blocks(document):
        if not block.is_run:
            continue
        if block.title:
            found.append(Save(block.line, block.title, "".join(f"{line}\n" for line in block.lines)))
        elif block.language == "console":
            found += _typed(block)
        elif block.language == "bash":
            found += _listed(block)
    return found


def _typed(block: Block) -> Iterator[Command]:
    """The commands of a block with output."""
    lines = list(enumerate(block.lines, start=block.line + 1))
    while lines:
        number, line = lines.pop(0)
        if not line.startswith("$ "):
            raise SessionError(f"line {number}: this output follows no command")
        text = line.removeprefix("$ ")
        while text.endswith("\\") and lines:
            text += "\n" + lines.pop(0)[1]
        shown = []
        while lines and not lines[0][1].startswith("$ "):
            shown.append(lines.pop(0)[1])
        yield Command(number, text, tuple(shown) if block.is_compared else None)


def _listed(block: Block) -> Iterator[Command]:
    """The commands of a block without output."""
    text, start = "", 0
    for number, line in enumerate(block.lines, start=block.line + 1):
        if not text and (not line or line.startswith("#")):
            continue
        start = start if text else number
        text += line
        if text.endswith("\\"):
            text += "\n"
        else:
            yield Command(start, text, None)
            text = ""


def is_shown(shown: tuple[str, ...], printed: str) -> bool:
    """Return whether a document shows what a command printed."""
    pattern = ""
    for line in "\n".join(shown).rstrip().splitlines():
        if line.strip() == ANYTHING:
            pattern += r"(?:.*\n)*?"
        else:
            pattern += _pattern(line.rstrip()) + r" *\n"
    lines = "".join(f"{line}\n" for line in printed.rstrip("\n").split("\n")) if printed.strip() else ""
    return re.fullmatch(pattern, lines) is not None


def _pattern(line: str) -> str:
    """What one line of the document stands for."""
    wild = {re.escape(ANYTHING): ".*?", " +": " +", **{kind: kind for kind in _VARYING}}
    parts = re.split(f"({'|'.join(wild)})", line)
    return "".join(
        next((pattern for kind, pattern in wild.items() if number % 2 and re.fullmatch(kind, one)), re.escape(one))
        for number, one in enumerate(parts)
    )


def check(document: Path, command: Command, ran: Ran) -> None:
    """Fail if a document says something else than what its command did.

    Raises:
        SessionError: with the command, the lines of the document, and those of the command.
    """
    place = f"{document.name}, line {command.line}: {command.text}"
    if ran.status and not (command.shown and not ran.output and is_shown(command.shown, ran.errors)):
        raise SessionError(f"{place}\nstatus {ran.status}\n{ran.output}{ran.errors}")
    is_right = command.shown is None or any(
        is_shown(command.shown, printed) for printed in (ran.output, ran.output + ran.errors)
    )
    if not ran.status and not is_right:
        shown = "\n".join(command.shown or ())
        printed = f"--- the command prints\n{ran.output}{ran.errors}"
        raise SessionError(f"{place}\n--- the document shows\n{shown}\n{printed}")


class Shell:
    """One shell for a whole session, so that a later command sees what an earlier one has exported."""

    def __init__(self, directory: Path, environment: dict[str, str], scratch: Path) -> None:
        self._scratch = scratch
        self._bash = subprocess.Popen(
            ["bash", "--noprofile", "--norc"],
            cwd=directory,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def run(self, command: str) -> Ran:
        """Run a command as if it were typed; it gets nothing to read."""
        assert self._bash.stdin
        assert self._bash.stdout
        output, errors = self._scratch / "output", self._scratch / "errors"
        redirected = f"</dev/null >{shlex.quote(str(output))} 2>{shlex.quote(str(errors))}"
        self._bash.stdin.write(f"eval {shlex.quote(command)} {redirected}\necho $?\n")
        self._bash.stdin.flush()
        return Ran(int(self._bash.stdout.readline()), output.read_text("utf-8"), errors.read_text("utf-8"))

    def close(self) -> None:
        """End the shell."""
        self._bash.communicate(timeout=60)


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
    python = f"PYTHONPATH={shlex.quote(str(ROOT))} exec {shlex.quote(sys.executable)}"
    _program(programs / "python", f'{python} "$@"')
    free_ports = 'if [ "$1" = up ]; then set -- "$@" --base-port 0; fi'
    _program(programs / "deepclean", f'{free_ports}\n{python} -m services.cli "$@"')
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


def _program(path: Path, text: str) -> None:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


def play(document: Path, shell: Shell) -> int:
    """Do all that a document says; return the number of commands.

    Raises:
        SessionError: a command fails, or prints something else than the document shows.
    """
    return sum(do(step, shell, document) is not None for step in steps(document))


def do(step: Save | Command, shell: Shell, document: Path) -> Ran | None:
    """Do one thing that a document says; return what a command did.

    Raises:
        SessionError: the command fails, or prints something else than the document shows.
    """
    if isinstance(step, Save):
        saved = shell.run(f"cat > {shlex.quote(step.name)} << 'end of the file'\n{step.text}end of the file")
        assert saved.status == 0, saved.errors
        return None
    ran = shell.run(step.text)
    check(document, step, ran)
    return ran


def main() -> None:
    """Play a page, and print what each of its commands prints."""
    page = Path(sys.argv[1]).absolute()
    with tempfile.TemporaryDirectory(prefix="deepclean-session-") as scratch, checkout(Path(scratch)) as shell:
        for step in steps(page):
            if isinstance(step, Save):
                do(step, shell, page)
                continue
            ran = shell.run(step.text)
            print(f"$ {step.text}\n{ran.output}{ran.errors}", end="", flush=True)
            try:
                check(page, step, ran)
            except SessionError:
                print(f"^^^ line {step.line} shows something else (status {ran.status})", flush=True)


if __name__ == "__main__":
    main()
