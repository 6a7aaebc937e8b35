"""Which plane a command runs on: one within this process, the running one, or one started for it alone."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from services.client.plane import Plane
from services.runtime.clock import SystemClock, VirtualClock


@contextmanager
def open_plane(*, in_memory: bool, is_running: bool, say: Callable[[str], None], shards: int = 1) -> Iterator[Plane]:
    """A plane for one command; one that was started for it is stopped afterwards, whatever happens."""
    if in_memory:
        from services.plane.in_memory import InMemoryPlane  # noqa: PLC0415 a real plane needs none of it
        from services.plane.in_memory_client import InMemoryClient  # noqa: PLC0415

        clock = VirtualClock(SystemClock().now_ms())
        yield InMemoryClient(InMemoryPlane(shards=shards, clock=clock))
        return
    from services.plane.stack import Stack, running_client  # noqa: PLC0415 a plane in memory needs none of it

    if is_running:
        client = running_client()
        try:
            yield client
        finally:
            client.close()
        return
    with tempfile.TemporaryDirectory(prefix="deepclean-") as directory:
        say("Starting a plane: broker, five services, Spark.")
        with Stack(Path(directory), shards=shards, is_rename_allowed=True) as stack:
            client = stack.client()
            try:
                yield client
            finally:
                client.close()
