"""Listens to Spark's streaming query, and adds what it reports of each batch to the job's metrics."""

from __future__ import annotations

from collections.abc import Callable

from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
    StreamingQueryProgress,
)


class ProgressListener(StreamingQueryListener):
    """Calls a function with the progress of one query, named by ``query_name``."""

    def __init__(self, query_name: str, on_progress: Callable[[StreamingQueryProgress], None]) -> None:
        self._query_name = query_name
        self._on_progress = on_progress

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802  Spark's name
        """Do nothing."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802
        """Report a finished batch."""
        if event.progress.name == self._query_name:
            self._on_progress(event.progress)

    def onQueryIdle(self, event: QueryIdleEvent) -> None:  # noqa: N802
        """Do nothing."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802
        """Do nothing: the job waits for the query itself."""
