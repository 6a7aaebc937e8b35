"""Print to the terminal line by line, without control characters. Commands print text only through this module.

Names and reasons are free text of users. A control character in them could hide or forge a line.
"""

from __future__ import annotations

from collections.abc import Callable

import typer


def printable(text: str) -> str:
    """Return user text for one terminal line: unprintable characters, including line breaks, become escapes."""
    return with_escapes(text, lambda letter: letter.encode("unicode_escape").decode())


def with_escapes(text: str, escape: Callable[[str], str]) -> str:
    """Return the text with each unprintable character replaced by the result of ``escape``."""
    return text if text.isprintable() else "".join(one if one.isprintable() else escape(one) for one in text)


def say_aside(*lines: str) -> None:
    """Print steps on standard error, where they do not mix with a result that a program reads."""
    say(*lines, err=True)


def say(*lines: str, err: bool = False, colour: str | None = None) -> None:
    """Print each text as one line; unprintable characters, including line breaks, become escapes."""
    for line in lines:
        typer.secho(printable(line), err=err, fg=colour)
