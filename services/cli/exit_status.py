"""With which status a command ends: what a script, or a timer, does next."""

from __future__ import annotations

from enum import IntEnum


class ExitStatus(IntEnum):
    """The exit status of every command. Its docstring says what happened; the reference of the docs has them."""

    DONE = 0
    """The command did what it says, or found nothing wrong."""
    FAILED = 1
    """The plane refused, the command failed, or a check found something: standard error, or the result, says what."""
    USAGE = 2
    """The words of the command are wrong: nothing was sent."""
    LOSS = 3
    """``audit`` and ``verify``: data is lost, or about to be."""
    DIFFERENCE = 4
    """``audit`` and ``verify``: figures or versions differ, and no data is lost."""
    UNREACHABLE = 5
    """No answer in time. A read can be repeated at once; look at what a write has done before you repeat it."""
    NOT_CONFIRMED = 6
    """What cannot be undone was not confirmed: nothing was done."""
