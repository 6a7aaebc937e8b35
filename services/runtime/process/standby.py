"""Follows a shard that another process runs, so that this one can take it over at once.

A standby applies the same input to a database of its own, and publishes nothing. What the input causes waits in the
outbox until the owner says that it has published it. So after a takeover only the rest is sent.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from services.domain.errors import InvariantError
from services.log.clock import Clock
from services.log.port import Headers, Log
from services.log.published import published_below
from services.runtime.loop.runner import UNIT_SECONDS, Runner
from services.runtime.loop.service import Service
from services.storage.store import Store

MOST_WAITING_MESSAGES = 20_000
"""Messages in the outbox from which on the standby asks what is published."""
LOOK_SECONDS = 2.0
"""Least time between two questions: each opens connections of its own."""


class SilentSink:
    """The sink of a process that may not publish."""

    def send(self, topic: str, partition: int, value: bytes, key: bytes = b"", headers: Headers = ()) -> None:  # noqa: ARG002
        """Refuse: the owner publishes this."""
        raise InvariantError(f"a standby would publish to {topic}, partition {partition}: this is a defect: report it")

    def start_flush(self) -> None:
        """Do nothing: nothing was sent."""

    def flush(self) -> None:
        """Do nothing: nothing was sent."""

    def close(self) -> None:
        """Do nothing: there are no resources to release."""


@dataclass(frozen=True, slots=True)
class Followed:
    """How a service's owners say what they have published."""

    topics: Sequence[str]
    """Topics whose last messages say it (``services.log.published``)."""
    source: str
    """The service's only input."""

    def published_below(self, log: Log, shard: int) -> int:
        """Return the offset of the input below which all that it causes is in the log."""
        return published_below(log, self.topics, self.source, shard)


_make_runner = partial(Runner, unit_seconds=UNIT_SECONDS)


class Standby:
    """The standby of one shard. For one thread."""

    def __init__(
        self,
        followed: Followed,
        service: Service,
        shard: int,
        store: Store,
        log: Log,
        clock: Clock,
        max_messages: int,
        *,
        after_write: Callable[[], None] | None = None,
        make_runner: Callable[..., Runner] = _make_runner,
    ) -> None:
        """``make_runner`` says how large its units of work are. Raises what ``Runner`` does."""
        self._published_below = partial(followed.published_below, log, shard)
        self._looked = time.monotonic()
        self.runner = make_runner(
            service,
            shard,
            store,
            log,
            clock,
            max_batch_messages=max_messages,
            after_write=after_write,
            must_defer=lambda: True,
            published_below=self._published_below(),
            sink=SilentSink(),
        )

    def step(self, timeout_seconds: float) -> int:
        """Apply the next messages; return their number. Raises as ``Runner.step`` does."""
        applied = self.runner.step(timeout_seconds)
        is_time = time.monotonic() - self._looked >= LOOK_SECONDS
        if is_time and self.runner.waiting() >= MOST_WAITING_MESSAGES:
            self.leave_out_published()
        return applied

    def leave_out_published(self) -> None:
        """Remove from the outbox what the owner has published. Raise RetryableError if the log did not answer."""
        self.runner.leave_out_published(self._published_below())
        self._looked = time.monotonic()

    def close(self) -> None:
        """Close the connections to the log. The caller closes the store."""
        self.runner.close()
