"""Keeps the processes of a plane running while faults strike them: what ends is started again, and counted.

A process may end by SIGKILL, because its broker was away, or because its disk was full when that was our doing.
Any other end is a finding: it is kept in ``failure``, and everything that waits gives up.
"""

from __future__ import annotations

import contextlib
import os
import resource
import shutil
import signal
import threading
import time
from collections import Counter
from dataclasses import replace

from services.client.errors import UnreachableError
from services.domain.errors import RetryableError
from services.plane.machine.errors import StackError
from services.plane.machine.processes import ChildProcess
from services.plane.stack.process_names import BROKER, STREAMING
from services.plane.upkeep.shard_databases import database_directory
from services.runtime.process.settings import PREFIX
from streaming.__main__ import TRY_AGAIN_STATUS
from tests.broker_cluster import BrokerCluster
from tests.chaos.counts import Counts
from tests.chaos.hosts_stack import HostsStack
from tests.chaos.linked_stack import LinkedStack
from tests.chaos.plane import ChaosPlane, home_of, program_of
from tests.chaos.repeats import repeat_messages
from tests.chaos.schedule import Fault, FaultKind

WATCH_SECONDS = 0.05
DISK_SECONDS = 2.0
READY_SECONDS = 180.0
REFUSED_STATUS = 1
"""Of a service that had to stop, after it has said why."""
FENCED = "another process publishes for"
"""What a service says whose shards another host has taken over, before it ends."""
OUTDATED = "this process may begin with a backup"
"""What a service says that has gained a shard whose log was trimmed while others ran it, before it ends."""


