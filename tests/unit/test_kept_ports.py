"""The ports of a plane's processes are chosen before these listen; its broker takes none of them."""

from __future__ import annotations

import random
import re
from pathlib import Path

import pytest

from services.plane.broker.embedded import EmbeddedBroker
from services.plane.machine.ports import free_ports, other_free_port


@pytest.fixture(autouse=True)
def _in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """Free ports are always the lowest ones, so that everybody who does not look out takes the same."""
    monkeypatch.setattr(random, "sample", lambda among, _: list(among))


def _ports(broker: EmbeddedBroker) -> list[int]:
    """The ports on which a broker would listen."""
    broker._prepare()
    text = (broker.directory / "server.properties").read_text("utf-8")
    return [int(port) for port in re.findall(r":(\d+)", next(re.finditer(r"^listeners=.*", text, re.MULTILINE))[0])]


def test_a_kept_port_is_not_taken() -> None:
    (first,) = free_ports(1)
    assert free_ports(1) == [first]
    assert other_free_port([first]) != first


def test_a_broker_listens_on_no_kept_port(tmp_path: Path) -> None:
    kept = free_ports(3)
    ports = _ports(EmbeddedBroker(tmp_path, kept_ports=kept))
    assert len(set(ports)) == 2
    assert not set(ports) & set(kept)


def test_a_broker_has_the_port_of_its_last_start_unless_it_is_kept(tmp_path: Path) -> None:
    first, _ = _ports(EmbeddedBroker(tmp_path))
    assert _ports(EmbeddedBroker(tmp_path, kept_ports=[first + 1]))[0] == first
    assert first not in _ports(EmbeddedBroker(tmp_path, kept_ports=[first]))
