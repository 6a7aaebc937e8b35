"""Free ports on this machine for the plane's processes."""

from __future__ import annotations

import contextlib
import random
import socket
from collections.abc import Iterator

from services.plane.machine.errors import StackError

HOST = "127.0.0.1"
_SERVER_PORTS = range(15_000, 32_000)
"""Below the range of ports for outgoing connections, because such a connection could take a port that was just free."""


def free_ports(count: int) -> list[int]:
    """Return ``count`` different free ports. All are opened at the same time, so that they differ."""
    with contextlib.ExitStack() as held:
        candidates = iter(random.sample(_SERVER_PORTS, len(_SERVER_PORTS)))
        return [_held_port(held.enter_context(socket.socket()), candidates) for _ in range(count)]


def _held_port(probe: socket.socket, candidates: Iterator[int]) -> int:
    for port in candidates:
        with contextlib.suppress(OSError):
            probe.bind((HOST, port))
            return port
    raise StackError(
        f"No port from {_SERVER_PORTS[0]} to {_SERVER_PORTS[-1]} is free on {HOST}: stop a program that uses one."
    )


def why_taken(port: int) -> OSError | None:
    """Return the error for which no server can listen on a port now; None if one can."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as Java does: closed connections do not block
        try:
            probe.bind((HOST, port))
        except OSError as error:
            return error
    return None
