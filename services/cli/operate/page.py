"""``deepclean page``: serve the page of a plane in the foreground, with acts if they are allowed."""

from __future__ import annotations

import threading
import webbrowser
from typing import Annotated

import typer

from services.cli.output import print_result
from services.cli.session import JsonOption, made_session
from services.cli.terminal import say_aside
from services.page.server import serving_page
from services.plane.stack.plane_file import running_plane


def page(
    context: typer.Context,
    port: Annotated[int, typer.Option(min=0, max=65_535, help="Port of the page, on loopback. 0: a free one.")] = 0,
    may_act: Annotated[
        bool,
        typer.Option(
            "--allow-acts",
            help="Let the page delete snapshots, run retention, pause and resume, in the name of who starts it.",
        ),
    ] = False,
    is_opened: Annotated[bool, typer.Option("--open", help="Open the page in a browser.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Serve a page that shows the plane in a browser, until Ctrl-C.

    A plane that deepclean up has started has such a page already; that one is read-only.
    """
    if may_act and is_opened:
        raise typer.BadParameter(
            "the token of acts would stand in the browser's arguments, which other users of this machine can read: "
            "open the printed address by hand",
            param_hint="--open",
        )
    home = made_session(context).home
    running_plane(home)  # raises if none runs
    with serving_page(home, port, may_act=may_act) as served:
        found = {"home": home, "address": served.address, "may_act": may_act}
        print_result(found, f"The page of the plane on {home}: {served.address}", as_json=as_json)
        if may_act:
            say_aside("Whoever has this address may delete snapshots: do not pass it on.")
        if is_opened:
            webbrowser.open(served.address)
        try:
            threading.Event().wait()
        except KeyboardInterrupt:
            say_aside("The page is closed.")
