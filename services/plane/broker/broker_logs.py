"""What a broker has written about itself, and the error that follows from it: with the remedy for a known failure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from services.plane.machine.errors import DISK_FULL, FORBIDDEN, READ_ONLY, StackError
from services.plane.machine.processes import last_text

LAST_LINES_BYTES = 256 * 1024
IN_USE = "Another broker is running on {directory}: stop that one (deepclean down) or choose another directory."
_KNOWN_FAILURES = (
    (
        r"Address already in use|BindException",
        "Port {port} was taken while the broker started: stop the program that holds it, or choose another port.",
    ),
    (r"No space left on device|Disk quota exceeded", DISK_FULL),
    (r"Read-only file system", READ_ONLY),
    (r"Failed to acquire lock on file", IN_USE),
    (
        r"Could not reserve enough space|Cannot allocate memory|OutOfMemoryError",
        "There is not enough memory to start the broker: end other programs, or give it a smaller heap.",
    ),
    (r"AccessDeniedException|Permission denied", FORBIDDEN),
)


@dataclass(frozen=True, slots=True)
class BrokerLogs:
    """The logs in the directory of one broker."""

    directory: Path

    @property
    def log_file(self) -> Path:
        """The log that Kafka writes."""
        return self.directory / "broker.log"

    @property
    def output_file(self) -> Path:
        """The output of the JVM, which has what happened before Kafka could write a log."""
        return self.directory / "broker.out"

    def keep_previous(self) -> None:
        """Put the log of the previous start aside, so that the log describes one start only."""
        if self.log_file.is_file():
            self.log_file.replace(self.directory / "broker.previous.log")

    def last_lines(self) -> str:
        """Return the last lines of both logs."""
        return "\n".join(last_text(file, LAST_LINES_BYTES) for file in (self.log_file, self.output_file))

    def failure(self, what: str, port: int, printed: str) -> StackError:
        """Return the error for a failure: with the remedy if the printed text is known, else with the file to read."""
        for pattern, sentence in _KNOWN_FAILURES:
            if re.search(pattern, printed):
                return StackError(sentence.format(directory=self.directory, port=port))
        complaint = re.search(r"^.*\b(?:FATAL|ERROR|Exception|Error)\b.*$", printed, re.MULTILINE)
        said = f" ({complaint[0].strip()[:300]})" if complaint else ""
        where = self.log_file if self.log_file.is_file() else self.output_file
        return StackError(f"The broker {what}{said}: read {where}, mend what it names and start again.")
