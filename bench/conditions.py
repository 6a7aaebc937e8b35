"""The settings that all measurements of a run share, and the ceilings measured so far."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from bench.figures import Figure
from bench.sizes import Sizes
from services.plane.machine.java import JavaRuntime, find_java


def _silent(what: str) -> None:
    """Ignore progress."""


class Closeable(Protocol):
    """A resource that runs until it is closed."""

    def close(self) -> None:
        """Stop the resource."""
        ...


@dataclass(slots=True)
class Conditions:
    """The settings of a run. Counts that are not in ``sizes`` follow from ``seconds``."""

    directory: Path
    """Scratch directory: each measurement makes a subdirectory."""
    seconds: float = 10.0
    """About how long each row measures."""
    sizes: Sizes = field(default_factory=Sizes)
    is_one_plane: bool = False
    """Share one plane also between rows that need separate planes: for runs whose figures do not count."""
    say: Callable[[str], None] = _silent
    """Called with a description of the current step."""
    ceilings: dict[str, float] = field(default_factory=dict)
    """Rates measured so far in this run."""
    plane: Closeable | None = None
    """The running plane, which rows share: its start (by ``shared_plane``) takes longer than many rows."""
    _java: JavaRuntime | None = None

    def count(self, per_second: int, at_least: int = 200, most_seconds: float = math.inf) -> int:
        """Return how many items to prepare at an expected rate, for at most ``most_seconds`` of work."""
        return max(at_least, int(per_second * min(self.seconds, most_seconds)))

    def scratch(self, name: str) -> Path:
        """Make and return a new directory."""
        directory = self.directory / name
        number = 1
        while directory.exists():
            number += 1
            directory = self.directory / f"{name}-{number}"
        directory.mkdir(parents=True)
        return directory

    def java(self) -> JavaRuntime:
        """Return the Java runtime of broker and Spark; it is looked up once."""
        if self._java is None:
            self._java = find_java()
        return self._java

    def close(self) -> None:
        """Stop the resources that rows share."""
        if self.plane is not None:
            self.plane.close()
            self.plane = None


@dataclass(frozen=True, slots=True)
class Benchmark:
    """One measurement, by name."""

    name: str
    measure: Callable[[Conditions], Sequence[Figure]]

    @property
    def summary(self) -> str:
        """Return the first line of the measurement's docstring."""
        return (self.measure.__doc__ or "").strip().partition("\n")[0]
