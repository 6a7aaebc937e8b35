"""Reads from a running plane what ``trimming`` needs to know, and has the whole chain written ahead of a trim."""

from __future__ import annotations

from pathlib import Path

from confluent_kafka import Producer

from schemas.codec import FINGERPRINT_HEADER, codec
from schemas.records import MetadataCommand, PublishFullChain, SnapshotChainRecord
from schemas.topics import METADATA_COMMANDS, SNAPSHOT_CHAIN, TOPICS
from services.log.clock import SystemClock
from services.log.kafka import KafkaLog, producer_configuration
from services.log.reads import records_between
from services.log.signing import person_command
from services.plane.machine.errors import StackError
from services.plane.stack.plane_file import PlaneFile
from services.plane.stack.secrets import administrator, person
from services.plane.upkeep.backups import Backup
from services.plane.upkeep.reader_positions import reader_positions
from services.plane.upkeep.trimming import Trim, newest_start, plan_trims

FLUSH_SECONDS = 30.0


def planned_trims(plane: PlaneFile, log: KafkaLog, backups: list[Backup]) -> list[Trim]:
    """What may go of a running plane's log; raises StackError when a backup is of another log."""
    topic_ids = log.topic_ids([topic.name for topic in TOPICS])
    for backup in backups:
        for copy in backup.copies:
            for position in copy.positions:
                if position.topic_id != topic_ids[position.topic]:
                    raise StackError(
                        f"Backup {backup.name} has read another {position.topic} than this broker holds: take it out "
                        f"of there, it fits no plane on this log."
                    )
    positions = reader_positions(plane)
    places = [(topic.name, shard) for topic in TOPICS for shard in range(plane.shards)]
    firsts = {place: log.first_offset(*place) for place in places}
    return plan_trims(
        plane.shards, firsts, positions, backups, lambda shard, until: newest_full_chain(log, shard, until)
    )


def newest_full_chain(log: KafkaLog, shard: int, until: int) -> int | None:
    """Offset where the newest whole chain before an offset begins; all before it is read to find it."""
    topic, decode = SNAPSHOT_CHAIN.name, codec(SnapshotChainRecord).decode_message
    records = records_between(log, topic, shard, log.first_offset(topic, shard), until)
    return newest_start((record.offset, decode(record.value, record.fingerprint)) for record in records)


def publish_full_chain(plane: PlaneFile) -> None:
    """Have metadata write a record of the whole chain of every shard."""
    encoder = codec(MetadataCommand)
    producer = Producer(
        producer_configuration(plane.bootstrap_servers, "deepclean.trim", administrator(Path(plane.home)))
    )
    for shard in range(plane.shards):
        command = MetadataCommand(shard, "", 0, PublishFullChain("the log is to be trimmed"), wants_reply=False)
        body = person_command(command, person(Path(plane.home)), SystemClock().now_ms())
        producer.produce(
            METADATA_COMMANDS.name, body, partition=shard, headers=[(FINGERPRINT_HEADER, encoder.fingerprint)]
        )
    if producer.flush(FLUSH_SECONDS):
        raise StackError(f"The broker on {plane.bootstrap_servers} did not accept the command: check that it runs.")
