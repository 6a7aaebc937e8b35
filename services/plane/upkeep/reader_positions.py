"""Positions of the readers of a running plane, from /metrics of the services and of the Spark job."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

import httpx
from prometheus_client.samples import Sample

from schemas.topics import CHANGELOGS, DELETED_ENTRIES
from services.client.wire.http_reads import http_client
from services.plane.machine.errors import StackError
from services.plane.stack.plane_file import PlaneFile
from services.plane.stack.process_names import STREAMING
from services.plane.stack.secrets import http_token
from services.plane.upkeep.found_owners import owner_urls, url_of
from services.plane.upkeep.metrics_page import samples
from services.plane.upkeep.trimming import Place

SCRAPE_SECONDS = 10.0


def reader_positions(plane: PlaneFile) -> dict[Place, int]:
    """Return the offset of the next message of each reader, topic and shard, where one is known.

    Spark's position is known while its job runs, since its checkpoint may be anywhere. Where hosts share the shards,
    their owners are asked, so a shard without one has no position.

    Raises:
        StackError: a service did not answer, so its position is unknown.
    """
    owners, found = owner_urls(plane), dict[Place, int]()
    with http_client(http_token(Path(plane.home)), seconds=SCRAPE_SECONDS) as http:
        for service, url in sorted({(service, url) for (service, _), url in owners.items()}):
            told = _asked(http, service, url)
            found |= {place: offset for place, offset in told.items() if owners.get((service, place[2])) == url}
        with suppress(StackError):
            found |= _asked(http, STREAMING, url_of(plane, STREAMING))
    return found


def _asked(http: httpx.Client, process: str, url: str) -> dict[Place, int]:
    try:
        return _positions(process, samples(http, url))
    except httpx.HTTPError as error:
        raise StackError(f"{process} did not report its positions on {url}: see deepclean status.") from error


def _positions(process: str, reported: Iterable[Sample]) -> dict[Place, int]:
    topics = ((sample, _topic(process, sample)) for sample in reported)
    return {
        (process, topic, int(sample.labels["shard"])): int(sample.value)
        for sample, topic in topics
        if topic is not None
    }


def _topic(process: str, sample: Sample) -> str | None:
    """Return the topic in which a sample is a position; None if it is none."""
    match sample.name:
        case "deepclean_input_position":
            return sample.labels["topic"]
        case "deepclean_changelog_offset":
            return CHANGELOGS[process].name
        case "deepclean_streaming_needed_offset":
            return DELETED_ENTRIES.name
        case _:
            return None
