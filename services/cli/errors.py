"""Print each error of a command as one line and exit with status 1."""

from __future__ import annotations

import errno
from typing import Any

import typer
from typer.core import TyperGroup

from schemas.credentials import CredentialsError
from services.cli.terminal import say
from services.client.errors import PlaneError, PlaneTimeoutError, UnreachableError
from services.domain.errors import DeepcleanError

SHOWN_LETTERS = 200
"""Most characters of a refused argument that are printed."""


def error_line(error: DeepcleanError) -> str:
    """Return the line that the terminal shows for an error: the plane's code and reason, or one sentence."""
    match error:
        case PlaneError():
            return f"{error.code}: {error}"
        case UnreachableError():
            return f"UNREACHABLE: {error}"
        case PlaneTimeoutError():
            return f"TIMEOUT: {error}"
        case _:
            return str(error)


class OneLineErrors(TyperGroup):
    """A group of commands whose errors are one line and exit status 1."""

    def invoke(self, ctx: Any) -> Any:
        """Run the command."""
        try:
            return super().invoke(ctx)
        except DeepcleanError as error:
            line = error_line(error)
            # A plane's answer contains user names, so it must stay one line. Other errors may consist of several lines.
            say(*([line] if isinstance(error, PlaneError) else line.split("\n")), err=True)
            raise typer.Exit(1) from error
        except CredentialsError as error:
            say(str(error), err=True)
            raise typer.Exit(1) from error
        except UnicodeError as error:  # a shell passes any bytes, but names on a plane are UTF-8
            say(f"{str(getattr(error, 'object', ''))[:SHOWN_LETTERS]} is not UTF-8", err=True)
            raise typer.Exit(1) from error
        except OverflowError as error:  # a number that does not fit into a message field
            say(str(error)[:SHOWN_LETTERS], err=True)
            raise typer.Exit(1) from error
        except OSError as error:
            if error.errno == errno.EPIPE:
                raise  # the reader has closed the pipe: typer ends the command
            say(f"{error.strerror or error}: {error.filename}" if error.filename else str(error), err=True)
            raise typer.Exit(1) from error
