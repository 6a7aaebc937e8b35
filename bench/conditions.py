"""What all measurements of a run share: how long, how much, where, and the ceilings that were measured already."""

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
    """Nobody looks on."""


class Closeable(Protocol):
    """Something that runs until it is closed."""

    def close(self) -> None:
        """Stop it."""
        ...


@dataclass(slots=True)
class Conditions:
    """The settings of a run. What has no size of its own follows from the seconds."""

    directory: Path
    """Scratch: each measurement makes a directory of its own in it."""
    seconds: float = 10.0
    """About how long each row measures."""
    sizes: Sizes = field(default_factory=Sizes)
    is_one_plane: bool = False
    """Have rows share a plane that should have one of their own: for runs whose figures do not count."""
    say: Callable[[str], None] = _silent
    """Told what is being done now."""
    ceilings: dict[str, float] = field(default_factory=dict)
    """Rates measured already in this run."""
    plane: Closeable | None = None
    """The plane that runs now: ``shared_plane`` starts it, since its start takes longer than many rows do."""
    _java: JavaRuntime | None = None

    def count(self, per_second: int, at_least: int = 200, most_seconds: float = math.inf) -> int:
        """How many of something to prepare that is expected to go at such a rate, for so long at most."""
        return max(at_least, int(per_second * min(self.seconds, most_seconds)))

    def scratch(self, name: str) -> Path:
        """A new directory."""
        directory = self.directory / name
        number = 1
        while directory.exists():
            number += 1
            directory = self.directory / f"{name}-{number}"
        directory.mkdir(parents=True)
        return directory

    def java(self) -> JavaRuntime:
        """The Java that broker and Spark run on, looked for once."""
        if self._java is None:
            self._java = find_java()
        return self._java

    def close(self) -> None:
        """Stop what rows share."""
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
        """What is measured, in the first line of its docstring."""
        return (self.measure.__doc__ or "").strip().partition("\n")[0]
