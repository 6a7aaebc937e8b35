"""Checks the input topics before a run: they must be the topics that the checkpoint belongs to.

Beside Spark's own files a checkpoint has ``topics.json`` with the ids of the topics. A recreated topic has the same
name but another id, and its offsets refer to other messages.
"""

from __future__ import annotations

import json
from typing import Any

from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import AdminClient

from schemas.credentials import KafkaCredentials
from schemas.formats import FormatError
from schemas.topics import DELETED_ENTRIES, SNAPSHOT_CHAIN
from services.domain.errors import InvariantError, PositionError, RetryableError
from services.log.kafka import KafkaLog
from services.log.kept_topics import first_loss
from streaming.reclaiming.checkpoint import Checkpoint, check_format

ANSWER_SECONDS = 30.0
TOPIC_IDS_FILE = "topics.json"
_INPUTS = (DELETED_ENTRIES.name, SNAPSHOT_CHAIN.name)


def check_inputs(
    bootstrap_servers: str, shards: int, checkpoint: Checkpoint, credentials: KafkaCredentials | None = None
) -> None:
    """Check that the input topics exist, have the checkpoint's topic ids and have a partition for each shard.

    More partitions are those of shards that were added since: the job follows them by itself.

    Raises:
        PositionError: a topic is missing, was recreated or has too few partitions; an operator has to decide.
        InvariantError: a topic would lose messages, a newer release or one before 0.2.0 has written the checkpoint, or
            the disk refuses.
        RetryableError: the broker, or the file system of the checkpoint, did not answer.
    """
    ids = _topic_ids(bootstrap_servers, shards, credentials)
    if lost := first_loss(KafkaLog(bootstrap_servers, "deepclean.streaming", credentials=credentials), _INPUTS):
        raise InvariantError(f"T{lost[1:]}.")
    try:
        check_format(checkpoint)
        written = checkpoint.read(TOPIC_IDS_FILE)
        if written is None:
            written = json.dumps(ids)
            checkpoint.replace(TOPIC_IDS_FILE, written)
        known = json.loads(written)
    except FormatError as error:
        raise InvariantError(str(error)) from error
    except (OSError, ValueError) as error:
        raise InvariantError(
            f"The checkpoint {checkpoint} cannot be used ({error}): repair it or name another one."
        ) from error
    for name in _INPUTS:
        if known.get(name) != ids[name]:
            raise recreated(name, checkpoint)


def recreated(topic: str, checkpoint: Checkpoint) -> PositionError:
    """Return the error for a topic that was recreated or has lost messages."""
    return PositionError(
        f"Topic {topic} was recreated, or has lost messages that the checkpoint {checkpoint} counts as read: restore "
        f"the topic, or remove the checkpoint, after which every entry is judged again."
    )


def _topic_ids(bootstrap_servers: str, shards: int, credentials: KafkaCredentials | None) -> dict[str, str]:
    login = credentials.client_settings() if credentials else {}
    with AdminClient({"bootstrap.servers": bootstrap_servers, **login}) as admin:
        answers = admin.describe_topics(TopicCollection(list(_INPUTS)), request_timeout=ANSWER_SECONDS)
        return {name: _topic_id(name, answer, bootstrap_servers, shards) for name, answer in answers.items()}


def _topic_id(name: str, answer: Any, bootstrap_servers: str, shards: int) -> str:
    try:
        described = answer.result()
    except KafkaException as error:
        if error.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
            raise PositionError(f"Topic {name} is missing on {bootstrap_servers}: make the plane's topics.") from error
        raise RetryableError(f"{bootstrap_servers} did not describe {name} ({error}): see if it runs.") from error
    if len(described.partitions) < shards:
        raise PositionError(
            f"Topic {name} has {len(described.partitions)} partitions, but --shards says {shards}: make the plane's "
            f"topics (deepclean topics ensure)."
        )
    return str(described.topic_id)
