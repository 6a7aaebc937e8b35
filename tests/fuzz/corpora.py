"""The inputs that are kept in this tree: those that reach much of the code, and those that have found something."""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import sha256
from pathlib import Path

CORPUS = Path(__file__).parent / "corpus"
FOUND = "found-"
"""The names of inputs that have found something begin so: they are kept, whatever others reach."""
MOST_FILES = 100
MOST_BYTES = 300 * 1024
"""Of all targets together."""


def kept(target: str) -> list[Path]:
    """The inputs of a target."""
    return sorted((CORPUS / target).iterdir())


def file_name(data: bytes) -> str:
    """An input is named by what is in it."""
    return sha256(data).hexdigest()[:16]


def write(directory: Path, inputs: Iterable[bytes]) -> None:
    """Put inputs into a directory, which is made."""
    directory.mkdir(parents=True, exist_ok=True)
    for data in inputs:
        (directory / file_name(data)).write_bytes(data)


def reaching_most(control: str, most: int) -> list[Path]:
    """At most so many inputs that together reach nearly as much as so many can: always the one that adds most.

    ``control`` is what libFuzzer writes as it merges: how many inputs, how many of them are of the first directory,
    their names, and then for each in a line ``FT number features…`` what it reaches.
    """
    lines = control.splitlines()
    names = lines[2 : 2 + int(lines[0])]
    reached: dict[int, set[str]] = {}
    for line in lines[2 + len(names) :]:
        kind, number, *numbers = line.split()
        if kind == "FT":
            reached[int(number)] = set(numbers)
    found: list[Path] = []
    while reached and len(found) < most:
        best = max(reached, key=lambda number: len(reached[number]))
        taken = reached.pop(best)
        if not taken:
            break
        found.append(Path(names[best]))
        for features in reached.values():
            features.difference_update(taken)
    return found
