"""What processes use, as the system tells: a process of the plane leads a session, and all it has started are in it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

_CPU_FIELDS = slice(11, 13)
_SESSION_FIELD = 3
"""Where /proc/<pid>/stat has these, counted from 0 behind the program's name."""
_BYTES_PER_KIBIBYTE = 1024


def session_cpu_seconds(session: int) -> float:
    """Processor time of a process that leads a session, with all others in it; 0 where the system does not tell."""
    ticks = sum(int(part) for _, fields in _stats() if _is_in(session, fields) for part in fields[_CPU_FIELDS])
    return ticks / os.sysconf("SC_CLK_TCK")


def session_peak_bytes(session: int) -> int:
    """The most memory that each process of a session had resident at any time, summed; 0 where it is not told."""
    return sum(_peak_bytes(process) for process, fields in _stats() if _is_in(session, fields))


def _is_in(session: int, fields: list[str]) -> bool:
    return int(fields[_SESSION_FIELD]) == session


def _peak_bytes(process: Path) -> int:
    try:
        status = (process / "status").read_text()
    except OSError:  # it has ended meanwhile
        return 0
    kibibytes = (line.split()[1] for line in status.splitlines() if line.startswith("VmHWM:"))
    return int(next(kibibytes, "0")) * _BYTES_PER_KIBIBYTE


def _stats() -> Iterator[tuple[Path, list[str]]]:
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            text = stat.read_text()
        except OSError:  # it has ended meanwhile
            continue
        yield stat.parent, text[text.rindex(")") + 2 :].split()
