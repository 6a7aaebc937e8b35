"""Open the plane of a workload: in memory, the running plane of the home, or a plane started for one command."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import typer

from services.cli.session import Session
from services.client.plane import Plane
from services.log.clock import SystemClock, VirtualClock


@contextmanager
def open_plane(
    session: Session, *, in_memory: bool, is_running: bool, say: Callable[[str], None], shards: int | None = None
) -> Iterator[Plane]:
    """Open a plane for one command. A plane that was started for the command is always stopped afterwards."""
    if in_memory and is_running:
        raise typer.BadParameter(
            "a plane in memory is not the one that runs: give one of the two", param_hint="--plane"
        )
    if is_running and shards is not None:
        raise typer.BadParameter("a plane that runs has its shards: leave --shards out", param_hint="--shards")
    if in_memory:
        from services.plane.in_memory.client import InMemoryClient  # noqa: PLC0415
        from services.plane.in_memory.plane import InMemoryPlane  # noqa: PLC0415 not needed for a real plane

        clock = VirtualClock(SystemClock().now_ms())
        yield InMemoryClient(InMemoryPlane(shards=shards or 1, clock=clock))
        return
    if is_running:
        try:
            yield session.connected()
        finally:
            session.close()
        return
    from services.plane.stack.stack import Stack  # noqa: PLC0415 not needed for a plane in memory

    with tempfile.TemporaryDirectory(prefix="deepclean-") as directory:
        say("Starting a plane: broker, five services, Spark.")
        with Stack(Path(directory), shards=shards or 1, is_rename_allowed=True) as stack:
            client = stack.client()
            try:
                yield client
            finally:
                client.close()
