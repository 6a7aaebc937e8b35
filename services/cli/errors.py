"""Print each error of a command as one line, or with --json as an object, and exit with the status of its kind."""

from __future__ import annotations

import errno
import json

import typer

from schemas.credentials import CredentialsError
from services.cli.exit_status import ExitStatus
from services.cli.terminal import say
from services.client.errors import PlaneError, PlaneTimeoutError, UnreachableError
from services.domain.errors import DeepcleanError, RetryableError

_EXPECTED = (DeepcleanError, CredentialsError, UnicodeError, OverflowError, OSError, ModuleNotFoundError)
_OURS = ("deepclean", "schemas", "services", "streaming")
SHOWN_LETTERS = 200
"""Most characters of a refused argument that are printed."""


class NotConfirmedError(DeepcleanError):
    """What cannot be undone was not confirmed."""


def _code(error: Exception) -> str:
    """Return the code that stands before an error's text; empty for an error that needs none."""
    match error:
        case PlaneError():
            return error.code
        case UnreachableError() | RetryableError():
            return "UNREACHABLE"
        case PlaneTimeoutError():
            return "TIMEOUT"
    return ""


def _text(error: Exception) -> str:
    """Return what is said of an error."""
    match error:
        case RetryableError():  # a service would try again; a command leaves that to its user
            return f"{error}; run the command again when the plane answers (deepclean status)"
        case UnicodeError():  # a shell passes any bytes, but names on a plane are UTF-8
            return f"{str(getattr(error, 'object', ''))[:SHOWN_LETTERS]} is not UTF-8"
        case OverflowError():  # a number that does not fit into a message field
            return str(error)[:SHOWN_LETTERS]
        case ModuleNotFoundError():
            extra = "tracing" if str(error.name).startswith("opentelemetry") else "plane"
            return f"{error.name} is not installed, and this command needs it: pip install 'deepclean[{extra}]'"
        case OSError(filename=file) if file:
            return f"{error.strerror or error}: {file}"
    return str(error)


def _lines(error: Exception) -> list[str]:
    """Return what the terminal shows of an error. A plane's answer contains user names, so it must stay one line."""
    code, text = _code(error), _text(error)
    lines = text.split("\n") if isinstance(error, DeepcleanError) and not isinstance(error, PlaneError) else [text]
    return [f"{code}: {lines[0]}", *lines[1:]] if code else lines


def _status(error: Exception) -> ExitStatus:
    match error:
        case NotConfirmedError():
            return ExitStatus.NOT_CONFIRMED
        case UnreachableError() | RetryableError() | PlaneTimeoutError():
            return ExitStatus.UNREACHABLE
    return ExitStatus.FAILED


def _say_as_json(code: str, message: str, status: int) -> None:
    say(json.dumps({"error": {"code": code, "message": message, "exit_status": status}}), err=True)


def said(error: Exception, *, is_json: bool) -> int | None:
    """Print an error that the user of a command can do something about, and return the exit status.

    Return None and print nothing for a defect, a closed pipe, and a mistake of usage, which typer prints, without
    --json.
    """
    if isinstance(error, typer.TyperException):
        if not is_json:
            return None
        _say_as_json("USAGE", error.format_message(), error.exit_code)
        return error.exit_code
    if isinstance(error, OSError) and error.errno == errno.EPIPE:
        return None  # the reader has closed the pipe: typer ends the command
    if isinstance(error, ModuleNotFoundError) and str(error.name).partition(".")[0] in _OURS:
        return None
    if not isinstance(error, _EXPECTED):
        return None
    status = _status(error)
    if is_json:
        _say_as_json(_code(error) or status.name, _text(error), status)
    else:
        say(*_lines(error), err=True)
    return status
