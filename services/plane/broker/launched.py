"""A broker whose process was started: whether it answers, how it is ended, and why it ended by itself."""

from __future__ import annotations

import contextlib
import subprocess
import time
from dataclasses import dataclass

from confluent_kafka import KafkaException

from schemas.credentials import KafkaCredentials
from services.plane.broker.broker_logs import BrokerLogs
from services.plane.broker.quiet_admin import quiet_admin
from services.plane.machine.errors import StackError
from services.plane.machine.ports import HOST
from services.plane.machine.processes import status_text

ATTEMPT_SECONDS = 0.2


@dataclass(frozen=True, slots=True)
class LaunchedBroker:
    """One process of a broker, from its start on. The next start on the same directory is another object."""

    process: subprocess.Popen[bytes]
    number: int
    port: int
    logs: BrokerLogs
    administrator: KafkaCredentials | None

    @property
    def is_running(self) -> bool:
        """Whether the process runs; it may not answer yet."""
        return self.process.poll() is None

    def await_answer(self, seconds: float) -> None:
        """Wait until the broker answers a request for metadata. Raise StackError if it ends or the time is over."""
        deadline, address = time.monotonic() + seconds, f"{HOST}:{self.port}"
        with quiet_admin(address, self.administrator) as admin:
            while time.monotonic() < deadline:
                with contextlib.suppress(KafkaException):
                    if self.number in admin.list_topics(timeout=ATTEMPT_SECONDS).brokers:
                        return
                if not self.is_running:
                    raise self._ended("stopped at its start")
        raise StackError(
            f"The broker did not answer on {address} within {seconds:g} seconds: "
            f"read {self.logs.log_file}, or start again when the machine is less busy."
        )

    def stop(self, seconds: float) -> None:
        """Send SIGTERM, wait, and kill the process if it does not end in time."""
        self.process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(seconds)
        self.kill()

    def kill(self) -> None:
        """Kill the process, as a crash would."""
        self.process.kill()
        self.process.wait()

    def why_it_ended(self) -> StackError:
        """Return the error that the logs give for an unexpected end."""
        return self._ended("ended")

    def _ended(self, how: str) -> StackError:
        what = f"{how} with status {status_text(self.process.poll())}"
        return self.logs.failure(what, self.port, self.logs.last_lines())
