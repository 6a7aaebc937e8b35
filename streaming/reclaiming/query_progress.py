"""Listens to Spark's streaming query: the JVM reports each finished batch as one JSON text."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from pyspark import SparkContext
from pyspark.sql.streaming.listener import StreamingQueryListener

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


class ProgressListener(StreamingQueryListener):
    """Calls a function with the progress of one query, named by ``query_name``.

    PySpark's own listener fetches a report field by field. Each Java collection ends with an exception, for which
    PySpark has the JVM look for classes in all jars: together a third of the job's processor time. Therefore the JVM
    calls this object itself, whose methods get Java's events.
    """

    class Java:
        """Names the Java interface."""

        implements = ("org.apache.spark.sql.streaming.PythonStreamingQueryListener",)

    def __init__(self, query_name: str, on_progress: Callable[[BatchProgress], None]) -> None:
        self._query_name = query_name
        self._on_progress = on_progress
        self._in_jvm: Any = None

    @property
    def _jlistener(self) -> Any:
        if self._in_jvm is None:
            jvm: Any = SparkContext._jvm
            self._in_jvm = jvm.org.apache.spark.sql.streaming.PythonStreamingQueryListenerWrapper(self)
        return self._in_jvm

    def onQueryStarted(self, event: Any) -> None:  # noqa: N802  the JVM calls it by this name
        """Do nothing."""

    def onQueryProgress(self, event: Any) -> None:  # noqa: N802  as above
        """Report a finished batch."""
        report = json.loads(event.progress().json())
        if report.get("name") == self._query_name:
            self._on_progress(progress_of(report))

    def onQueryTerminated(self, event: Any) -> None:  # noqa: N802  as above
        """Do nothing: the job waits for the query itself."""


def progress_of(report: Mapping[str, Any]) -> BatchProgress:
    """Return the progress in Spark's report of a batch of the query, which reads one topic.

    Spark leaves out what is empty.
    """
    return BatchProgress(
        durations_ms=report.get("durationMs", {}),
        messages=report["numInputRows"],
        ends=ends_of(report["sources"][0]["endOffset"]),
    )
