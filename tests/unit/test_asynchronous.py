"""The asynchronous objects: what the synchronous ones can do, and no second description of it."""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any, TypeVar

import pytest

import deepclean
from deepclean import asynchronous, generate, threads
from deepclean import writer as writer_module
from deepclean.asynchronous import AsyncBucket, AsyncConnection
from deepclean.connection import Connection
from services.plane.in_memory.client import InMemoryClient
from services.plane.in_memory.plane import InMemoryPlane

R = TypeVar("R")
PAIRS = {
    asynchronous.AsyncVolume: deepclean.Volume,
    asynchronous.AsyncBucket: deepclean.Bucket,
    asynchronous.AsyncSnapshot: deepclean.Snapshot,
    threads.AsyncBulkWriter: deepclean.BulkWriter,
}


def run(work: Callable[[AsyncConnection], Coroutine[Any, Any, R]]) -> R:
    """Run a coroutine on a plane in memory."""

    async def connected() -> R:
        plane = InMemoryPlane()
        async with AsyncConnection(lambda: Connection(InMemoryClient(plane), busy_seconds=0)) as client:
            return await work(client)

    return asyncio.run(connected())


async def paths(entries: AsyncIterator[Any]) -> list[str]:
    return [entry.path async for entry in entries]


async def bucket_of(plane: AsyncConnection) -> AsyncBucket:
    volume = await plane.volume("photos").create()
    return await volume.bucket("holidays").create(deepclean.BucketLayout.OBJECT_STORE)


def test_the_module_is_what_the_synchronous_objects_say() -> None:
    assert generate.generated() == generate.TARGET.read_text("utf-8"), "run python -m deepclean.generate"


def _methods(cls: type[Any]) -> set[str]:
    return {name for name in dir(cls) if not name.startswith("_") and inspect.isfunction(getattr(cls, name))}


@pytest.mark.parametrize("other", PAIRS, ids=lambda cls: cls.__name__)
def test_both_have_the_same_methods_with_the_same_parameters(other: type[Any]) -> None:
    """The generator may leave out what it does not understand; this looks at the classes themselves."""
    one = PAIRS[other]
    public = _methods(one) - generate.LEFT_OUT
    assert _methods(other) == public
    for name in public:
        method, counterpart = getattr(one, name), getattr(other, name)
        assert list(inspect.signature(counterpart).parameters) == list(inspect.signature(method).parameters)
        is_awaited = inspect.iscoroutinefunction(counterpart)
        returns = str(inspect.signature(counterpart).return_annotation)
        assert is_awaited or returns.startswith("AsyncIterator") or name in generate.NO_CALLS


def test_a_session_from_a_volume_to_a_snapshot() -> None:
    async def session(plane: AsyncConnection) -> None:
        bucket = await bucket_of(plane)
        assert (bucket.volume, bucket.bucket, repr(bucket)) == (
            *("photos", "holidays"),
            "AsyncBucket('photos', 'holidays')",
        )
        link = await plane.volume("photos").bucket("link").create_link(bucket)
        await link.put("a", size_bytes=5)
        snapshot = await bucket.create_snapshot("first")
        await bucket.delete_key("a")
        async with bucket.snapshot("first") as same:
            assert await paths(same.list()) == await paths(snapshot.list()) == ["a"]
        assert await paths(bucket.list()) == []
        assert [entry.path for entry in await snapshot.diff()] == ["a"]
        assert [row.volume async for row in plane.volumes()] == ["photos"]
        with pytest.raises(deepclean.NotFoundError):
            await bucket.delete_key("a")
        await snapshot.delete()
        await plane.settle()
        assert (await bucket.space()).freed_bytes == 5

    run(session)


def test_a_listing_is_fetched_a_page_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "ROWS_PER_CALL", 2)
    monkeypatch.setattr("deepclean.namespace.PAGE_ROWS", 2)

    async def session(plane: AsyncConnection) -> None:
        bucket = await bucket_of(plane)
        async with bucket.writer() as writer:
            for number in range(7):
                await writer.put(f"{number}", size_bytes=1)
        assert await paths(bucket.list()) == [f"{number}" for number in range(7)]
        async for entry in bucket.list():
            assert entry.path == "0"
            break

    run(session)


