"""Says in the log itself how far a publisher has got: a header of some messages, the offset *published below*.

Everything that the inputs below this offset have caused is in the log, acknowledged. A process that builds the state
from the same inputs, as a standby or a rebuild does, need not send that again.

Headers are no part of a message's record: who does not know this one passes over it.
"""

from __future__ import annotations

from collections.abc import Iterable

from services.log.port import Headers, Log
from services.log.reads import last_record

HEADER = "deepclean-published-below"
CLOCK_SLACK_MS = 1_000
"""Most by which the clocks of a cluster's brokers differ. A broker that lost its tail needs longer to restart."""


def published_below_header(offset: int) -> Headers:
    """Return the headers of a message whose publisher has got to an offset of its input."""
    return ((HEADER, b"%d" % offset),)


def published_below(log: Log, topics: Iterable[str], source: str, partition: int) -> int:
    """Return the offset of topic ``source`` that the newest of the last messages of some topics names.

    0 if none of them names one, or if the log has lost what was there: an input at that place which is newer than the
    message that names it is another one.

    Raises:
        RetryableError: the log did not answer.
    """
    last = (last_record(log, topic, partition) for topic in topics)
    named = [(record.timestamp_ms, offset) for record in last if record and (offset := _offset_in(record.headers))]
    if not named:
        return 0
    time_ms, offset = max(named)
    if offset > log.end_offset(source, partition):
        return 0
    before = last_record(log, source, partition, offset)
    is_other = before is not None and before.timestamp_ms > time_ms + CLOCK_SLACK_MS
    return 0 if is_other else offset


def _offset_in(headers: Headers) -> int:
    named = [value for key, value in headers if key == HEADER and value is not None]
    return int(named[-1]) if named and named[-1].isdigit() else 0
