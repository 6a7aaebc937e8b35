"""The log of the plane that a command line means, read as it is."""

from __future__ import annotations

from services.cli.session import Session
from services.client.errors import UnreachableError
from services.client.kafka_plane import KafkaPlane
from services.log.kafka import KafkaLog
from services.log.port import Log
from services.plane.in_memory.client import InMemoryClient
from services.plane.stack.secrets import administrator


def log_of(session: Session, client_id: str, *, is_whole: bool = False) -> Log:
    """The log of a plane that runs; ``client_id`` is how the broker knows who reads.

    A client may read what is said to clients. The whole log holds everybody's commands, and what they sign with: on a
    secured plane the broker's administrator may read it, so it takes the home's secrets.
    """
    plane = session.connected()
    if isinstance(plane, InMemoryClient):
        return plane.plane.log
    if isinstance(plane, KafkaPlane):
        credentials = administrator(session.home) if is_whole else plane.address.credentials
        return KafkaLog(plane.address.bootstrap_servers, client_id, credentials=credentials)
    raise UnreachableError("this plane has no readable log: start a plane with a broker (deepclean up)")