def test_a_writer_writes_in_order_and_tells_what_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "WRITES_PER_CALL", 3)

    async def session(plane: AsyncConnection) -> None:
        bucket = await bucket_of(plane)
        async with bucket.writer(max_in_flight=2) as writer:
            for number in range(10):
                await writer.put(f"{number}", size_bytes=number)
            for number in range(5):
                await writer.delete(f"{number}")
        assert (writer.put_count, writer.deleted_count) == (10, 5)
        assert writer.txn == (await bucket.space()).txn
        assert await paths(bucket.list()) == [f"{number}" for number in range(5, 10)]
        with pytest.raises(deepclean.BulkWriteError, match="missing was not deleted"):
            async with bucket.writer() as writer:
                await writer.delete("missing")
        with pytest.raises(ZeroDivisionError):
            async with bucket.writer() as writer:
                await writer.put("a", size_bytes=1 // 0)

    run(session)


def test_a_writer_that_ends_tells_of_each_key_that_it_was_passed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer_module, "MAX_FAILURES", 3)

    async def session(plane: AsyncConnection) -> None:
        bucket = await bucket_of(plane)
        passed = []
        with pytest.raises(deepclean.BulkWriteError) as told:  # noqa: PT012
            async with bucket.writer(max_in_flight=1) as writer:
                for number in range(10 * threads.WRITES_PER_CALL):
                    passed.append(f".snapshot/{number}")
                    await writer.put(passed[-1], size_bytes=1)
        assert len(passed) == threads.WRITES_PER_CALL
        assert [failure.key for failure in told.value.failures] == passed

    run(session)


def test_calls_run_beside_each_other_and_no_more_than_there_are_threads() -> None:
    async def session() -> None:
        some = threads.Threads(2)
        barrier, running = threading.Barrier(2, timeout=30), list[int]()

        def meets() -> int:
            running.append(1)
            barrier.wait()
            return len(running)

        assert await asyncio.gather(*(some.run(meets) for _ in range(4)))
        await some.close()
        one = threads.Threads(1)
        stop = threading.Event()
        first = asyncio.ensure_future(one.run(stop.wait, 30))
        second = asyncio.ensure_future(one.run(len, "ab"))
        done, _ = await asyncio.wait([first, second], timeout=0.05)
        assert not done
        stop.set()
        assert await second == 2
        await one.close()

    asyncio.run(session())


def client_threads() -> list[str]:
    return [one.name for one in threading.enumerate() if one.name.startswith("deepclean")]


class WatchedConnection(Connection):
    """A connection to a plane in memory that notes that it is closed, and may fail to."""

    def __init__(self, error: Exception | None = None) -> None:
        super().__init__(InMemoryClient(InMemoryPlane()))
        self.error = error
        self.is_closed = threading.Event()

    def close(self) -> None:
        super().close()
        self.is_closed.set()
        if self.error:
            raise self.error


def test_other_tasks_go_on_while_a_client_waits_for_its_last_calls() -> None:
    async def session() -> bool:
        released = threading.Event()
        async with AsyncConnection(WatchedConnection) as client:
            call = asyncio.ensure_future(client._threads.run(released.wait, 5))
            await asyncio.sleep(0)
            call.cancel()
            asyncio.get_running_loop().call_later(0.2, released.set)
        return released.is_set()

    assert asyncio.run(session()), "the loop stood still until the call gave up"


def test_a_client_whose_connection_cannot_be_closed_leaves_no_threads() -> None:
    async def session() -> None:
        async with AsyncConnection(lambda: WatchedConnection(deepclean.DeepcleanError("the broker is silent"))):
            pass

    with pytest.raises(deepclean.DeepcleanError, match="silent"):
        asyncio.run(session())
    assert client_threads() == []


def test_a_connection_that_comes_too_late_is_closed() -> None:
    begun, go_on, connection = threading.Event(), threading.Event(), WatchedConnection()

    def connect() -> Connection:
        begun.set()
        go_on.wait(30)
        return connection

    async def session() -> None:
        entering = asyncio.ensure_future(AsyncConnection(connect, threads=1).__aenter__())
        await asyncio.to_thread(begun.wait, 30)
        entering.cancel()
        with pytest.raises(asyncio.CancelledError):
            await entering
        go_on.set()

    asyncio.run(session())
    assert connection.is_closed.wait(30)


def test_a_client_is_used_in_its_block() -> None:
    client = deepclean.connect_async()
    with pytest.raises(RuntimeError, match="async with"):
        client.volume("photos")


def test_what_cannot_be_connected_leaves_no_threads(tmp_path: Any) -> None:
    async def session() -> None:
        async with deepclean.connect_async(home=tmp_path):
            pass

    before = threading.active_count()
    with pytest.raises(deepclean.DeepcleanError, match="deepclean up"):
        asyncio.run(session())
    assert threading.active_count() == before
