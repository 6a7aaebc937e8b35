"""The page's connection to the plane of a home: opened when it is needed, and again when the plane was started anew."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from services.client.plane import Plane
from services.client.tasks.links import bucket_of_link
from services.client.tasks.space_view import BucketView
from services.client.tasks.volume_shards import VolumeShards
from services.plane.machine.errors import StackError
from services.plane.stack.plane_file import PlaneFile, read_plane_file, running_plane
from services.plane.stack.stack import running_client
from services.plane.upkeep.found_owners import FoundOwners, urls_of
from services.plane.upkeep.observed import plane_disk, plane_status, scrape_plane
from services.plane.upkeep.status import DiskUse, PlaneStatus, Reported, Scrapes, reported

DISK_SECONDS = 60.0
RETIRED_SECONDS = 180.0
"""How long a former connection stays open, since calls may be using it: longer than one waits for an answer."""


class Door:
    """Gives the plane, and views of its buckets."""

    def __init__(self, plane: Plane) -> None:
        self._plane = plane
        self._volumes = VolumeShards(plane)

    def plane(self) -> Plane:
        """Return the plane."""
        return self._plane

    def view(self, volume: str, bucket: str) -> BucketView:
        """Return the view of a bucket, or of that to which a link of this name leads.

        Raises:
            PlaneError: VOLUME_NOT_FOUND or BUCKET_NOT_FOUND.
        """
        plane = self.plane()
        shard = self._volumes.shard_of(volume)
        return BucketView(plane, shard, *bucket_of_link(plane, shard, volume, bucket))

    def close(self) -> None:
        """Close the connection."""
        self._plane.close()


@dataclass(slots=True)
class HomeDoor:
    """The door to the plane that runs on a home, whichever that is at the moment."""

    home: Path
    now_seconds: Callable[[], float] = time.monotonic
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False)
    _key: tuple[object, ...] = field(default=(), init=False)
    _open: Door | None = field(default=None, init=False)
    _retired: list[tuple[float, Door]] = field(default_factory=list, init=False)
    """Former connections with the moments from which on they can be closed."""

    def _opened(self) -> Door:
        key = _key_of(running_plane(self.home))
        with self._lock:
            now = self.now_seconds()
            if self._open is None or key != self._key:
                opened = Door(running_client(self.home))  # first: where it fails, the former one stays
                if self._open is not None:
                    self._retired.append((now + RETIRED_SECONDS, self._open))
                self._open, self._key = opened, key
            for _, former in [one for one in self._retired if one[0] <= now]:
                former.close()
            self._retired = [one for one in self._retired if one[0] > now]
            return self._open

    def plane(self) -> Plane:
        """Return the plane. Raise StackError if none runs."""
        return self._opened().plane()

    def view(self, volume: str, bucket: str) -> BucketView:
        """Return the view of a bucket. Raise StackError if no plane runs."""
        return self._opened().view(volume, bucket)

    def close(self) -> None:
        """Close the connection, if one is open, and the former ones."""
        with self._lock:
            for one in (*(former for _, former in self._retired), self._open):
                if one is not None:
                    one.close()
            self._open, self._retired = None, []


def _key_of(plane: PlaneFile) -> tuple[object, ...]:
    """Return what a connection depends on: another plane on the same home has other processes or addresses."""
    urls = sorted((name, process.url) for name, process in plane.processes.items())
    return (plane.supervisor, plane.bootstrap_servers, plane.shards, *urls, *sorted(plane.elsewhere.items()))


class HomeSight:
    """Looks at the plane of a home: rates are those between two looks."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self._before: Scrapes = {}
        self._owners = FoundOwners()
        self._disk: DiskUse | None = None
        self._disk_seconds = 0.0

    def look(self) -> tuple[PlaneStatus, Mapping[str, Reported]]:
        """Return the plane's status, and the metrics of its processes now and at the look before.

        Raises:
            StackError: no plane was started on the home.
        """
        plane = read_plane_file(self._home)
        if plane is None:
            raise StackError(f"no plane runs on {self._home}: start one (deepclean up)")
        now = scrape_plane(plane, self._owners)
        found = reported(self._before, now, urls_of(plane))
        self._before = now
        if self._disk is None or time.monotonic() - self._disk_seconds > DISK_SECONDS:
            self._disk, self._disk_seconds = plane_disk(plane, found), time.monotonic()
        return plane_status(plane, found, self._disk), found

    def close(self) -> None:
        """Close the connection that it has needed to find processes on other hosts."""
        self._owners.close()
