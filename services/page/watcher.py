"""Watches a plane for the page, in a thread: its status, the way of a deletion, and bytes over time."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from schemas.credentials import CredentialsError
from services.client.errors import PlaneError
from services.client.plane import Plane
from services.domain.errors import DeepcleanError
from services.page.bucket_views import bytes_by_state, largest_buckets
from services.page.history import History
from services.page.stations import stations
from services.page.troubles import troubles
from services.plane.upkeep.status import PlaneStatus, Reported

WATCH_SECONDS = 5.0
BUCKETS_EVERY = 2
"""Buckets are observed every so many rounds: each costs a read."""
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
    _histories: dict[tuple[str, str], History] = field(default_factory=dict, init=False)
    _asked: dict[tuple[str, str], int] = field(default_factory=dict, init=False)
    """Shards of the buckets at which somebody looked, the latest last."""
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
            seen = {
                "error": "",
                "state": status.state,
                "shards": status.shards,
                "processes": status.processes,
                "stations": stations(reported, status.backlog),
                "troubles": troubles(status),
            }
            if self._rounds % BUCKETS_EVERY == 0:
                plane = self.plane()
                if plane.shards < status.shards:
                    plane.learn_shards()
                self._observe_bytes(plane)
            self._rounds += 1
        except (DeepcleanError, CredentialsError, OSError) as error:
            seen = {"error": f"The plane cannot be seen: {error}"}
            if seen["error"] != self._seen.get("error"):
                logger.warning("the plane cannot be seen: %s", error)
        except Exception as error:  # a watch that ended would leave its last observation as the present one
            logger.exception("a look at the plane has failed")
            seen = {"error": f"The plane cannot be seen: the page's process has failed ({error!r}); its log has more."}
        with self._lock:
            self._seen = {**seen, "seen_ms": self.now_ms()}

    def _observe_bytes(self, plane: Plane) -> None:
        """Add the bytes by state of the largest buckets, and their sum, to the histories."""
        at_ms = self.now_ms()
        found: dict[tuple[str, str], dict[str, int]] = {}
        whole: dict[str, int] = {}
        largest = {(row.volume, row.bucket): shard for shard, row in largest_buckets(plane).rows}
        with self._lock:
            asked = dict(self._asked)
        for name, shard in (asked | largest).items():
            try:
                amounts = bytes_by_state(plane.metadata(shard).space(*name, limit=1))
            except PlaneError:  # deleted meanwhile
                continue
            found[name] = amounts
            for state, size_bytes in amounts.items() if name in largest else ():
                whole[state] = whole.get(state, 0) + size_bytes
        with self._lock:
            self._histories = {name: self._histories.get(name, History()) for name in (TOTAL, *found)}
            for name, amounts in {TOTAL: whole, **found}.items():
                self._histories[name].add(at_ms, amounts)

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
