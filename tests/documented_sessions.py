"""The sessions in the documents, and how they are played: each command in its order, its output compared.

- A block of ``console`` has commands behind ``$``, and what they print. A block of ``bash`` has commands alone. A block
  with a title is a file that the reader saves.
- A line that is only ``…`` stands for any lines, and ``…`` within a line for anything in it. A time, duration, txn,
  objectID, UUID, long id, offset or port stands for any other, and a gap between columns for any gap.
- Standard error, such as progress, is shown behind the output or left out. A command ends with status 0, or prints the
  error that the document shows.
- A block behind ``<!-- not run: … -->`` is left out. The commands of one behind ``<!-- not compared: … -->`` are run,
  and may print something else. Such a comment says why.

Most pages are not one session from a new checkout on: a command makes sense on a plane with these keys, after a loss,
beside a collector of traces, and names files of the reader. ``tests/staged_pages`` has what is so around the blocks of
such a page, what stands in for the names, and what ends a command that runs until Ctrl-C.

``python -m tests.documented_sessions PAGE`` plays a page and prints what its commands really print.
"""

from __future__ import annotations

import re
import shlex
import sys
import tempfile
from collections.abc import Generator, Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from pathlib import Path

from tests.session_shell import ROOT, Ran, Shell, checkout
from tests.staged_pages import STAGED
from tests.stages import ALONE, Stage, Staging

