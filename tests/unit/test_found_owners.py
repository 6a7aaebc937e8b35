"""The processes of hosts that share the shards of a plane, as one of these hosts sees them."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry, Counter, Gauge, start_http_server

from services.page.stations import stations
from services.page.troubles import troubles
from services.plane.machine.processes import identify
from services.plane.stack.plane_file import PlaneFile, PlaneProcess, PlaneState
from services.plane.upkeep.found_owners import STEPPED, FoundOwners, urls_of
from services.plane.upkeep.observed import plane_disk, plane_status, scrape_plane
from services.plane.upkeep.status import OPEN_DEAD_LETTERS, PlaneStatus, Reported, reported
from services.runtime.http.owned_gauges import OF_STANDBYS, OwnedGauges

SILENT_URL = "http://127.0.0.1:1"


class ToldOwners(FoundOwners):
    """Owners as a topic tells them; None: no broker answers."""

    def __init__(self, told: list[tuple[str, str]] | None) -> None:
        super().__init__()
        self.told = told

    def elsewhere(self, plane: PlaneFile, owned_here: Mapping[str, set[int]]) -> list[tuple[str, str]] | None:
        return self.told


@pytest.fixture
def hosts() -> Iterator[list[str]]:
    """Two processes of `snapshots`, which own a shard each and have three open dead letters in it."""
    with ExitStack() as served:
        urls = []
        for shard in range(2):
            registry = CollectorRegistry()
            Gauge(STEPPED, "…", ["shard"], registry=registry).labels(str(shard)).set(5)
            letters = Gauge(OPEN_DEAD_LETTERS, "…", ["shard", "source"], registry=registry)
            letters.labels(str(shard), "snapshots").set(3)
            server, thread = start_http_server(0, "127.0.0.1", registry)
            served.callback(thread.join)
            served.callback(server.server_close)
            served.callback(server.shutdown)
            urls.append(f"http://127.0.0.1:{server.server_port}")
        yield urls


def plane_of(home: Path, here: Mapping[str, str], elsewhere: Mapping[str, str]) -> PlaneFile:
    me = identify(os.getpid())
    processes = {name: PlaneProcess(me, url, "") for name, url in here.items()}
    running = PlaneFile(PlaneState.RUNNING, str(home), 2, me, processes=processes, has_moving_shards=True)
    return replace(running, elsewhere=dict(elsewhere))


def seen(plane: PlaneFile, told: list[tuple[str, str]] | None) -> tuple[PlaneStatus, dict[str, Reported]]:
    owners = ToldOwners(told)
    found = reported(scrape_plane(plane, owners), scrape_plane(plane, owners), urls_of(plane))
    return plane_status(plane, found, plane_disk(plane, found)), found


def test_a_host_sees_its_own_process_and_that_of_the_other_host(tmp_path: Path, hosts: list[str]) -> None:
    status, _ = seen(plane_of(tmp_path, {"snapshots": hosts[0]}, {}), [("snapshots", hosts[1])])
    assert status.dead_letters == 6
    assert [(one.name, one.is_here, one.url) for one in status.processes] == [
        ("snapshots", True, hosts[0]),
        ("snapshots", False, hosts[1]),
    ]


def test_one_address_of_all_processes_counts_none_of_them_twice(tmp_path: Path, hosts: list[str]) -> None:
    """Kubernetes has an address for all pods of a service beside that of each pod."""
    of_all = hosts[0].replace("127.0.0.1", "localhost")
    plane = plane_of(tmp_path, {}, {"snapshots": of_all, "streaming": hosts[1]})
    status, found = seen(plane, [("snapshots", url) for url in hosts])
    assert status.dead_letters == 6
    names = [(one.name, one.url) for one in status.processes]
    assert names == [("streaming", hosts[1]), ("snapshots", hosts[0]), ("snapshots", hosts[1])]
    assert sum(one.dead_letters for one in status.processes) == 6
    assert not any(station.is_answering for station in stations(found, status.backlog) if station.process == "metadata")


def test_without_a_broker_the_description_counts_and_what_is_not_known_is_said(
    tmp_path: Path, hosts: list[str]
) -> None:
    status, _ = seen(plane_of(tmp_path, {}, {"snapshots": hosts[0]}), None)
    assert (status.dead_letters, status.unknown_shards) == (3, (0, 1))
    assert any("is not known on this host" in trouble.what for trouble in troubles(status))


def test_a_process_that_is_silent_here_is_asked_once_and_its_shards_are_not_known(
    tmp_path: Path, hosts: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    plane = plane_of(tmp_path, {"metadata": SILENT_URL}, {})
    status, found = seen(plane, [("metadata", SILENT_URL), ("metadata", hosts[1])])
    assert [(one.url, one.is_answering) for one in status.processes] == [(SILENT_URL, False), (hosts[1], True)]
    assert (status.unknown_shards, status.suspended_collections) == ((0,), None)
    assert found["metadata"].is_answering
    assert next(one for one in stations(found, status.backlog) if one.process == "metadata").is_answering


def test_gauges_of_shards_that_other_processes_own_are_not_shown() -> None:
    registry, owned = CollectorRegistry(), {0, 1}
    letters = Gauge("letters", "…", ["shard"], registry=registry)
    behind = Gauge(OF_STANDBYS, "…", ["service", "shard"], registry=registry)
    applied = Counter("applied", "…", ["shard"], registry=registry)
    Gauge("bytes", "…", registry=registry).set(7)
    for shard in ("0", "1"):
        letters.labels(shard).set(3)
        behind.labels("metadata", shard).set(2)
        applied.labels(shard).inc()
    shown = OwnedGauges(registry, lambda: owned)

    def shards_of(name: str) -> list[str]:
        samples = [one for family in shown.collect() for one in family.samples if one.name == name]
        return [one.labels.get("shard", "all") for one in samples]

    assert shards_of("letters") == ["0", "1"]
    owned.remove(1)
    assert (shards_of("letters"), shards_of("bytes")) == (["0"], ["all"])
    assert shards_of("applied_total") == shards_of(OF_STANDBYS) == ["0", "1"]
    owned.add(1)
    assert shards_of("letters") == ["0", "1"], "a shard that returns is shown again"
