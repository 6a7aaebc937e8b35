"""Gauges of where the bytes are: asked for anew after a while, and there from the start."""

from __future__ import annotations

import math
import threading

import pytest
from prometheus_client import CollectorRegistry

from schemas.records import (
    BucketLayout,
    CollectionState,
    CreateBucket,
    CreateSnapshot,
    CreateVolume,
    DeleteKey,
    PutKey,
    SetCollection,
    Settle,
)
from services.metadata import metrics
from services.plane.in_memory.client import InMemoryClient
from services.plane.in_memory.plane import InMemoryPlane
from services.storage.store import Store, StoreError


def test_the_four_states_add_up_to_the_inventory(monkeypatch: pytest.MonkeyPatch) -> None:
    client = InMemoryClient(InMemoryPlane())
    registry, stores = CollectorRegistry(), dict[int, Store]()
    metrics.MetadataMetrics(registry).watch(stores, [0])

    def value(state: str) -> float:
        found = registry.get_sample_value("deepclean_metadata_space_bytes", {"shard": "0", "state": state})
        assert found is not None
        return found

    assert math.isnan(value("live"))
    stores[0] = client.plane.processes["metadata", 0].store
    assert value("live") == 0
    for command in (
        CreateVolume("vol1"),
        CreateBucket("vol1", "tree", BucketLayout.FILE_SYSTEM_OPTIMIZED),
        PutKey("vol1", "tree", "x", 1_000),
        PutKey("vol1", "tree", "y", 20),
    ):
        client.answer(0, client.submit(0, command))
    client.request(0, CreateSnapshot("vol1", "tree", "snap"))
    client.answer(0, client.submit(0, DeleteKey("vol1", "tree", "x")))
    client.request(0, Settle("now"))
    assert value("live") == 0, "added up a moment ago"
    monkeypatch.setattr(metrics, "FRESH_SECONDS", 0.0)
    assert {state: value(state) for state in ("live", "held", "pending", "claimed")} == {
        "live": 20,
        "held": 1_000,
        "pending": 0,
        "claimed": 0,
    }
    assert client.scm(0).totals().inventory_bytes == 1_020
    assert registry.get_sample_value("deepclean_metadata_space_cells", {"shard": "0"}) == 1

    client.answer(0, client.submit(0, SetCollection("vol1", "tree", CollectionState.SHADOW, "")))
    for change in (PutKey("vol1", "tree", "z", 300), DeleteKey("vol1", "tree", "z")):
        client.answer(0, client.submit(0, change))
    client.request(0, Settle("later"))
    names = ("suspended_bytes", "suspended_versions", "shadow_bytes", "shadow_versions")
    found = [registry.get_sample_value(f"deepclean_metadata_{name}", {"shard": "0"}) for name in names]
    assert found == [300, 1, 300, 1]
    assert registry.get_sample_value("deepclean_metadata_collection_states", {"shard": "0", "state": "shadow"}) == 1

    class BrokenStore:
        def reading(self) -> None:
            raise StoreError("the disk is gone")

    stores[0] = BrokenStore()  # type: ignore[assignment]
    assert value("held") == 1_000, "the last figures stay"

    disk = threading.Event()

    class HangingStore:
        def reading(self) -> None:
            disk.wait()
            raise StoreError("the process ends")

    monkeypatch.setattr(metrics, "READ_SECONDS", 0.01)
    stores[0] = HangingStore()  # type: ignore[assignment]
    assert [value("held"), value("live")] == [1_000, 20], "a scrape does not hang"
    disk.set()
