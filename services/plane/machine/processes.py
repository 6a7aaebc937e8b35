"""Child processes of the plane: start them with a log file each, wait until they are ready, and stop them.

A process is identified by its id and its start time, because another program may have got the same id since.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from pathlib import Path

import httpx

from services.plane.machine.errors import StackError, disk_error

LAST_LINES = 12
LAST_LINES_BYTES = 16 * 1024
POLL_SECONDS = 0.05
REASON_LETTERS = 300
_STARTED_FIELD = 22
"""Number of the field in /proc/<pid>/stat with the start time, counted from 1 as in proc(5)."""


@dataclass(frozen=True, slots=True)
class ProcessIdentity:
    """The identity of one process of this machine, different from later processes with the same id."""

    pid: int
    started: str

    def is_alive(self) -> bool:
        """Return whether this process still runs; a later process with the same id does not count."""
        return started_mark(self.pid) == self.started

    def send(self, number: signal.Signals) -> None:
        """Send the process a signal; do nothing if it has ended."""
        if self.is_alive():
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def await_end(self, seconds: float) -> bool:
        """Wait at most ``seconds`` until the process ends; return whether it has ended."""
        deadline = time.monotonic() + seconds
        pause = threading.Event()
        while (is_alive := self.is_alive()) and time.monotonic() <= deadline:
            pause.wait(POLL_SECONDS)
        return not is_alive


def identify(pid: int) -> ProcessIdentity:
    """Return the identity of the process that has this id now."""
    return ProcessIdentity(pid, started_mark(pid) or "")


def started_mark(pid: int) -> str | None:
    """Return the start time of a process as an opaque text, or None if the process has ended."""
    stat = Path(f"/proc/{pid}/stat")
    if stat.parent.parent.joinpath("self").exists():
        try:
            text = stat.read_text()
        except OSError:
            return None
        # The name of the program is in parentheses, but may itself contain blanks and parentheses.
        fields = text[text.rindex(")") + 2 :].split()
        state, started = fields[0], fields[_STARTED_FIELD - 3]
        return None if state in ("Z", "X") else started
    listed = subprocess.run(["ps", "-o", "lstart=,stat=", "-p", str(pid)], capture_output=True, text=True, check=False)
    words = listed.stdout.split()
    return None if not words or words[-1].startswith("Z") else " ".join(words[:-1])


@dataclass(eq=False)
class ChildProcess:
    """One child with its log file."""

    name: str
    command: Sequence[str]
    environment: Mapping[str, str] = field(repr=False)
    log_file: Path
    ready_url: str
    _: KW_ONLY
    answer_seconds: float = 90
    ready_seconds: float = 900
    stop_seconds: float = 30
    ready_headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    identity: ProcessIdentity | None = field(default=None, init=False)
    """The identity of the process; None before the start."""
    _process: subprocess.Popen[bytes] | None = field(default=None, init=False)
    _is_asked: bool = field(default=False, init=False)

    @property
    def is_running(self) -> bool:
        """Whether the child runs."""
        return self._process is not None and self._process.poll() is None

    @property
    def exit_status(self) -> int | None:
        """The exit status; None while the child runs and before the start."""
        return None if self._process is None else self._process.poll()

    def start(self, settings: Mapping[str, str] | None = None) -> None:
        """Start the child, with additional environment variables if given. Its output is appended to its log file."""
        try:
            self.log_file.parent.mkdir(parents=True, exist_ok=True)
            with self.log_file.open("ab") as log:
                self._process = subprocess.Popen(
                    self.command,
                    env={**self.environment, **(settings or {})},
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    # Ctrl-C in the terminal must not reach the children: the plane stops them in order.
                    start_new_session=True,
                )
        except OSError as error:
            raise disk_error(self.log_file, error) from error
        self.identity = identify(self._process.pid)
        self._is_asked = False

    def await_ready(self, check: Callable[[], None] = lambda: None) -> None:
        """Wait until the child reports that it is ready. Raise StackError if it ends or takes too long.

        The first answer must arrive within ``answer_seconds``. A child that answers has ``ready_seconds``, because it
        may have many messages to catch up with. ``check`` is called during the wait, and may raise to end it.
        """
        started = time.monotonic()
        limit_seconds, reason = self.answer_seconds, "it does not answer"
        pause = threading.Event()
        with httpx.Client(timeout=5.0, trust_env=False, headers=self.ready_headers) as http:
            while True:
                try:
                    answer = http.get(self.ready_url)
                    if answer.is_success:
                        return
                    limit_seconds, reason = self.ready_seconds, answer.text.strip()[:REASON_LETTERS]
                except httpx.HTTPError:
                    pass
                self.require_running()
                check()
                if time.monotonic() - started > limit_seconds:
                    raise StackError(
                        f"{self.name} was not ready within {limit_seconds:g} seconds ({reason}): read {self.log_file}, "
                        f"or start again when the machine is less busy.\n{self.last_lines()}"
                    )
                pause.wait(POLL_SECONDS)

    def require_running(self) -> None:
        """Raise StackError, with the last lines of the log, if the child has ended."""
        if not self.is_running:
            raise self.why_it_ended()

    def why_it_ended(self) -> StackError:
        """Return an error with the exit status and the last lines of the log."""
        return StackError(
            f"{self.name} ended with status {status_text(self.exit_status)}: read {self.log_file}, mend what it names "
            f"and start again.\n{self.last_lines()}"
        )

    def last_lines(self) -> str:
        """Return the last lines of the log."""
        lines = last_text(self.log_file, LAST_LINES_BYTES).splitlines()
        return "\n".join(f"  {line}" for line in lines[-LAST_LINES:])

    def ask_to_stop(self) -> None:
        """Send SIGTERM, once: a second SIGTERM could kill a process that ends and has already removed its handler."""
        if self._process is not None and self.is_running and not self._is_asked:
            self._is_asked = True
            self._process.terminate()

    def stop(self) -> int | None:
        """Ask the child to stop, wait, and kill it if it does not end; return its exit status."""
        if self._process is None:
            return None
        self.ask_to_stop()
        try:
            self._process.wait(self.stop_seconds)
        except subprocess.TimeoutExpired:
            self.kill()
        return self._process.returncode

    def kill(self) -> None:
        """Kill the child and all processes that it has started."""
        if self._process is not None and self.is_running:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()


def last_text(file: Path, size_bytes: int) -> str:
    """Return the end of a file as text, at most so many bytes of it; empty for a file that cannot be read."""
    with contextlib.suppress(OSError), file.open("rb") as opened:
        opened.seek(max(0, file.stat().st_size - size_bytes))
        return opened.read().decode(errors="replace")
    return ""


def status_text(status: int | None) -> str:
    """Return an exit status in words: the number, or the name of the signal that ended the process."""
    return str(status) if status is None or status >= 0 else signal.Signals(-status).name
