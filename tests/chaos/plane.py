"""What chaos runs know of a plane: its processes by name, each on a host, and the brokers between them.

A process that several hosts run has a name for each of them, ``metadata@one`` and ``metadata@two``; a fault that is
drawn for ``metadata`` strikes one of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

from services.client.kafka_plane import PlaneAddress
from services.plane.broker.embedded import EmbeddedBroker
from services.plane.machine.processes import ChildProcess
from tests.chaos.links import Links

AT = "@"


class ChaosPlane(Protocol):
    """A plane as chaos runs see it."""

    @property
    def home(self) -> Path:
        """Where audits are kept."""

    @property
    def shards(self) -> int:
        """Their number."""

    @property
    def address(self) -> PlaneAddress:
        """Where clients reach the plane."""

    @property
    def broker(self) -> EmbeddedBroker:
        """The broker, or a cluster of them."""

    @property
    def links(self) -> Links:
        """The ways between its processes and the brokers."""

    @property
    def children(self) -> Mapping[str, ChildProcess]:
        """The processes by name, without the broker."""


def program_of(name: str) -> str:
    """Return what a process runs, wherever it is."""
    return name.partition(AT)[0]


def home_of(child: ChildProcess) -> Path:
    """Return the home of the host that a process belongs to."""
    return child.log_file.parent.parent
