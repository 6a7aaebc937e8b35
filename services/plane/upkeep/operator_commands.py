"""Send an operator's command to metadata, signed if the plane requires signatures."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from confluent_kafka import Producer

from schemas.records import MetadataCommand
from schemas.topics import METADATA_COMMANDS
from services.log.clock import SystemClock
from services.log.kafka import producer_configuration
from services.log.signing import person_command
from services.plane.broker.topics import publish_schemas
from services.plane.machine.errors import StackError
from services.plane.stack.plane_file import PlaneFile
from services.plane.stack.secrets import administrator, person

FLUSH_SECONDS = 30.0


def send_to_metadata(plane: PlaneFile, body: Any, shards: Iterable[int], client: str) -> None:
    """Send a command to some shards and return when the broker has it; metadata sends no reply.

    Raises:
        StackError: the broker has not acknowledged the command.
    """
    home, signer = Path(plane.home), person(Path(plane.home))
    # metadata may run an older program
    publish_schemas(plane.bootstrap_servers, plane.shards, administrator(home), signer)
    producer = Producer(producer_configuration(plane.bootstrap_servers, client, administrator(home)))
    for shard in shards:
        command = MetadataCommand(shard, "", 0, body, wants_reply=False)
        signed = person_command(command, signer, SystemClock().now_ms())
        producer.produce(METADATA_COMMANDS.name, signed, partition=shard)
    if producer.flush(FLUSH_SECONDS):
        raise StackError(f"The broker on {plane.bootstrap_servers} did not accept the command: check that it runs.")
