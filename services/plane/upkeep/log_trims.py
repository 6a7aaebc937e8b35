"""Plan the trims of a running plane, and let metadata write records of the whole chain before a trim."""

from __future__ import annotations

from collections.abc import Container
from functools import partial

from schemas.codec import codec
from schemas.records import PublishFullChain, SnapshotChainRecord
from schemas.topics import OWNERS, SNAPSHOT_CHAIN, TOPICS
from services.domain.errors import TopicMissingError
from services.log.kafka import KafkaLog
from services.log.reads import records_between
from services.plane.machine.errors import StackError
from services.plane.stack.plane_file import PlaneFile
from services.plane.upkeep.backups import shared_backups
from services.plane.upkeep.operator_commands import send_to_metadata
from services.plane.upkeep.reader_positions import reader_positions
from services.plane.upkeep.trimming import Trim, newest_start, plan_trims
from services.runtime.copies.manifests import Backup, CopyName


def planned_trims(
    plane: PlaneFile, log: KafkaLog, backups: list[Backup], damaged: Container[CopyName] = ()
) -> list[Trim]:
    """Return the possible trims of a running plane's log. Raise StackError if a backup is of another log.

    ``damaged`` are copies that cannot be restored as they are: they count as none, and are kept restorable.
    """
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
        *(plane.shards, firsts, positions, backups, partial(newest_full_chain, log)),
        may_move=plane.has_moving_shards or _has_moved(log),
        shared=shared_backups(plane) or (),
        damaged=damaged,
    )


def _has_moved(log: KafkaLog) -> bool:
    """Return whether owners of shards have ever published their addresses, which this host's file may not say."""
    try:
        log.topic_ids([OWNERS])
    except TopicMissingError:  # a plane without instance names has no need of it
        return False
    return log.end_offset(OWNERS, 0) > 0


def newest_full_chain(log: KafkaLog, shard: int, until: int) -> int | None:
    """Return the offset where the newest whole chain before ``until`` begins; reads all records before ``until``."""
    topic, decode = SNAPSHOT_CHAIN.name, codec(SnapshotChainRecord).decode_message
    records = records_between(log, topic, shard, log.first_offset(topic, shard), until)
    return newest_start((record.offset, decode(record.value)) for record in records)


def publish_full_chain(plane: PlaneFile) -> None:
    """Send a command to metadata to write a record of the whole chain of every shard."""
    send_to_metadata(plane, PublishFullChain("the log is to be trimmed"), range(plane.shards), "deepclean.trim")
