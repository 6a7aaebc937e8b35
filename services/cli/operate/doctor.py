"""``deepclean doctor``: what is wrong with a plane now, and what to do about each."""

from __future__ import annotations

import typer

from services.cli.exit_status import ExitStatus
from services.cli.operate.status import SecondsOption
from services.cli.output import print_json
from services.cli.session import JsonOption, made_session
from services.cli.terminal import say
from services.page.troubles import Trouble, troubles
from services.plane.stack.plane_file import known_plane
from services.plane.upkeep.observed import observe_plane


def doctor(
    context: typer.Context,
    seconds: SecondsOption = 1.0,
    as_json: JsonOption = False,
) -> None:
    """Show what is wrong with the plane now, urgent things first, and what to do. Exit status 1 for urgent ones."""
    found = troubles(observe_plane(known_plane(made_session(context).home), seconds))
    if as_json:
        print_json(found)
    else:
        _print(found)
    if any(one.is_urgent for one in found):
        raise typer.Exit(ExitStatus.FAILED)


def _print(found: tuple[Trouble, ...]) -> None:
    if not any(one.is_urgent for one in found):
        say("Nothing is wrong.")
    for one in found:
        say(f"{'urgent' if one.is_urgent else 'to know'}: {one.what}", colour="red" if one.is_urgent else "yellow")
        say(f"  {one.action}")
        if one.command:
            say(f"  {one.command}")
