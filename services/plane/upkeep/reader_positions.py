"""Positions of the readers of a running plane: from /metrics of the services and from the Spark checkpoint."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from pathlib import Path

import httpx
from prometheus_client.samples import Sample

from schemas.topics import CHANGELOGS, DELETED_ENTRIES
from services.client.wire.http_reads import http_client
from services.domain.errors import InvariantError
from services.plane.machine.errors import StackError
from services.plane.stack.plane_file import PlaneFile
from services.plane.stack.process_names import SERVICES, STREAMING
from services.plane.stack.secrets import http_token
from services.plane.stack.stack import running_client
from services.plane.upkeep.metrics_page import samples
from services.plane.upkeep.observed import urls_of
from services.plane.upkeep.trimming import Place
from streaming.reclaiming.checkpoint import LocalCheckpoint
from streaming.reclaiming.position import finished_ends, first_needed
from streaming.reclaiming.waiting import saved

SCRAPE_SECONDS = 10.0


def reader_positions(plane: PlaneFile) -> dict[Place, int]:
    """Return the offset of the next message of each reader, topic and shard, where one is known.

    Where hosts share the shards, the owners of all shards are asked. If several processes report a position, for
    example a shard's owner and its standby, the lowest counts.

    Raises:
        StackError: a service did not answer, so its position is unknown.
    """
    found: dict[Place, int] = {}
    with http_client(http_token(Path(plane.home)), seconds=SCRAPE_SECONDS) as http:
        for service, urls in _addresses(plane).items():
            for url in urls:
                try:
                    reported = samples(http, url)
                except httpx.HTTPError as error:
                    raise StackError(
                        f"{service} did not report its positions on {url}: see deepclean status."
                    ) from error
                _add_lowest(found, _positions(service, reported))
        if streaming := urls_of(plane).get(STREAMING):
            with contextlib.suppress(httpx.HTTPError):  # a job that does not run has its checkpoint
                _add_lowest(found, _positions(STREAMING, samples(http, streaming)))
    _add_lowest(found, spark_positions(Path(plane.home) / "data" / STREAMING).items())
    return found


def _addresses(plane: PlaneFile) -> dict[str, set[str]]:
    """Return where the processes of each service answer."""
    if plane.has_moving_shards:
        with running_client(Path(plane.home)) as client:
            return {
                service: {url for shard in range(plane.shards) if (url := client.owner_url(service, shard))}
                for service in SERVICES
            }
    urls = urls_of(plane)
    missing = [service for service in SERVICES if service not in urls]
    if missing:
        raise StackError(f"Where {missing[0]} runs is not known here: name it under [elsewhere].")
    return {service: {urls[service]} for service in SERVICES}


def _positions(process: str, reported: Iterable[Sample]) -> Iterator[tuple[Place, int]]:
    for sample in reported:
        if topic := _topic(process, sample):
            yield (process, topic, int(sample.labels["shard"])), int(sample.value)


def _topic(process: str, sample: Sample) -> str:
    """Return the topic in which a sample is a position; empty if it is none."""
    match sample.name:
        case "deepclean_input_position":
            return sample.labels["topic"]
        case "deepclean_changelog_offset":
            return CHANGELOGS[process].name
        case "deepclean_streaming_needed_offset":
            return DELETED_ENTRIES.name
        case _:
            return ""


def _add_lowest(found: dict[Place, int], positions: Iterable[tuple[Place, int]]) -> None:
    for place, offset in positions:
        found[place] = min(offset, found.get(place, offset))


def spark_positions(checkpoint: Path) -> dict[Place, int]:
    """Return the offset of the first message that Spark may still read, by shard, from a checkpoint of this host.

    It is the end of the last finished batch, or the oldest waiting entry if that is lower. Empty if no batch is
    finished, or if there is no checkpoint.

    Raises:
        StackError: the checkpoint cannot be read.
    """
    kept = LocalCheckpoint(checkpoint)
    try:
        needed = first_needed(finished_ends(kept), saved(kept).first_offsets())
    except InvariantError as error:
        raise StackError(f"{error} Until then nothing may be trimmed.") from error
    return {(STREAMING, DELETED_ENTRIES.name, shard): offset for shard, offset in needed.items()}
