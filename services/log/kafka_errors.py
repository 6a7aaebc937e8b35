"""Turns the errors of Kafka's client into ours."""

from __future__ import annotations

import logging

from confluent_kafka import KafkaError

from services.domain.errors import DeepcleanError, InvariantError, PositionError, RetryableError, TopicMissingError
from services.log.port import MAX_CHANGE_MESSAGE_BYTES, MAX_LETTER_MESSAGE_BYTES, MAX_MESSAGE_BYTES

_logger = logging.getLogger(__name__)

_TOPIC_MISSING = frozenset(
    {
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError.UNKNOWN_TOPIC_ID,
        KafkaError._UNKNOWN_TOPIC,
        KafkaError._UNKNOWN_PARTITION,
    }
)
LEADERLESS = frozenset({KafkaError.NOT_LEADER_FOR_PARTITION, KafkaError.LEADER_NOT_AVAILABLE})
_OUTSIDE = frozenset({KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE})
_REFUSED = frozenset(
    {
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.GROUP_AUTHORIZATION_FAILED,
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
        KafkaError.SASL_AUTHENTICATION_FAILED,
        KafkaError._AUTHENTICATION,
    }
)
_TOO_LARGE = frozenset({KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.RECORD_LIST_TOO_LARGE, KafkaError.INVALID_MSG_SIZE})


def translate(error: KafkaError, doing: str) -> DeepcleanError:
    """Return our error for one of librdkafka; its class tells the caller how to continue."""
    code, text = error.code(), error.str()
    if code in _OUTSIDE:
        return PositionError(
            f"{doing}: the position is not in the partition any more ({text}): records were trimmed or lost before "
            f"they were read; restore the topic, or a backup of this database (deepclean restore-backup)"
        )
    if code in _TOPIC_MISSING:
        return TopicMissingError(
            f"{doing}: the broker has no such topic or partition ({text}): make the topics, start again"
        )
    if code in _REFUSED:
        return InvariantError(f"{doing}: the broker refuses it ({text}): correct this service's credentials or rights")
    if code in _TOO_LARGE:
        return InvariantError(
            f"{doing}: a message is too large ({text}): set max.message.bytes of the topic to {MAX_MESSAGE_BYTES}, "
            f"of dead-letters to {MAX_LETTER_MESSAGE_BYTES}, of snapshots.changelog to {MAX_CHANGE_MESSAGE_BYTES}"
        )
    return RetryableError(f"{doing}: the broker did not do it ({text})")


def log_error(error: KafkaError) -> None:
    """Log a failed attempt to connect at debug level: there are many a second, and the requests raise their errors."""
    _logger.debug("kafka: %s", error.str())