DOCS = ROOT / "docs"
BY_THEMSELVES = (
    *sorted((DOCS / "tutorials").glob("*.md")),
    DOCS / "getting-started.md",
    DOCS / "lens.md",
    DOCS / "scale.md",
    DOCS / "security.md",
)
"""Pages that are played from a new checkout on."""
ON_A_PLANE = (ROOT / "README.md", DOCS / "concepts.md", DOCS / "audit.md")
"""Pages whose commands need the plane of the first session of ``getting-started.md``."""
ANYTHING = "…"
_FENCE = re.compile(r"^( *)```(\w*)(?: title=\"([^\"]+)\")?$")
_REMARK = re.compile(r"^ *<!-- not (run|compared): .+ -->$")
_HEADING = re.compile(r"^#+ (.+)$")
_BEHIND = re.compile(r"\s+# .*$")
"""What a reader does not type of a command: the remark behind it."""
_VARYING = (
    r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3}",
    r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d",
    r"\b\d+\.\d{3}s\b",
    r"\b[a-z]+\.[a-z-]+/\d+/\d+\b",
    r"\b(?:txn|objectID) \d+\b",
    r"\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b",
    r"\b[0-9a-f]{32}\b",
    r"\b\d{12,19}\b",
    r"\b127\.0\.0\.1:\d+\b",
)
"""What differs from run to run: one such value in a document stands for any of its kind."""


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block of a document."""

    line: int
    language: str
    title: str
    lines: tuple[str, ...]
    is_run: bool
    is_compared: bool
    heading: str
    """The one above it."""


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

    @property
    def name(self) -> str:
        """The command without the remark behind it."""
        return _BEHIND.sub("", self.text)


@dataclass(frozen=True, slots=True)
class Part:
    """What a reader does at one block. The place is the heading above; of a further block with its number."""

    place: str
    steps: tuple[Save | Command, ...]


class SessionError(AssertionError):
    """A document shows something else than what a command prints."""


def blocks(document: Path) -> list[Block]:
    """Return the fenced blocks of a document, also those in lists."""
    found: list[Block] = []
    lines = document.read_text("utf-8").splitlines()
    opened, start, heading = None, 0, ""
    for number, line in enumerate(lines):
        if opened is None:
            if titled := _HEADING.match(line):
                heading = titled[1]
            if opened := _FENCE.match(line):
                start = number
        elif line == f"{opened[1]}```":
            remark = _REMARK.match(lines[start - 1]) if start else None
            left_out = remark[1] if remark else ""
            inner = tuple(one.removeprefix(opened[1]) for one in lines[start + 1 : number])
            kinds = left_out != "run", left_out != "compared"
            found.append(Block(start + 1, opened[2], opened[3] or "", inner, *kinds, heading))
            opened = None
    return found


def parts(document: Path) -> list[Part]:
    """Return what a reader of a document does, block by block."""
    found: list[Part] = []
    below = dict[str, int]()
    for block in blocks(document):
        if done := tuple(_steps(block)):
            below[block.heading] = number = below.get(block.heading, 0) + 1
            found.append(Part(block.heading if number == 1 else f"{block.heading} {number}", done))
    return found


def steps(document: Path) -> list[Save | Command]:
    """Return what a reader of a document does, in its order."""
    return [step for part in parts(document) for step in part.steps]


def _steps(block: Block) -> Iterator[Save | Command]:
    if not block.is_run:
        return
    if block.title:
        yield Save(block.line, block.title, "".join(f"{line}\n" for line in block.lines))
    elif block.language == "console":
        yield from _typed(block)
    elif block.language == "bash":
        yield from _listed(block)


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


def play(document: Path, shell: Shell, staging: Staging = ALONE) -> int:
    """Do all that a document says, in the states that it needs; return the number of commands.

    Raises:
        SessionError: a command fails, or prints something else than the document shows.
    """
    count = 0
    with closing(played(document, shell, staging)) as session:
        for command, ran in session:
            check(document, command, ran)
            count += 1
    return count


def played(document: Path, shell: Shell, staging: Staging) -> Generator[tuple[Command, Ran]]:
    """Do all that a document says. Yield each command, with what stands in for names in it, and what it did.

    Raises:
        SessionError: the staging speaks of something that is not in the document.
    """
    if unknown := unknown_names(document, staging):
        raise SessionError(f"{document.name} has no {sorted(unknown)}")
    stage = Stage(shell, dict(staging.stand_ins))
    with staging.around(stage):
        for part in parts(document):
            with ExitStack() as states:
                if part.place in staging.blocks:
                    states.enter_context(staging.blocks[part.place](stage))
                for step in part.steps:
                    if isinstance(step, Save):
                        _save(replace(step, text=stage.here(step.text)), shell)
                        continue
                    stage.ran[step.name] = ran = _type(step, stage, staging)
                    yield _here(step, stage), ran
    if unused := set(stage.stand_ins) - stage.used:
        raise SessionError(f"{document.name} does not name {sorted(unused)}")


def unknown_names(document: Path, staging: Staging) -> set[str]:
    """Return the headings and commands of a staging that its document does not have."""
    found = parts(document)
    commands = {step.name for part in found for step in part.steps if isinstance(step, Command)}
    return (set(staging.blocks) - {part.place for part in found}) | ({*staging.endless, *staging.answered} - commands)


def _type(command: Command, stage: Stage, staging: Staging) -> Ran:
    text = stage.here(command.text)
    if command.name not in staging.endless:
        return stage.shell.run(text, staging.answered.get(command.name, ""))
    started = stage.shell.start(text)
    try:
        staging.endless[command.name](stage, started)
    finally:
        ran = started.interrupt()
    return ran


def _here(command: Command, stage: Stage) -> Command:
    shown = None if command.shown is None else tuple(map(stage.here, command.shown))
    return replace(command, text=stage.here(command.text), shown=shown)


def _save(step: Save, shell: Shell) -> None:
    saved = shell.run(f"cat > {shlex.quote(step.name)} << 'end of the file'\n{step.text}end of the file")
    assert saved.status == 0, saved.errors


def do(step: Save | Command, shell: Shell, document: Path) -> None:
    """Do one thing that a document says.

    Raises:
        SessionError: the command fails, or prints something else than the document shows.
    """
    if isinstance(step, Save):
        _save(step, shell)
    else:
        check(document, step, shell.run(step.text))


def main() -> None:
    """Play a page, and print what each of its commands prints."""
    page = Path(sys.argv[1]).absolute()
    with tempfile.TemporaryDirectory(prefix="deepclean-session-") as scratch, checkout(Path(scratch)) as shell:
        for command, ran in played(page, shell, STAGED.get(page, ALONE)):
            print(f"$ {command.text}\n{ran.output}{ran.errors}", end="", flush=True)
            try:
                check(page, command, ran)
            except SessionError:
                print(f"^^^ line {command.line} shows something else (status {ran.status})", flush=True)


if __name__ == "__main__":
    main()
