"""Print each error of a command as one line and exit with status 1."""

from __future__ import annotations

import errno
from typing import Any

import typer
from typer.core import TyperGroup

from schemas.credentials import CredentialsError
from services.cli.terminal import say
from services.client.errors import PlaneError, PlaneTimeoutError, UnreachableError
from services.domain.errors import DeepcleanError, RetryableError

_OURS = ("deepclean", "schemas", "services", "streaming")
SHOWN_LETTERS = 200
"""Most characters of a refused argument that are printed."""


def _lines(error: Exception) -> list[str]:
    """Return what the terminal shows of an error. A plane's answer contains user names, so it must stay one line."""
    text = str(error)
    match error:
        case PlaneError():
            return [f"{error.code}: {text}"]
        case UnreachableError():
            text = f"UNREACHABLE: {text}"
        case RetryableError():  # a service would try again; a command leaves that to its user
            text = f"UNREACHABLE: {text}; run the command again when the plane answers (deepclean status)"
        case PlaneTimeoutError():
            text = f"TIMEOUT: {text}"
        case UnicodeError():  # a shell passes any bytes, but names on a plane are UTF-8
            text = f"{str(getattr(error, 'object', ''))[:SHOWN_LETTERS]} is not UTF-8"
        case OverflowError():  # a number that does not fit into a message field
            text = text[:SHOWN_LETTERS]
        case ModuleNotFoundError():
            text = f"{error.name} is not installed, and this command needs it: pip install 'deepclean[plane]'"
        case OSError(filename=file) if file:
            text = f"{error.strerror or error}: {file}"
    return text.split("\n") if isinstance(error, DeepcleanError) else [text]


class OneLineErrors(TyperGroup):
    """A group of commands whose errors are one line and exit status 1."""

    def invoke(self, ctx: Any) -> Any:
        """Run the command."""
        try:
            return super().invoke(ctx)
        except (DeepcleanError, CredentialsError, UnicodeError, OverflowError, OSError, ModuleNotFoundError) as error:
            if isinstance(error, OSError) and error.errno == errno.EPIPE:
                raise  # the reader has closed the pipe: typer ends the command
            if isinstance(error, ModuleNotFoundError) and str(error.name).partition(".")[0] in _OURS:
                raise
            say(*_lines(error), err=True)
            raise typer.Exit(1) from error
