"""Open the log of the running plane for a sub-command."""

from __future__ import annotations

from services.cli.session import Session
from services.client.errors import UnreachableError
from services.client.kafka_plane import KafkaPlane
from services.log.kafka import KafkaLog
from services.log.port import DatedLog
from services.log.schema_topic import follow_schemas
from services.plane.in_memory.client import InMemoryClient
from services.plane.stack.secrets import administrator


def log_of(session: Session, client_id: str, *, is_whole: bool = False) -> DatedLog:
    """Return the log of the running plane; ``client_id`` names the reader to the broker.

    Clients may read only the topics for clients. The whole log also holds all users' commands and secrets. On a secured
    plane only the broker's administrator may read it, so ``is_whole`` uses the secrets in the home directory.

    Raises:
        UnreachableError: the plane has no readable log.
    """
    plane = session.connected()
    if isinstance(plane, InMemoryClient):
        return plane.plane.log
    if isinstance(plane, KafkaPlane):
        credentials = administrator(session.home) if is_whole else plane.address.credentials
        log = KafkaLog(plane.address.bootstrap_servers, client_id, credentials=credentials)
        follow_schemas(log)
        return log
    raise UnreachableError("this plane has no readable log: start a plane with a broker (deepclean up)")
