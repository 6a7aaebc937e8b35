"""Listens to Spark's streaming query: the JVM reports each finished batch as one JSON text."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from pyspark import SparkContext
from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)

from streaming.reclaiming.position import ends_of


@dataclass(frozen=True, slots=True)
class BatchProgress:
    """What Spark has reported of a finished batch."""

    durations_ms: Mapping[str, int]
    """Duration of each step, by Spark's name of the step."""
    messages: int
    """Messages that were read."""
    ends: Mapping[int, int]
    """Offset behind the batch, by shard."""
    messages_behind: int
    """Messages behind the batch in the shard that is most behind, as of the end of the batch."""


class ProgressListener(StreamingQueryListener):
    """Calls a function with the progress of one query, named by ``query_name``.

    PySpark's own listener fetches each field of a report by calls to the JVM. Each of its Java collections ends with an
    exception, and to translate it, PySpark has the JVM look for classes in all jars. Together that took a third of the
    job's processor time. Therefore this listener gives the JVM an object that fetches the whole report as text.
    """

    def __init__(self, query_name: str, on_progress: Callable[[BatchProgress], None]) -> None:
        self._in_jvm: Any = None
        self._for_jvm = _ListenerForJvm(query_name, on_progress)

    @property
    def _jlistener(self) -> Any:
        if self._in_jvm is None:
            jvm: Any = SparkContext._jvm
            self._in_jvm = jvm.PythonStreamingQueryListenerWrapper(self._for_jvm)
        return self._in_jvm

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802  Spark's name
        """Do nothing: never called."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802
        """Do nothing: never called."""

    def onQueryIdle(self, event: QueryIdleEvent) -> None:  # noqa: N802
        """Do nothing: never called."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802
        """Do nothing: never called."""


class _ListenerForJvm:
    """The object whose methods the JVM calls, with references to its own objects."""

    class Java:
        """Names the Java interface."""

        implements = ("org.apache.spark.sql.streaming.PythonStreamingQueryListener",)

    def __init__(self, query_name: str, on_progress: Callable[[BatchProgress], None]) -> None:
        self._query_name = query_name
        self._on_progress = on_progress

    def onQueryStarted(self, event: Any) -> None:  # noqa: N802  Spark's name
        """Do nothing."""

    def onQueryProgress(self, event: Any) -> None:  # noqa: N802
        """Report a finished batch."""
        report = json.loads(event.progress().json())
        if report.get("name") == self._query_name:
            self._on_progress(progress_of(report))

    def onQueryIdle(self, event: Any) -> None:  # noqa: N802
        """Do nothing."""

    def onQueryTerminated(self, event: Any) -> None:  # noqa: N802
        """Do nothing: the job waits for the query itself."""


def progress_of(report: Mapping[str, Any]) -> BatchProgress:
    """Return the progress in Spark's report of a batch of the query, which reads one topic."""
    source = report["sources"][0]
    return BatchProgress(
        durations_ms=report["durationMs"],
        messages=report["numInputRows"],
        ends=ends_of(source["endOffset"]),
        messages_behind=int(source["metrics"].get("maxOffsetsBehindLatest", "0")),
    )
