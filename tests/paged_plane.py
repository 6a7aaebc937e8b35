"""The page of a plane in memory, served on loopback: with 1 snapshot or 1,000, empty, or broken."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from random import Random

from starlette.types import ASGIApp, Receive, Scope, Send

from schemas.records import (
    BucketLayout,
    CreateBucket,
    CreateSnapshot,
    CreateTag,
    CreateVolume,
    DeleteDirectory,
    DeleteKey,
    PutKey,
    RenameKey,
    RetentionPolicy,
    SetRetention,
)
from services.client.plane import NamespaceCommand, SnapshotRequest, accepted
from services.page.app import page_app
from services.page.door import Door
from services.page.guard import Rights
from services.page.watcher import Watcher
from services.plane.in_memory.client import InMemoryClient
from services.plane.in_memory.plane import InMemoryPlane
from services.plane.machine.errors import StackError
from services.plane.stack.plane_file import PlaneState
from services.plane.upkeep.status import (
    Backlog,
    DiskUse,
    PlaneStatus,
    ProcessStatus,
    Reported,
    SuspendedCollection,
    Throughput,
)
from services.runtime.http.server import HttpServer

VOLUME, BUCKET = "sales", "reports"
KIB = 1024
DAY_MS = 86_400_000
NO_PLANE = StackError("no plane runs here: start one (deepclean up)")


def healthy(**changed: object) -> PlaneStatus:
    """The status of a plane with which nothing is wrong, but for what is changed."""
    process = ProcessStatus("metadata", True, 1, True, True, "http://127.0.0.1:1", 12.0, 0, 0.0, 0, 0, "")
    values: dict[str, object] = {
        "state": PlaneState.RUNNING,
        "reason": "",
        "home": "home",
        "shards": 1,
        "processes": (process,),
        "throughput": Throughput(0, 0, 0, 0),
        "backlog": Backlog(0.0, 2_048, 2, 0, 0, 0, 0, 0, 0, 0, 0),
        "disk": DiskUse(0, 0, 0, 0, 0, 0, 2**40),
        "dead_letters": 0,
        "newest_backup": "b1",
        "newest_backup_age_seconds": 60.0,
    }
    return PlaneStatus(**(values | changed))  # type: ignore[arg-type]


@dataclass
class GivenSight:
    """Shows what a test says, or fails."""

    status: PlaneStatus = field(default_factory=healthy)
    error: Exception | None = None

    def look(self) -> tuple[PlaneStatus, Mapping[str, Reported]]:
        if self.error is not None:
            raise self.error
        return self.status, {}


class _OneAtATime:
    """The plane in memory is of one thread; a real one is not."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._lock = asyncio.Lock()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async with self._lock:
            await self._app(scope, receive, send)


@dataclass
class PagedPlane:
    """A plane in memory with the bucket ``sales/reports``, and its page."""

    client: InMemoryClient = field(default_factory=lambda: InMemoryClient(InMemoryPlane()))
    sight: GivenSight = field(default_factory=GivenSight)
    rights: Rights = field(default_factory=Rights)
    watcher: Watcher = field(init=False)
    url: str = field(default="", init=False)

    def __post_init__(self) -> None:
        self.watcher = Watcher(lambda: self.client, self.sight)

    def execute(self, *commands: NamespaceCommand) -> None:
        for number in [self.client.submit(0, command) for command in commands]:
            accepted(self.client.answer(0, number))

    def request(self, *asked: SnapshotRequest) -> None:
        for one in asked:
            accepted(self.client.request(0, one))

    def create(self) -> None:
        """Make the bucket, without a key."""
        self.execute(CreateVolume(VOLUME), CreateBucket(VOLUME, BUCKET, BucketLayout.FILE_SYSTEM_OPTIMIZED))

    def put(self, sizes: Mapping[str, int]) -> None:
        """Put keys, each with its size in bytes."""
        self.execute(*(PutKey(VOLUME, BUCKET, path, size_bytes) for path, size_bytes in sizes.items()))

    def snapshot(self, name: str) -> None:
        self.request(CreateSnapshot(VOLUME, BUCKET, name))

    def fill(self, snapshots: int, gap_ms: int = DAY_MS, seed: int = 7) -> None:
        """Create snapshots, a gap apart, between which keys are overwritten, so that they hold versions.

        What services do every hour takes most of the time of a long gap.
        """
        random = Random(seed)
        self.create()
        paths = [f"{year}/{month:02d}/sales.csv" for year in (2025, 2026) for month in range(1, 13)]
        self.put({path: random.randrange(4, 900) * KIB for path in paths})
        for number in range(snapshots):
            self.snapshot(f"day-{number:04d}")
            self.client.plane.clock.advance(gap_ms)
            self.put({path: random.randrange(4, 900) * KIB for path in random.sample(paths, 3)})

    def fill_eventfully(self) -> None:
        """A bucket in which every part of the page has something to show."""
        self.fill(12)
        self.execute(
            DeleteKey(VOLUME, BUCKET, "2025/03/sales.csv"),
            RenameKey(VOLUME, BUCKET, "2025/04/sales.csv", "2025/april.csv"),
            DeleteDirectory(VOLUME, BUCKET, "2025/11"),
        )
        self.put({"2026/new.csv": 77 * KIB})
        self.request(
            CreateTag(VOLUME, BUCKET, "day-0003", "audit-2025", reason="the yearly audit"),
            SetRetention(VOLUME, BUCKET, RetentionPolicy(num_retained_min=4, time_retained_ms=3 * DAY_MS)),
        )

    @contextmanager
    def served(self) -> Iterator[str]:
        """Serve the page, and yield its address."""
        self.watcher.observe()
        app = page_app(Door(self.client), self.watcher, self.rights)
        app.add_middleware(_OneAtATime)
        server = HttpServer(app, "127.0.0.1", 0)
        try:
            server.start()
            self.url = server.url
            yield server.url
        finally:
            server.stop()


SUSPENDED = SuspendedCollection(0, f"{VOLUME}/{BUCKET}", "paused", "an audit", 1_000)
