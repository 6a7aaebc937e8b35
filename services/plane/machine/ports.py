"""Free ports on this machine for the plane's processes."""

from __future__ import annotations

import os
import random
import socket
from collections import deque

from services.plane.machine.errors import StackError

HOST = "127.0.0.1"
_LAST_PORT = 65_535
_SERVER_PORTS = range(15_000, 28_000)
"""Below the range of ports for outgoing connections, because such a connection could take a port that was just free."""

_MOST_HELD = 256
"""Far more than a plane has, and far fewer than the files that a process may have open."""

_held: deque[int] = deque()
"""File descriptors of the sockets that hold ports, oldest first."""


def free_ports(count: int) -> list[int]:
    """Return ``count`` different free ports, and hold them: no process is given one of them by this function again.

    Without that another plane, or another process of this one, would take a port whose server does not listen yet. A
    port is let go when this process ends, or has chosen very many others.
    """
    ports: list[int] = []
    for port in random.sample(_SERVER_PORTS, len(_SERVER_PORTS)):
        if len(ports) == count:
            return ports
        if _hold(port, is_shared=False) is None:
            ports.append(port)
    raise StackError(
        f"{count} ports from {_SERVER_PORTS[0]} to {_SERVER_PORTS[-1]} are wanted, and {len(ports)} are free on "
        f"{HOST}: stop a program that uses some of them."
    )


def hold_port(port: int) -> OSError | None:
    """Hold a port that was asked for, whoever else does; return the error for which no server can listen there now."""
    return _hold(port, is_shared=True)


def port_or_free(port: int) -> int:
    """Return a port on which a server can listen now: this one, else a free one."""
    if port <= _LAST_PORT and hold_port(port) is None:
        return port
    return free_ports(1)[0]


def _hold(port: int, *, is_shared: bool) -> OSError | None:
    """Hold a port by a socket that is bound to it and does not listen.

    A server can listen beside it if it allows its address to be reused, as all of ours do. What is not to be shared is
    bound without that, and then fails while another socket has the port, or a connection to it was closed just now.
    """
    with socket.socket() as holder:
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, is_shared)
        try:
            holder.bind((HOST, port))
        except OSError as error:
            return error
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, True)
        _held.append(holder.detach())
    if len(_held) > _MOST_HELD:
        os.close(_held.popleft())
    return None
