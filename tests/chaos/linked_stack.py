"""A plane each of whose processes has a way of its own to the broker, which can be cut."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from services.plane.broker.embedded import EmbeddedBroker
from services.plane.machine.java import JavaRuntime
from services.plane.machine.ports import HOST, free_ports
from services.plane.machine.processes import ChildProcess
from services.plane.stack.process_names import HTTP_PROCESSES
from services.plane.stack.stack import Stack
from tests.broker_cluster import ClusterNode
from tests.chaos.links import Link, Links
from tests.chaos.plane import AT

READY_SECONDS = 180.0
"""For a broker that starts while all others try again and again to reach it, on a busy machine."""


class ManyDoorsBroker(EmbeddedBroker):
    """A broker with one more listener for each of some names, which tells who comes by it to come by a link."""

    doors: Mapping[str, Link] = {}
    """By name; set before it is started."""

    def _properties(self) -> str:
        doors = {listener_of(name): link for name, link in self.doors.items()}
        added = {
            "listeners": [f"{name}://{HOST}:{link.broker_port}" for name, link in doors.items()],
            "advertised.listeners": [f"{name}://{HOST}:{link.port}" for name, link in doors.items()],
            "listener.security.protocol.map": [f"{name}:PLAINTEXT" for name in doors],
        }
        text = super()._properties()
        for setting, values in added.items():
            text, count = re.subn(rf"^{re.escape(setting)}=.*$", rf"\g<0>,{','.join(values)}", text, flags=re.MULTILINE)
            assert count == 1, f"the configuration has {count} lines for {setting}"
        return text


class ManyDoorsNode(ManyDoorsBroker, ClusterNode):
    """Such a broker as a node of a cluster."""


def listener_of(name: str) -> str:
    """Return the name of a process's listener: letters, digits and underscores."""
    return name.upper().replace(AT, "_ON_")


def some_links(brokers: int, names: Sequence[str]) -> list[dict[str, Link]]:
    """Return for each broker a new way for each process."""
    ports = iter(free_ports(2 * brokers * len(names)))
    return [{name: Link(next(ports), next(ports)) for name in names} for _ in range(brokers)]


class LinkedStack(Stack):
    """The plane of chaos runs, on one broker."""

    def __init__(self, home: Path, shards: int, **settings: Any) -> None:
        super().__init__(home, shards, **settings)
        (self._doors,) = doors = some_links(1, HTTP_PROCESSES)
        self.links = Links(doors)

    def __enter__(self) -> Self:
        self.links.__enter__()
        try:
            return super().__enter__()
        except BaseException:
            self.links.__exit__()
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            super().__exit__(kind, error, trace)
        finally:
            self.links.__exit__()

    def start_twin(self, name: str, directory: Path) -> ChildProcess:
        """Start a second process of a service for the same shards, over another directory."""
        twin = self._child(name)
        twin.start({"DEEPCLEAN_DIRECTORY": str(directory), "DEEPCLEAN_HTTP_PORT": "0"})
        return twin

    def _new_broker(self, port: int, java: JavaRuntime) -> EmbeddedBroker:
        broker = ManyDoorsBroker(self.home / "broker", port=port, java=java, ready_seconds=READY_SECONDS)
        broker.doors = self._doors
        return broker

    def _servers_of(self, name: str) -> str:
        return self.links.address(name)
