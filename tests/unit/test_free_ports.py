"""Ports of a plane's processes are chosen before these listen; no other process and no other plane is given them."""

from __future__ import annotations

import random
import re
import socket
import subprocess
import sys
from collections import deque
from pathlib import Path

import pytest

from services.plane.broker.embedded import EmbeddedBroker
from services.plane.machine import ports
from services.plane.machine.ports import HOST, free_ports, hold_port, port_or_free

LOWEST_TWO = """
import random
random.sample = lambda among, _: list(among)
from services.plane.machine.ports import free_ports
print(*free_ports(2), flush=True)
input()
"""


@pytest.fixture(autouse=True)
def _in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """Free ports are always the lowest ones, so that everybody who does not look out takes the same."""
    monkeypatch.setattr(random, "sample", lambda among, _: list(among))


def _broker_ports(directory: Path) -> list[int]:
    """The ports on which a new broker would listen: for clients, and for its controller."""
    broker = EmbeddedBroker(directory)
    broker._prepare()
    text = (broker.directory / "server.properties").read_text("utf-8")
    return [int(port) for port in re.findall(r":(\d+)", next(re.finditer(r"^listeners=.*", text, re.MULTILINE))[0])]


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
    return True


def test_no_port_is_given_twice(tmp_path: Path) -> None:
    chosen = [*free_ports(3), *free_ports(2), *_broker_ports(tmp_path / "1"), *_broker_ports(tmp_path / "2")]
    assert len(set(chosen)) == 9


def test_another_process_is_given_others_until_this_one_ends() -> None:
    with subprocess.Popen([sys.executable, "-c", LOWEST_TWO], stdin=-1, stdout=-1, text=True) as other:
        assert other.stdin is not None
        assert other.stdout is not None
        theirs = [int(port) for port in other.stdout.readline().split()]
        ours = free_ports(2)
        other.stdin.close()
    assert len({*theirs, *ours}) == 4
    assert [_is_free(port) for port in (*theirs, *ours)] == [True, True, False, False]


def test_a_server_listens_on_a_port_that_is_held_for_it() -> None:
    (port,) = free_ports(1)
    with socket.create_server((HOST, port)):
        assert hold_port(port) is not None
        assert port_or_free(port) != port
    assert port_or_free(port) == port


def test_a_port_that_is_asked_for_is_held() -> None:
    (next_one,) = free_ports(1)
    while hold_port(next_one := next_one + 1):
        pass
    assert next_one not in free_ports(20)


def test_the_oldest_are_let_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ports, "_held", deque())
    monkeypatch.setattr(ports, "_MOST_HELD", 2)
    first, second, third = free_ports(3)
    assert [_is_free(port) for port in (first, second, third)] == [True, False, False]


def test_a_broker_has_the_port_of_its_last_start(tmp_path: Path) -> None:
    last, _ = _broker_ports(tmp_path)
    assert _broker_ports(tmp_path)[0] == last
