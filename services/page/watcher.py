"""Watches a plane for the page, in a thread: its status, the way of a deletion, and bytes over time."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from schemas.credentials import CredentialsError
from services.client.plane import Plane
from services.domain.errors import DeepcleanError
from services.page.bucket_list import BucketList
from services.page.history import History
from services.page.stations import stations
from services.page.troubles import troubles
from services.plane.upkeep.status import PlaneStatus, Reported

WATCH_SECONDS = 5.0
BUCKETS_EVERY = 2
"""Bytes of buckets are observed every so many rounds: each bucket costs a read."""
MOST_ASKED = 50
"""Most buckets that are watched because somebody looked at them, beside the largest ones."""
STALE_SECONDS = 60.0
"""An observation of so long ago says nothing of the present."""
TOTAL = ("", "")
"""The name under which the history of the whole plane is kept."""
logger = logging.getLogger(__name__)


class Sight(Protocol):
    """Shows how a plane is at the moment."""

    def look(self) -> tuple[PlaneStatus, Mapping[str, Reported]]:
        """Return the plane's status, and the metrics of its processes now and at the look before.

        Raises:
            DeepcleanError: the plane cannot be seen.
        """
        ...


@dataclass(slots=True)
class Watcher:
    """The newest observation of a plane, and the history of its bytes."""

    plane: Callable[[], Plane]
    sight: Sight
    now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False)
    _seen: dict[str, Any] = field(default_factory=dict, init=False)
    _buckets: BucketList = field(default_factory=BucketList, init=False)
    _reading: threading.Lock = field(default_factory=threading.Lock, init=False)
    """Held while buckets are read."""
    _listed: dict[str, Any] | None = field(default=None, init=False)
    """The newest list of buckets, if it is of the present."""
    _histories: dict[tuple[str, str], History] = field(default_factory=dict, init=False)
    _asked: dict[tuple[str, str], int] = field(default_factory=dict, init=False)
    """Shards of the buckets at which somebody looked, the latest last."""
    _failure: str = field(default="", init=False)
    """Why the last look that failed has failed."""
    _rounds: int = field(default=0, init=False)
    _stop: threading.Event = field(default_factory=threading.Event, init=False)
    _thread: threading.Thread | None = field(default=None, init=False)

    def start(self) -> None:
        """Watch from now on."""
        self._thread = threading.Thread(target=self._watch, name="watcher", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop watching."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join()

    def _watch(self) -> None:
        while not self._stop.is_set():
            self.observe()
            self._stop.wait(WATCH_SECONDS)

    def observe(self) -> None:
        """Look at the plane once. What cannot be seen becomes a trouble of the answer, and never ends the watch."""
        try:
            status, reported = self.sight.look()
            seen: dict[str, Any] = {
                "error": "",
                "state": status.state,
                "shards": status.shards,
                "processes": status.processes,
                "stations": stations(reported, status.backlog),
                "troubles": troubles(status),
            }
        except Exception as error:  # a watch that ended would leave its last observation as the present one
            seen = {"error": f"The plane cannot be seen: {self._cause(error)}"}
        with self._lock:
            self._seen = {**seen, "seen_ms": self.now_ms()}
            self._listed = None if seen["error"] else self._listed
        if seen["error"]:
            return
        if self._rounds % BUCKETS_EVERY == 0:
            self._observe_bytes(seen["shards"])
        self._rounds += 1

    def _cause(self, error: Exception) -> str:
        """Return why a look has failed, and log it unless that was said already."""
        is_defect = not isinstance(error, DeepcleanError | CredentialsError | OSError)
        cause = f"the page's process has failed ({error!r}); its log has more" if is_defect else str(error)
        if cause != self._failure:
            logger.warning("the plane cannot be seen: %s", cause, exc_info=error if is_defect else None)
        self._failure = cause
        return cause

    def _observe_bytes(self, shards: int) -> None:
        """Add the bytes by state of the largest buckets, and their sum, to the histories, and keep the list of them."""
        at_ms = self.now_ms()
        with self._lock:
            asked = dict(self._asked)
        try:
            plane = self.plane()
            if plane.shards < shards:
                plane.learn_shards()
            with self._reading:
                listed, found = self._buckets.read(plane, asked)
        except Exception as error:  # whoever asks for the list reads it, and is told why that fails
            self._cause(error)
            with self._lock:
                self._listed = None
            return
        whole: dict[str, int] = {}
        for row in listed["buckets"]:
            for state, size_bytes in found[row["volume"], row["bucket"]].items():
                whole[state] = whole.get(state, 0) + size_bytes
        self._failure = ""
        with self._lock:
            self._listed = listed
            self._histories = {name: self._histories.get(name, History()) for name in (TOTAL, *found)}
            for name, amounts in {TOTAL: whole, **found}.items():
                self._histories[name].add(at_ms, amounts)

    def buckets(self) -> dict[str, Any]:
        """Return the newest list of the largest buckets; read it if the watch has none of the present.

        Raises:
            DeepcleanError: the plane cannot be seen.
        """
        if (kept := self._kept_list()) is not None:
            return kept
        with self._reading:  # of several who ask at once, one reads
            if (kept := self._kept_list()) is not None:
                return kept
            listed, _ = self._buckets.read(self.plane(), {})
            with self._lock:
                self._listed = listed
            return listed

    def _kept_list(self) -> dict[str, Any] | None:
        with self._lock:
            return self._listed

    def seen(self) -> dict[str, Any]:
        """Return the newest observation; empty before the first one. One that is too old becomes an error."""
        with self._lock:
            seen = dict(self._seen)
        age_seconds = (self.now_ms() - seen.get("seen_ms", self.now_ms())) / 1_000
        if age_seconds <= STALE_SECONDS or seen["error"]:
            return seen
        error = f"The plane cannot be seen: the last look at it is {age_seconds:,.0f} s ago. Read the page's log."
        return {"error": error, "seen_ms": seen["seen_ms"]}

    def watch(self, shard: int, volume: str, bucket: str) -> None:
        """Watch a bucket from now on, even if it is none of the largest."""
        with self._lock:
            self._asked.pop((volume, bucket), None)
            self._asked[volume, bucket] = shard
            while len(self._asked) > MOST_ASKED:
                del self._asked[next(iter(self._asked))]

    def history(self, volume: str = "", bucket: str = "") -> list[dict[str, Any]]:
        """Return the bytes by state over time, of a bucket or of the largest ones together; oldest first."""
        with self._lock:
            points = self._histories.get((volume, bucket), History()).points
            return [
                {"at_ms": one.at_ms, **{f"{state}_bytes": value for state, value in one.values.items()}}
                for one in points
            ]
