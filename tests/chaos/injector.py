"""Strikes faults from a thread of its own while a workload goes on."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from queue import SimpleQueue

from tests.chaos.keeper import Keeper
from tests.chaos.schedule import Fault


class Injector:
    """Strikes each fault when its operation is reached, and a moment later."""

    def __init__(self, keeper: Keeper, faults: Sequence[Fault]) -> None:
        self._keeper = keeper
        self._faults: Iterator[Fault] = iter(faults)
        self._next = next(self._faults, None)
        self._due: SimpleQueue[Fault | None] = SimpleQueue()
        self._waiting = 0
        self._changed = threading.Condition()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="faults")

    def __enter__(self) -> Injector:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._due.put(None)
        self._thread.join()

    def reached(self, number: int) -> None:
        """The workload has come to this operation."""
        while self._next is not None and self._next.operation <= number:
            with self._changed:
                self._waiting += 1
            self._due.put(self._next)
            self._next = next(self._faults, None)

    def await_idle(self) -> None:
        """Wait until all faults that are due have struck."""
        with self._changed:
            self._changed.wait_for(lambda: not self._waiting)
        self._keeper.check()

    def _run(self) -> None:
        while (fault := self._due.get()) is not None:
            self._stop.wait(fault.delay_seconds)
            try:
                self._keeper.strike(fault)
            except Exception as error:  # a fault that cannot be struck fails the run
                self._keeper.give_up(error)
            finally:
                with self._changed:
                    self._waiting -= 1
                    self._changed.notify_all()
