"""The locks of readers beside the writer: their order, sharing, and that nobody waits for himself or for ever."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager

import pytest

from services.runtime.locks import LockLevel, LockOrderError, LockTable, ReadWriteLock

WAIT_SECONDS = 10.0
Taken = Callable[[], AbstractContextManager[None]]


class Holder:
    """A thread that takes a lock and holds it until it is told to let go."""

    def __init__(self, take: Taken) -> None:
        self.has_it = threading.Event()
        self._let_go = threading.Event()
        self._thread = threading.Thread(target=self._hold, args=(take,), daemon=True)
        self._thread.start()

    def _hold(self, take: Taken) -> None:
        with take():
            self.has_it.set()
            self._let_go.wait(WAIT_SECONDS)

    def let_go(self) -> None:
        self._let_go.set()
        self._thread.join(WAIT_SECONDS)
        assert not self._thread.is_alive()


@pytest.mark.parametrize(("first", "second"), list(itertools.product(LockLevel, LockLevel)))
def test_levels_are_taken_upwards_only(first: LockLevel, second: LockLevel) -> None:
    locks = LockTable()
    with locks.writing(first, "a"):
        if second > first:
            with locks.reading(second, "b"):
                assert locks.held_levels() == {first, second}
        else:
            with pytest.raises(LockOrderError, match=second.name), locks.reading(second, "b"):
                pytest.fail("taken out of order")
        assert locks.held_levels() == {first}
    assert locks.held_levels() == frozenset()


def test_the_order_is_ozones() -> None:
    assert [level.name for level in sorted(LockLevel)] == [
        "S3_BUCKET",
        "VOLUME",
        "BUCKET",
        "USER",
        "S3_SECRET",
        "KEY_PATH",
        "PREFIX",
        "SNAPSHOT",
    ]


def test_an_error_inside_lets_everything_go() -> None:
    locks = LockTable()
    with pytest.raises(ZeroDivisionError), locks.writing(LockLevel.BUCKET, "a", "b"):
        _ = 1 // 0
    assert locks.held_levels() == frozenset()
    with locks.writing(LockLevel.BUCKET, "a", "b"):
        pass


def test_another_thread_has_an_order_of_its_own() -> None:
    locks = LockTable()
    with locks.writing(LockLevel.SNAPSHOT, "a"):
        other = Holder(lambda: locks.writing(LockLevel.VOLUME, "b"))
        assert other.has_it.wait(WAIT_SECONDS)
        other.let_go()


def test_two_keys_of_one_stripe_do_not_wait_for_each_other() -> None:
    locks = LockTable(stripes=1)
    with locks.writing(LockLevel.KEY_PATH, "a", "b", "a"):
        waiting = Holder(lambda: locks.reading(LockLevel.KEY_PATH, "c"))
        assert not waiting.has_it.wait(0.05)
    assert waiting.has_it.wait(WAIT_SECONDS)
    waiting.let_go()


def test_readers_share_and_writers_do_not() -> None:
    locks = LockTable()
    readers = [Holder(lambda: locks.reading(LockLevel.BUCKET, "b")) for _ in range(3)]
    assert all(reader.has_it.wait(WAIT_SECONDS) for reader in readers)
    writer = Holder(lambda: locks.writing(LockLevel.BUCKET, "b"))
    assert not writer.has_it.wait(0.05)
    for reader in readers:
        reader.let_go()
    assert writer.has_it.wait(WAIT_SECONDS)
    late = Holder(lambda: locks.reading(LockLevel.BUCKET, "b"))
    assert not late.has_it.wait(0.05)
    writer.let_go()
    assert late.has_it.wait(WAIT_SECONDS)
    late.let_go()


def test_a_waiting_writer_is_not_overtaken_by_new_readers() -> None:
    locks = LockTable()
    first = Holder(lambda: locks.reading(LockLevel.BUCKET, "b"))
    assert first.has_it.wait(WAIT_SECONDS)
    writer = Holder(lambda: locks.writing(LockLevel.BUCKET, "b"))
    assert not writer.has_it.wait(0.05)
    late = Holder(lambda: locks.reading(LockLevel.BUCKET, "b"))
    assert not late.has_it.wait(0.05)
    first.let_go()
    assert writer.has_it.wait(WAIT_SECONDS)
    assert not late.has_it.is_set()
    writer.let_go()
    assert late.has_it.wait(WAIT_SECONDS)
    late.let_go()


def test_many_locks_of_one_level_in_any_order_never_stand_still() -> None:
    """Two threads that took the same keys in opposite orders would wait for each other for ever."""
    locks = LockTable(stripes=16)
    counted = {"a": 0, "b": 0, "c": 0}

    def count(keys: tuple[str, ...]) -> None:
        for _ in range(500):
            with locks.writing(LockLevel.USER, *keys):
                for key in keys:
                    counted[key] += 1

    threads = [threading.Thread(target=count, args=(keys,), daemon=True) for keys in itertools.permutations("abc")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WAIT_SECONDS)
        assert not thread.is_alive()
    assert counted == dict.fromkeys("abc", 500 * 6)


def test_a_lock_counts_its_readers_down() -> None:
    lock = ReadWriteLock()
    for _ in range(3):
        lock.acquire(is_write=False)
    for _ in range(3):
        lock.release(is_write=False)
    lock.acquire(is_write=True)
    lock.release(is_write=True)