class Keeper:
    """Watches one plane in a thread of its own."""

    def __init__(self, stack: ChaosPlane, counts: Counts) -> None:
        self.counts = counts
        self.failure: BaseException | None = None
        self.stack = stack
        self.struck = Counter[str]()
        """Faults by the process, the broker or the topic that they were for."""
        self._lock = threading.RLock()
        self._broker_lock = threading.Lock()
        """Held while one is away: schedules beside one another lose one at a time, too."""
        self._worker_lock = threading.Lock()
        self._trim_lock = threading.Lock()
        self._logged_before: dict[str, int] = {}
        """The size of each process's log at its last start."""
        self._stop = threading.Event()
        self._next_settings: dict[str, dict[str, str]] = {}
        """What a process is told when it is started next, once."""
        self._armed: dict[str, str] = {}
        """Processes that are to die at a point, and have not yet."""
        self._without_disk: set[str] = set()
        self._thread = threading.Thread(target=self._watch, name="keeper")

    def __enter__(self) -> Keeper:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def check(self) -> None:
        """Raise what went wrong with a process, if anything did."""
        if self.failure is not None:
            raise self.failure

    def give_up(self, error: BaseException) -> None:
        """Have everything that waits end with this."""
        self.failure = self.failure or error

    def strike(self, fault: Fault) -> None:
        """Carry out a fault."""
        ways = {
            FaultKind.KILL: self._restart_broker if fault.target == BROKER else self._kill_now,
            FaultKind.CRASH_AT: self._arm,
            FaultKind.CLOCK: self._set_clock,
            FaultKind.PAUSE: self._pause,
            FaultKind.CUT: self._cut,
            FaultKind.DISK: self._fill_disk,
            FaultKind.LOSS: self._lose_databases,
            FaultKind.TWIN: self._run_twin,
            FaultKind.REPEAT: self._repeat,
            FaultKind.WORKER: self._lose_worker,
            FaultKind.TRIM: self._trim,
        }
        placed = self._placed(fault)
        ways[fault.kind](placed)
        self.struck[placed.target] += 1

    def _placed(self, fault: Fault) -> Fault:
        """Return the fault with the process that it strikes, where several hosts run one of the drawn name."""
        names = [name for name in self.stack.children if program_of(name) == fault.target]
        return replace(fault, target=names[fault.operation % len(names)]) if names else fault

    def heal(self) -> None:
        """Start anew what has still to die at a point, wait until everything is ready, and count what was restored."""
        with self._lock:
            for name in list(self._armed):
                self._kill(name, {})
        self.await_ready()
        if isinstance(self.stack, HostsStack):
            self.counts.restored = self.stack.restored()

    def await_ready(self) -> None:
        """Wait until every process says that it is ready."""
        for name in self.stack.children:
            deadline = time.monotonic() + READY_SECONDS
            while True:
                self.check()
                child = self.stack.children[name]
                identity = child.identity
                try:
                    child.await_ready(self.check)
                    if identity == child.identity:
                        break
                except StackError:  # it has died meanwhile, and is started again
                    if time.monotonic() > deadline:
                        raise
                self._stop.wait(WATCH_SECONDS)

    def _kill(self, name: str, settings: dict[str, str]) -> bool:
        """SIGKILL, and say what the next start is told; says whether it ran."""
        with self._lock:
            child = self.stack.children[name]
            self._disarm(name)
            self._without_disk.discard(name)
            self._next_settings[name] = {PREFIX + key: value for key, value in settings.items()}
            if is_running := child.is_running:
                child.kill()
                self.counts.kills[program_of(name)] += 1
            if "CRASH_AT" in settings:
                self._armed[name] = settings["CRASH_AT"].partition(":")[0]
                self.counts.armed[f"{program_of(name)} {self._armed[name]}"] += 1
            return is_running

    def _disarm(self, name: str) -> None:
        """What was to die at a point will not: it ends otherwise."""
        if point := self._armed.pop(name, None):
            self.counts.missed[f"{program_of(name)} {point}"] += 1

    def _await_running(self, name: str) -> None:
        """Wait until a process that has just died is started again: one that does not run cannot be killed."""
        deadline = time.monotonic() + READY_SECONDS
        while not self.stack.children[name].is_running:
            self.check()
            if time.monotonic() > deadline:
                raise StackError(f"{name} was not started again within {READY_SECONDS:g} seconds")
            self._stop.wait(WATCH_SECONDS)

    def _kill_now(self, fault: Fault) -> None:
        self._await_running(fault.target)
        while not self._kill(fault.target, {}):  # it has died meanwhile
            self._await_running(fault.target)

    def _arm(self, fault: Fault) -> None:
        assert fault.point is not None
        self._kill(fault.target, {"CRASH_AT": f"{fault.point.value}:{fault.passes}"})

    def _set_clock(self, fault: Fault) -> None:
        self._kill(fault.target, {"CLOCK_OFFSET_SECONDS": str(int(fault.seconds))})
        self.counts.clock_jumps += 1

    def _repeat(self, fault: Fault) -> None:
        servers = self.stack.address.bootstrap_servers
        self.counts.repeated_messages += repeat_messages(servers, self.stack.shards, fault)

    def _lose_databases(self, fault: Fault) -> None:
        """Take all that a service has on its disk."""
        name = fault.target
        with self._lock:
            self._kill(name, {})
            for shard in range(self.stack.shards):
                directory = database_directory(home_of(self.stack.children[name]), program_of(name), shard)
                shutil.rmtree(directory, ignore_errors=True)
            self.counts.lost_databases += 1

    def _restart_broker(self, fault: Fault) -> None:
        broker = self.stack.broker
        node = broker.nodes[fault.passes % len(broker.nodes)] if isinstance(broker, BrokerCluster) else broker
        with self._broker_lock:
            node.kill()
            self.counts.kills[BROKER] += 1
            self._stop.wait(fault.seconds)
            node.start()
            self.counts.broker_restarts += 1

    def _pause(self, fault: Fault) -> None:
        if fault.target == BROKER:
            with self._broker_lock:
                self._stop_for(self.stack.broker.process_id, fault.seconds)
        else:
            self._stop_for(self._pid(fault.target), fault.seconds)

    def _stop_for(self, pid: int | None, seconds: float) -> None:
        if pid is None:
            return
        try:
            os.killpg(pid, signal.SIGSTOP)
            self.counts.pauses += 1
            self._stop.wait(seconds)
        except ProcessLookupError:
            return
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(pid, signal.SIGCONT)

    def _cut(self, fault: Fault) -> None:
        """Break a process's way to the brokers for a while."""
        assert fault.cut is not None
        with self.stack.links.cut(fault.target, fault.cut):
            self.counts.cuts[f"{program_of(fault.target)} {fault.cut.value}"] += 1
            self._stop.wait(fault.seconds)

    def _lose_worker(self, fault: Fault) -> None:
        """Kill a worker of Spark with its executors; where the job has none, there is nothing to lose."""
        if isinstance(self.stack, HostsStack):
            with self._worker_lock:
                self.stack.restart_worker(fault.passes)
                self.counts.lost_workers += 1

    def _trim(self, _: Fault) -> None:
        """Back up all hosts and trim the log; not while a process is away, whose position is unknown then."""
        if isinstance(self.stack, HostsStack):
            with contextlib.suppress(StackError, RetryableError, UnreachableError), self._trim_lock:
                self.counts.trims += self.stack.back_up_and_trim()

    def _run_twin(self, fault: Fault) -> None:
        """Let a second process of a service run for a while; metadata's refuses to if it sees the other."""
        if not isinstance(self.stack, LinkedStack):
            return
        self.counts.twins[fault.target] += 1
        directory = self.stack.home / "twins" / str(self.counts.twins.total())
        twin = self.stack.start_twin(fault.target, directory)
        try:
            self._stop.wait(fault.seconds)
        finally:
            status = twin.exit_status
            twin.kill()
            shutil.rmtree(directory, ignore_errors=True)
        if status not in (None, REFUSED_STATUS):
            raise twin.why_it_ended()

    def _pid(self, name: str) -> int | None:
        child = self.stack.children[name]
        return child.identity.pid if child.is_running and child.identity else None

    def _fill_disk(self, fault: Fault) -> None:
        """Let no file of a process grow, until it has stopped, or for a while when it has nothing to write."""
        name = fault.target
        with self._lock:
            pid = self._pid(name)
            if pid is None:
                return
            before = resource.prlimit(pid, resource.RLIMIT_FSIZE)
            resource.prlimit(pid, resource.RLIMIT_FSIZE, (1, before[1]))
            self._without_disk.add(name)
            self.counts.full_disks += 1
        deadline = time.monotonic() + DISK_SECONDS
        while time.monotonic() < deadline and self._pid(name) == pid:
            self._stop.wait(WATCH_SECONDS)
        with self._lock:
            if self._pid(name) == pid and name in self._without_disk:
                # It may have met the full disk just before, and still be on its way down: its end remains our doing.
                resource.prlimit(pid, resource.RLIMIT_FSIZE, before)

    def _watch(self) -> None:
        while not self._stop.wait(WATCH_SECONDS) and self.failure is None:
            for name in self.stack.children:
                with self._lock:
                    child = self.stack.children[name]
                    if not child.is_running:
                        self._start_again(name, child)

    def _start_again(self, name: str, child: ChildProcess) -> None:
        status = child.exit_status
        if status == -signal.SIGKILL:
            if name in self._armed and name not in self._next_settings:  # else killed to be armed: it still has to die
                self.counts.points[f"{program_of(name)} {self._armed.pop(name)}"] += 1
        elif name in self._without_disk or (name == STREAMING and status == TRY_AGAIN_STATUS):
            pass
        elif status == REFUSED_STATUS and self._has_said(name, child, FENCED):
            self.counts.fenced += 1
        elif status == REFUSED_STATUS and self._has_said(name, child, OUTDATED):
            pass
        else:
            self.failure = child.why_it_ended()
            return
        if name not in self._next_settings:
            self._disarm(name)
        self._without_disk.discard(name)
        self.counts.restarts += 1
        self._logged_before[name] = child.log_file.stat().st_size
        child.start(self._next_settings.pop(name, None))

    def _has_said(self, name: str, child: ChildProcess, said: str) -> bool:
        """Whether a process of one of several hosts has said something since its last start."""
        if not isinstance(self.stack, HostsStack):
            return False
        with child.log_file.open("rb") as log:
            log.seek(self._logged_before.get(name, 0))
            return said.encode() in log.read()
