"""Where the processes of a plane answer, also those of other hosts.

Where hosts share the shards, the owner of a shard is found in the topic of owners; else by the plane's description.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from schemas.credentials import CredentialsError
from services.client.kafka_plane import KafkaPlane
from services.domain.errors import DeepcleanError
from services.plane.machine.errors import StackError
from services.plane.stack.plane_file import PlaneFile
from services.plane.stack.process_names import SERVICES
from services.plane.stack.stack import running_client
from services.plane.upkeep.status import Scrape

STEPPED = "deepclean_last_step_timestamp_seconds"
"""A process reports it for each shard that it owns; 0 before its loop has gone round."""
SILENCE_SECONDS = 60.0


def urls_here(plane: PlaneFile) -> dict[str, str]:
    """Return the base URL of each process of this host that has one."""
    return {name: process.url for name, process in plane.processes.items() if process.url}


def urls_of(plane: PlaneFile) -> dict[str, str]:
    """Return the base URL of each process of a plane that has one, those on other hosts included."""
    return plane.elsewhere | urls_here(plane)


def url_of(plane: PlaneFile, process: str) -> str:
    """Return the base URL of a process. Raise StackError if this host does not know it."""
    if url := urls_of(plane).get(process):
        return url
    raise StackError(f"Where {process} runs is not known here: name it under [elsewhere].")


def owner_urls(plane: PlaneFile) -> dict[tuple[str, int], str]:
    """As ``known_owners``. Raise StackError if this host does not know where a service runs."""
    if not plane.has_moving_shards:
        for service in SERVICES:
            url_of(plane, service)
    return known_owners(plane)


def known_owners(plane: PlaneFile) -> dict[tuple[str, int], str]:
    """Return for each service and shard where the process answers that runs it, as far as this host knows it."""
    if plane.has_moving_shards:
        with running_client(Path(plane.home)) as client:
            return client.owner_urls(SERVICES, plane.shards)
    urls = urls_of(plane)
    places = [(service, shard) for service in SERVICES for shard in range(plane.shards)]
    return {place: urls[place[0]] for place in places if place[0] in urls}


def owned_shards(scrape: Scrape | None) -> set[int]:
    """Return the shards whose loops have gone round in a process; a standby's do not count."""
    found = () if scrape is None else scrape.samples
    return {int(one.labels["shard"]) for one in found if one.name == STEPPED and one.value > 0}


class FoundOwners:
    """Finds the owners on other hosts of the plane of a home. Opens a client when it has to, and keeps it."""

    def __init__(self) -> None:
        self._client: KafkaPlane | None = None
        self._plane: tuple[object, ...] = ()
        self._silent_until = 0.0

    def elsewhere(self, plane: PlaneFile, owned_here: Mapping[str, set[int]]) -> list[tuple[str, str]] | None:
        """Return the service and the URL of each owner of the other shards.

        None if nobody tells: hosts do not share the shards of this plane, or no broker answers. After a silence the
        brokers are not asked again for ``SILENCE_SECONDS``.

        ``owned_here`` has the shards that processes of this host own.
        """
        if not plane.has_moving_shards or time.monotonic() < self._silent_until:
            return None
        try:
            urls = self._client_of(plane).owner_urls(SERVICES, plane.shards)
        except (DeepcleanError, CredentialsError):
            self._silent_until = time.monotonic() + SILENCE_SECONDS
            return None
        others = ((one, url) for (one, shard), url in urls.items() if shard not in owned_here.get(one, ()))
        return list(dict.fromkeys(others))

    def _client_of(self, plane: PlaneFile) -> KafkaPlane:
        known = (plane.supervisor, plane.bootstrap_servers)
        if self._client is None or self._plane != known:
            self.close()
            self._client, self._plane = running_client(Path(plane.home)), known
        return self._client

    def close(self) -> None:
        """Close the client, if there is one."""
        if self._client is not None:
            self._client.close()
            self._client = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
