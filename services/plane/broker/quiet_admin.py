"""An admin client for a broker that may not answer yet: it reconnects quickly, and a refused connection is no news."""

from __future__ import annotations

import logging
from typing import Any

from confluent_kafka.admin import AdminClient

from schemas.credentials import KafkaCredentials

_silent = logging.getLogger("deepclean.broker.connections")
_silent.propagate = False
_silent.addHandler(logging.NullHandler())


def quiet_admin(bootstrap_servers: str, credentials: KafkaCredentials | None = None) -> AdminClient:
    """Return an admin client that reconnects quickly and does not log refused connections, normal during a start."""
    settings: dict[str, Any] = {
        **(credentials.client_settings() if credentials else {}),
        "bootstrap.servers": bootstrap_servers,
        "reconnect.backoff.ms": 50,
        "reconnect.backoff.max.ms": 100,
        "socket.connection.setup.timeout.ms": 2000,
    }
    return AdminClient(settings, logger=_silent)
