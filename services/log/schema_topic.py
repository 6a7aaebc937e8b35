"""The topic of schemas: whatever writes messages publishes its schemas first; a reader of newer messages finds them.

The topic is compacted and has one partition. Keys and values are JSON in the form in which Confluent's schema registry
keeps its own topic: the version of a subject, and the id and the text of its schema. A subject is ``<topic>-value``.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterable
from typing import Any

from schemas import published
from schemas.schema_files import released_versions
from schemas.topics import SCHEMAS, Topic
from services.log.port import Log
from services.log.reads import records_between

_PARTITION = 0


class SchemaTopic:
    """Reads and writes the topic of schemas. Safe to share between threads."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._lock = threading.Lock()
        self._next_offset = 0
        self._keys: set[bytes] = set()

    def read(self) -> None:
        """Learn the schemas that were published since the last call.

        Raises:
            RetryableError: the broker did not answer.
        """
        with self._lock:
            end = self._log.end_offset(SCHEMAS, _PARTITION)
            if end <= self._next_offset:
                return
            first = max(self._next_offset, self._log.first_offset(SCHEMAS, _PARTITION))
            for record in records_between(self._log, SCHEMAS, _PARTITION, first, end):
                self._keys.add(record.key)
                if (found := _schema_in(record.value)) is not None:
                    published.learn(*found)
            self._next_offset = end

    def publish(self, topics: Iterable[Topic]) -> None:
        """Publish each released schema of the topics that is missing, and return when the broker has it.

        Raises:
            RetryableError: the broker did not answer.
            InvariantError: the broker does not allow it.
        """
        self.read()
        rows = dict(row for topic in topics for row in rows_of(topic))
        missing = {key: value for key, value in rows.items() if key not in self._keys}
        if not missing:
            return
        sink = self._log.open_sink()
        try:
            for key, value in missing.items():
                sink.send(SCHEMAS, _PARTITION, value, key)
            sink.flush()
        finally:
            sink.close()


def follow_schemas(log: Log) -> SchemaTopic:
    """Have this process decode messages of newer schemas by what the log's topic of schemas has; return the topic."""
    topic = SchemaTopic(log)
    published.read_from(topic.read)
    return topic


def subject_of(topic: Topic) -> str:
    """Return the name under which the versions of a topic's schema are published."""
    return f"{topic.name}-value"


def rows_of(topic: Topic) -> Iterable[tuple[bytes, bytes]]:
    """Yield the key and the value of each released version of a topic's schema."""
    subject = subject_of(topic)
    for version, released in enumerate(released_versions(topic.record.__name__), start=1):
        key = {"keytype": "SCHEMA", "subject": subject, "version": version, "magic": 1}
        schema = _text(released.schema)
        value = {"subject": subject, "version": version, "id": released.schema_id, "schema": schema, "deleted": False}
        yield _text(key).encode(), _text(value).encode()


def _text(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))


def _schema_in(value: bytes) -> tuple[int, dict[str, Any]] | None:
    """Return the id and the schema in a value; None for one that has none, such as a tombstone."""
    try:
        row = json.loads(value)
        schema_id, schema = row["id"], json.loads(row["schema"])
    except (ValueError, KeyError, TypeError):
        return None
    return (schema_id, schema) if isinstance(schema_id, int) and isinstance(schema, dict) else None
