"""``deepclean up`` and ``deepclean down``: start and stop a plane in the background."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from services.cli.output import print_json, print_result
from services.cli.session import JsonOption, made_session
from services.cli.terminal import say
from services.plane.machine.errors import StackError, disk_error
from services.plane.stack.plane_file import PlaneFile, PlaneState, read_plane_file, remove_plane_file
from services.plane.stack.process_names import BROKER, PAGE, STREAMING
from services.plane.stack.supervisor import DEFAULT_BASE_PORT, run_plane

STOP_SECONDS = 120.0
PROCESS_STOP_SECONDS = 30.0
POLL_SECONDS = 0.2


def up(
    context: typer.Context,
    shards: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=1024,
            help="Number of shards; it can only grow. By default that of the home; 1 for a new home.",
        ),
    ] = None,
    config: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="deepclean.toml: what the plane is made of, and what of it runs on this host."
        ),
    ] = None,
    base_port: Annotated[
        int | None,
        typer.Option(
            min=0,
            max=65_000,
            help=f"First port, the broker's; those of /metrics follow. 0: free ports. By default {DEFAULT_BASE_PORT}.",
        ),
    ] = None,
    is_foreground: Annotated[
        bool, typer.Option("--foreground", help="Run in the foreground; Ctrl-C or SIGTERM stops the plane.")
    ] = False,
    is_secured: Annotated[
        bool,
        typer.Option(
            "--secure", help="Require authentication (TLS, passwords, rights, a token). Cannot be turned off later."
        ),
    ] = False,
    datanodes: Annotated[
        int | None,
        typer.Option(
            min=0,
            max=64,
            help="Number of datanodes, which keep the bytes of blocks. A new plane with 3 or more keeps 3 copies. "
            "It can only grow. By default that of the home; 0 for a new home: blocks have no bytes then.",
        ),
    ] = None,
    has_page: Annotated[
        bool, typer.Option("--page/--no-page", help="Start the page, too: on loopback, and read-only.")
    ] = True,
    as_json: JsonOption = False,
) -> None:
    """Start a plane in the background: broker, services, Spark. With an existing home it resumes its work.

    With --config it starts what the file says of this host.
    """
    home = made_session(context).home
    if is_foreground:
        raise typer.Exit(
            run_plane(home, config, shards, base_port, is_secured=is_secured, datanodes=datanodes, has_page=has_page)
        )
    log_file = home / "logs" / "plane.log"
    try:
        log_file.parent.mkdir(parents=True, exist_ok=True)
        with log_file.open("ab") as log:
            said_before = log.tell()
            supervisor = subprocess.Popen(
                [
                    *(sys.executable, "-m", "services.plane.stack.supervisor", str(home)),
                    *(() if shards is None else ("--shards", str(shards))),
                    *(() if config is None else ("--config", str(config.resolve()))),
                    *(() if base_port is None else ("--base-port", str(base_port))),
                    *(("--secure",) if is_secured else ()),
                    *(() if has_page else ("--no-page",)),
                    *(() if datanodes is None else ("--datanodes", str(datanodes))),
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
    except OSError as error:
        raise disk_error(log_file, error) from error
    try:
        plane = _await_running(home, supervisor)
    except KeyboardInterrupt:
        supervisor.terminate()
        supervisor.wait()
        raise
    if plane is None:
        with log_file.open("rb") as log:
            log.seek(said_before)
            raise StackError(log.read().decode(errors="replace").strip() or f"The plane ended: read {log_file}.")
    if as_json:
        print_json(plane)
        return
    for name, process in plane.processes.items():
        say(f"{name:<20} {process.url or plane.bootstrap_servers}")
    if PAGE in plane.processes:
        say(f"The page of the plane: {plane.processes[PAGE].url}/")
    say(f"The plane runs on {home}. deepclean status shows its state, deepclean down stops it.")


def _await_running(home: Path, supervisor: subprocess.Popen[bytes]) -> PlaneFile | None:
    """Return the plane when all its processes are ready; None if its supervisor has ended."""
    pause = threading.Event()
    console = Console(stderr=True)
    with console.status("starting") as shown:
        while supervisor.poll() is None:
            plane = read_plane_file(home)
            if plane is not None and plane.supervisor.pid == supervisor.pid:
                if plane.state is PlaneState.RUNNING:
                    return plane
                shown.update(f"starting: {', '.join(plane.processes) or BROKER}")
            pause.wait(POLL_SECONDS)
    return None


def down(context: typer.Context, as_json: JsonOption = False) -> None:
    """Stop the plane: Spark, the services, the broker. All data is kept."""
    home = made_session(context).home
    plane = read_plane_file(home)
    if plane is None:
        print_result({"home": home, "was_running": False}, f"No plane runs on {home}.", as_json=as_json)
        return
    if plane.is_up():
        plane.supervisor.send(signal.SIGTERM)
        if not plane.supervisor.await_end(STOP_SECONDS):
            raise StackError(
                f"The plane did not stop within {STOP_SECONDS:g} seconds: read {home / 'logs'}, then end process "
                f"{plane.supervisor.pid} and call deepclean down again."
            )
    _stop_left_behind(plane)
    remove_plane_file(home)
    print_result({"home": home, "was_running": True}, f"The plane on {home} is stopped.", as_json=as_json)


def _stop_left_behind(plane: PlaneFile) -> None:
    """Stop, in order, the processes that a killed supervisor has left running."""
    left = plane.left_behind()
    order = [STREAMING, *(name for name in left if name not in (STREAMING, BROKER)), BROKER]
    for name in order:
        process = left.get(name)
        if process is None:
            continue
        process.identity.send(signal.SIGTERM)
        if not process.identity.await_end(PROCESS_STOP_SECONDS):
            process.identity.send(signal.SIGKILL)
