"""The process of a broker after its launch, played by a process that is no broker."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from services.plane.broker.broker_logs import BrokerLogs
from services.plane.broker.embedded import EmbeddedBroker
from services.plane.broker.launched import LaunchedBroker
from services.plane.machine.errors import StackError
from services.plane.machine.ports import free_ports

Launch = Callable[[str], LaunchedBroker]
SLEEPS = "import signal; signal.pause()"
IGNORES = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('on', flush=True); signal.pause()"


@pytest.fixture
def launch(tmp_path: Path) -> Iterator[Launch]:
    launched: list[LaunchedBroker] = []
    logs = BrokerLogs(tmp_path)

    def start(program: str) -> LaunchedBroker:
        with logs.output_file.open("wb") as output:
            process = subprocess.Popen([sys.executable, "-c", program], stdout=output, stderr=output)
        launched.append(LaunchedBroker(process, 1, free_ports(1)[0], logs, None))
        return launched[-1]

    yield start
    for broker in launched:
        broker.kill()


def test_a_process_that_ends_before_it_answers_says_why_by_its_output(launch: Launch, tmp_path: Path) -> None:
    broker = launch("print('java.net.BindException: no'); raise SystemExit(3)")
    with pytest.raises(StackError, match=f"^Port {broker.port} was taken while the broker started"):
        broker.await_answer(60)
    unknown = launch("print('ERROR the moon is full'); raise SystemExit(3)")
    where = tmp_path / "broker.out"
    with pytest.raises(StackError, match=rf"at its start with status 3 \(ERROR the moon is full\): read {where}"):
        unknown.await_answer(60)
    assert str(unknown.why_it_ended()).startswith("The broker ended with status 3")


def test_a_process_that_does_not_answer_in_time_is_left_to_its_owner(launch: Launch) -> None:
    broker = launch(SLEEPS)
    with pytest.raises(StackError, match=r"did not answer on 127\.0\.0\.1:\d+ within 0\.2 seconds"):
        broker.await_answer(0.2)
    assert broker.is_running
    broker.stop(60)
    assert str(broker.why_it_ended()).startswith("The broker ended with status SIGTERM")


def test_a_process_that_does_not_end_in_time_is_killed(launch: Launch) -> None:
    broker = launch(IGNORES)
    while not broker.logs.output_file.read_bytes():  # it would end before it ignores the signal
        assert broker.is_running
    broker.stop(0.1)
    assert not broker.is_running
    assert "SIGKILL" in str(broker.why_it_ended())


def test_a_broker_that_was_never_launched_is_nothing_to_stop(tmp_path: Path) -> None:
    broker = EmbeddedBroker(tmp_path / "broker")
    broker.stop()
    broker.kill()
    assert not broker.is_running
    assert broker.process_id is None
    assert str(broker.why_it_ended()).startswith("The broker is not running: read")
    with pytest.raises(StackError, match="start it first"):
        _ = broker.bootstrap_servers
