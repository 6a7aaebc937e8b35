"""A topic of one partition that says something of the plane, such as its schemas, and that processes follow."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from typing import Any

from services.log.port import Log, LogRecord
from services.log.reads import records_between

PARTITION = 0


class FollowedTopic:
    """Returns each record of a topic once, and appends to it. For one thread at a time."""

    def __init__(self, log: Log, name: str) -> None:
        self._log = log
        self._name = name
        self._next_offset = 0

    def new_records(self, forget: Callable[[], None]) -> Iterator[LogRecord]:
        """Yield the records since the last call that came to its end.

        ``forget`` is called first if the topic was recreated, or has lost its tail: all of it is yielded again then.

        Raises:
            TopicMissingError: there is no such topic.
            PositionError: the topic was recreated meanwhile.
            RetryableError: the log did not answer.
        """
        end = self._log.end_offset(self._name, PARTITION)
        if end == self._next_offset:
            return
        if end < self._next_offset:
            self.read_again()
            forget()
        first = max(self._next_offset, self._log.first_offset(self._name, PARTITION))
        yield from records_between(self._log, self._name, PARTITION, first, end)
        self._next_offset = max(first, end)

    def read_again(self) -> None:
        """Have the next call yield the topic from its beginning."""
        self._next_offset = 0

    def append(self, messages: Iterable[tuple[bytes, bytes]]) -> None:
        """Append messages, each a value and a key; return when the log has them. Raise as ``Sink.flush`` does."""
        with closing(self._log.open_sink()) as sink:
            for value, key in messages:
                sink.send(self._name, PARTITION, value, key)
            sink.flush()


def said(value: bytes, field: str) -> Any:
    """Return a field of a message in JSON; None if it has none, or is no such message."""
    try:
        return json.loads(value)[field]
    except (ValueError, KeyError, TypeError):
        return None
