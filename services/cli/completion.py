"""``deepclean completion``: the script by which a shell completes commands, options, buckets and snapshots."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer
from typer.completion import get_completion_inspect_parameters, get_completion_script  # type: ignore[attr-defined]  # what --show-completion prints

from services.cli.output import print_json
from services.cli.session import JsonOption
from services.cli.terminal import say

PROGRAM = "deepclean"
ASKED_BY_SHELL = f"_{PROGRAM.upper()}_COMPLETE"
"""The variable by which a shell asks for completions in place of a command."""


def learn_shells() -> None:
    """Have typer know the shells that it can complete for; it does so by itself only with its own two options."""
    get_completion_inspect_parameters()


class Shell(StrEnum):
    """A shell that completes."""

    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"


def completion(
    shell: Annotated[Shell, typer.Argument(metavar="SHELL", help="bash, zsh or fish.")], as_json: JsonOption = False
) -> None:
    """Print the script that completes commands in a shell: eval "$(deepclean completion bash)"."""
    script = get_completion_script(prog_name=PROGRAM, complete_var=ASKED_BY_SHELL, shell=shell.value)
    if as_json:
        print_json({"shell": shell, "script": script})
    else:
        say(*script.splitlines())
