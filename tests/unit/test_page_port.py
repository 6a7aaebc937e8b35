"""The page has a port behind those of the other processes, and never keeps a plane from starting."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from services.plane.machine.ports import HOST, free_ports
from services.plane.stack.process_names import PAGE, PAGE_PORT
from services.plane.stack.stack import Stack


@pytest.fixture(autouse=True)
def _others_are_free(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("services.plane.stack.stack.hold_port", lambda _: None)


def ports_of(home: Path, base_port: int, datanodes: int = 0) -> dict[str, int]:
    return Stack(home, base_port=base_port, datanodes=datanodes, has_page=True)._choose_ports()


def test_a_page_whose_port_is_taken_has_another_one(tmp_path: Path) -> None:
    (own,) = free_ports(1)
    with socket.create_server((HOST, own)):
        ports = ports_of(tmp_path, own - PAGE_PORT)
    assert ports[PAGE] != own
    assert len(set(ports.values())) == len(ports)
    assert ports_of(tmp_path, own - PAGE_PORT)[PAGE] == own


@pytest.mark.parametrize("datanodes", [72, 73, 74, 90])
def test_no_datanode_has_the_port_of_the_page(tmp_path: Path, datanodes: int) -> None:
    ports = ports_of(tmp_path, 20_000, datanodes)
    assert len(set(ports.values())) == len(ports)


def test_a_base_port_near_the_last_port_leaves_the_page_a_free_one(tmp_path: Path) -> None:
    assert ports_of(tmp_path, 65_500)[PAGE] < 65_500
