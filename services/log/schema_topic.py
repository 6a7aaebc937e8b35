"""The topic of schemas: readers of a newer program's messages find the schemas there.

``deepclean up`` and ``deepclean upgrade prepare`` publish the schemas of their program, as the administrator. Services
and clients only read the topic: services decode commands by what it says.

The topic is compacted and has one partition. Keys and values are JSON in the form in which Confluent's schema registry
keeps its own topic: the version of a subject, and the id and the text of its schema. A subject is ``<topic>-value``.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from fastavro.schema import parse_schema

from schemas import published
from schemas.codec import MAX_SCHEMA_ID
from schemas.schema_files import JsonSchema, released_versions
from schemas.topics import METADATA_COMMANDS, SCHEMAS, Topic
from services.domain.errors import InvariantError
from services.log.followed_topic import FollowedTopic
from services.log.port import Log


class SchemaTopic:
    """Reads and writes the topic of schemas. Safe to share between threads."""

    def __init__(self, log: Log) -> None:
        self._topic = FollowedTopic(log, SCHEMAS)
        self._lock = threading.Lock()
        self._found: dict[bytes, tuple[int, JsonSchema] | None] = {}
        """The id and schema of each key; None for a key without a schema."""

    def read(self) -> None:
        """Learn the schemas published since the last call. Raise RetryableError if the broker did not answer."""
        with self._lock:
            for record in self._topic.new_records(self._found.clear):
                self._found[record.key] = found = _schema_in(record.value)
                if found is not None:
                    published.learn(*found)

    def publish(self, topics: Iterable[Topic], announce: Callable[[int], None]) -> int:
        """Publish each released schema of the topics that is missing; return their number once the broker has them.

        ``announce`` is called before, with the id of a new schema of metadata's commands: no such command comes
        before its announcement then, and an end between the two is made good by the next call.

        Raises:
            RetryableError: the broker did not answer.
            InvariantError: the broker does not allow it, or the topic has another schema in the place of one.
        """
        self.read()
        rows = [row for topic in topics for row in versions_of(topic)]
        for row in rows:
            if (found := self._found.get(row.key)) and found != (row.schema_id, row.schema):
                raise InvariantError(
                    f"{row.key.decode()} on the topic {SCHEMAS} is another schema than this program has: another "
                    f"plane, or a program that was never released, uses the topic; give this plane a broker of its own"
                )
        missing = [row for row in rows if not self._found.get(row.key)]
        commands = [row for row in missing if row.subject == subject_of(METADATA_COMMANDS) and row.version > 1]
        if commands:
            announce(commands[-1].schema_id)
        if missing:
            self._topic.append((row.value, row.key) for row in missing)
        return len(missing)

    def require(self, topics: Iterable[Topic]) -> None:
        """Check that the schemas that this program writes are published. Every program knows first versions.

        Raises:
            RetryableError: the broker did not answer.
            InvariantError: a schema is not published.
        """
        later = [rows[-1] for topic in topics if len(rows := versions_of(topic)) > 1]
        if not later:
            return
        self.read()
        for row in later:
            if not self._found.get(row.key):
                raise InvariantError(
                    f"{row.key.decode()} is not published, so other processes could not read the messages of this "
                    f"program: run deepclean upgrade prepare with this version first"
                )


def follow_schemas(log: Log) -> SchemaTopic:
    """Have this process decode messages of newer schemas by what the log's topic of schemas has; return the topic."""
    topic = SchemaTopic(log)
    published.read_from(topic.read)
    return topic


def subject_of(topic: Topic) -> str:
    """Return the name under which the versions of a topic's schema are published."""
    return f"{topic.name}-value"


class SubjectVersion(NamedTuple):
    """One released version of a topic's schema, as a schema registry has it."""

    subject: str
    version: int
    schema_id: int
    schema: JsonSchema

    def described(self) -> dict[str, Any]:
        """Return what a registry says of it."""
        schema = _text(self.schema)
        return {"subject": self.subject, "version": self.version, "id": self.schema_id, "schema": schema}

    @property
    def key(self) -> bytes:
        """The key of its row on the topic of schemas."""
        return _text({"keytype": "SCHEMA", "subject": self.subject, "version": self.version, "magic": 1}).encode()

    @property
    def value(self) -> bytes:
        """The value of its row."""
        return _text({**self.described(), "deleted": False}).encode()


def versions_of(topic: Topic) -> list[SubjectVersion]:
    """Return each released version of a topic's schema, oldest first."""
    released = enumerate(released_versions(topic.record.__name__), start=1)
    return [SubjectVersion(subject_of(topic), version, *one) for version, one in released]


def _text(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))


def _schema_in(value: bytes) -> tuple[int, JsonSchema] | None:
    """Return the id and the schema in a value; None for a value without a usable one, such as a tombstone."""
    try:
        row = json.loads(value)
        schema_id, schema = row["id"], json.loads(row["schema"])
        parse_schema(schema)
    except Exception:  # fastavro raises many kinds; what cannot be used must not stop a reader
        return None
    is_id = isinstance(schema_id, int) and 0 <= schema_id <= MAX_SCHEMA_ID
    return (schema_id, schema) if is_id and isinstance(schema, dict) else None
