"""Positions of the readers of a running plane: from /metrics of the services and from the Spark checkpoint."""

from __future__ import annotations

import json
from pathlib import Path

import httpx

from schemas.topics import CHANGELOGS
from services.client.wire.http_reads import http_client
from services.domain.errors import InvariantError
from services.plane.machine.errors import StackError
from services.plane.stack.plane_file import PlaneFile
from services.plane.stack.process_names import SERVICES, STREAMING
from services.plane.stack.secrets import http_token
from services.plane.upkeep.metrics_page import samples
from services.plane.upkeep.trimming import Place
from streaming.reclaiming.checkpoint import LocalCheckpoint
from streaming.reclaiming.waiting import saved

SCRAPE_SECONDS = 10.0
POSITION = "deepclean_input_position"
CHANGELOG_OFFSET = "deepclean_changelog_offset"


def reader_positions(plane: PlaneFile) -> dict[Place, int]:
    """Return the offset of the next message of each reader, topic and shard.

    Raises:
        StackError: a service did not answer, so its position is unknown.
    """
    positions: dict[Place, int] = {}
    with http_client(http_token(Path(plane.home)), seconds=SCRAPE_SECONDS) as http:
        for service in SERVICES:
            url = plane.processes[service].url
            try:
                reported = samples(http, url)
            except httpx.HTTPError as error:
                raise StackError(f"{service} did not report its positions on {url}: see deepclean status.") from error
            for sample in reported:
                if sample.name in (POSITION, CHANGELOG_OFFSET):
                    labels = sample.labels
                    topic = labels["topic"] if sample.name == POSITION else CHANGELOGS[service].name
                    positions[service, topic, int(labels["shard"])] = int(sample.value)
    return positions | spark_positions(Path(plane.home) / "data" / STREAMING)


def spark_positions(checkpoint: Path) -> dict[Place, int]:
    """Return the offset of the first message that Spark may still read, by topic and shard.

    The offset is the end of the last finished batch, or of the oldest waiting entry if that is lower. Empty if no batch
    is finished.

    Raises:
        StackError: the checkpoint cannot be read.
    """
    try:
        batches = [int(file.name) for file in (checkpoint / "commits").iterdir() if file.name.isdecimal()]
        if not batches:
            return {}
        offsets = (checkpoint / "offsets" / str(max(batches))).read_text("utf-8").splitlines()
        by_topic: dict[str, dict[str, int]] = json.loads(offsets[-1])
        waiting = saved(LocalCheckpoint(checkpoint)).first_offsets()
        return {
            (STREAMING, topic, int(shard)): min(offset, waiting.get(int(shard), offset))
            for topic, shards in by_topic.items()
            for shard, offset in shards.items()
        }
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, InvariantError) as error:
        raise StackError(
            f"Spark's checkpoint {checkpoint} cannot be read ({error}): nothing may be trimmed."
        ) from error
