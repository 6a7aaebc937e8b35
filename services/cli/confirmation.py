"""Asks before a command does what cannot be undone, and says what a dry run would do."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from services.cli.errors import NotConfirmedError
from services.cli.terminal import printable

YesOption = Annotated[bool, typer.Option("--yes", help="Do not ask. Needed where no terminal can answer.")]
DryRunOption = Annotated[bool, typer.Option("--dry-run", help="Change nothing, only show what would be done.")]


def is_terminal() -> bool:
    """Return whether somebody can answer."""
    return sys.stdin.isatty()


def confirm(consequence: str, *, is_confirmed: bool) -> None:
    """Return if the user wants what a sentence says; at a terminal it is asked.

    Raises:
        NotConfirmedError: the answer is no, or nobody can be asked.
    """
    if is_confirmed:
        return
    consequence = consequence[:1].upper() + consequence[1:]
    if not is_terminal():
        raise NotConfirmedError(f"{consequence} This cannot be undone: add --yes to confirm.")
    try:
        is_wanted = typer.confirm(printable(f"{consequence} Continue?"), err=True)
    except typer.Abort:  # Ctrl-C, or the end of the input
        is_wanted = False
    if not is_wanted:
        raise NotConfirmedError("Nothing was done.")
