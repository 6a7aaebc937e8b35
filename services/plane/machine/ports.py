"""Free ports on this machine for the plane's processes."""

from __future__ import annotations

import contextlib
import random
import socket
from collections.abc import Collection

from services.plane.machine.errors import StackError

HOST = "127.0.0.1"
_LAST_PORT = 65_535
_SERVER_PORTS = range(15_000, 28_000)
"""Below the range of ports for outgoing connections, because such a connection could take a port that was just free."""


def free_ports(count: int, among: range = _SERVER_PORTS) -> list[int]:
    """Return ``count`` different free ports. All are opened at the same time, so that they differ.

    Two calls may return the same port, unless they choose from ranges apart.
    """
    ports: list[int] = []
    with contextlib.ExitStack() as held:
        for port in random.sample(among, len(among)):
            with contextlib.suppress(OSError):
                held.enter_context(socket.socket()).bind((HOST, port))
                ports.append(port)
            if len(ports) == count:
                return ports
    raise StackError(
        f"{count} ports from {among[0]} to {among[-1]} are wanted, and {len(ports)} are free on {HOST}: stop a program "
        f"that uses some of them."
    )


def other_free_port(kept: Collection[int]) -> int:
    """Return a free port that is none of those ``kept``, whose servers may not listen yet."""
    return next(one for one in free_ports(len(kept) + 1) if one not in kept)


def port_or_free(port: int, kept: Collection[int]) -> int:
    """Return a port on which a server can listen now: this one, else a free one that is none of those ``kept``."""
    if port <= _LAST_PORT and port not in kept and why_taken(port) is None:
        return port
    return other_free_port(kept)


def why_taken(port: int) -> OSError | None:
    """Return the error for which no server can listen on a port now; None if one can."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as Java does: closed connections do not block
        try:
            probe.bind((HOST, port))
        except OSError as error:
            return error
    return None
