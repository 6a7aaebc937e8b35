"""Runs in which quotas decide: what fits, what does not, and what fits again once something is freed."""

from __future__ import annotations

from schemas import records
from schemas.records import BucketLayout
from services.workloads.workload import NO_LIMIT
from tests.simulation.ozone_histories import Client
from tests.simulation.simulator import Simulation


def _client(simulation: Simulation, layout: BucketLayout = BucketLayout.OBJECT_STORE) -> Client:
    return Client(simulation, layout, is_slow=False)


def a_renamed_key(simulation: Simulation) -> None:
    """A key gets another name, and counts once."""
    client = _client(simulation)
    client.put("a")
    client.do(records.RenameKey, "a", "b")


def bytes_that_a_snapshot_holds(simulation: Simulation) -> None:
    """What was deleted and is held leaves no room for as much."""
    client = _client(simulation)
    client.do(records.SetQuota, 2_000, NO_LIMIT)
    client.put_in_snapshot("snap-1", "a", size_bytes=1_000)
    client.delete("a")
    client.put("b", size_bytes=1_000)
    client.run("metadata")


def room_after_a_refusal(simulation: Simulation) -> None:
    """After a put that is too large there is as much room as before."""
    client = _client(simulation)
    client.do(records.SetQuota, 5_000, NO_LIMIT)
    client.put("large", size_bytes=5_001)
    client.put("small", size_bytes=1_000)
    client.run("metadata")


def blocks_of_an_open_key(simulation: Simulation) -> None:
    """An open key gets as many blocks as there is room for."""
    client = _client(simulation)
    client.do(records.SetQuota, 400, NO_LIMIT)
    session = client.open("a", 200)
    client.do(records.AllocateBlocks, "a", session, 200)


def blocks_that_were_not_used(simulation: Simulation) -> None:
    """Blocks that a client gives back leave room at once."""
    client = _client(simulation)
    client.do(records.SetQuota, 1_200, NO_LIMIT)
    session = client.open("a", 1_000)
    client.do(records.CommitKey, "a", session, 100)
    client.put("b")
    client.run("metadata")


def names_of_a_deleted_directory(simulation: Simulation) -> None:
    """A deleted directory has its name until its row is removed."""
    client = _client(simulation, BucketLayout.FILE_SYSTEM_OPTIMIZED)
    client.do(records.SetQuota, NO_LIMIT, 2)
    client.do(records.MakeDirectory, "a/b")
    client.do(records.DeleteDirectory, "a")
    client.do(records.MakeDirectory, "c")


def a_quota_below_what_is_used(simulation: Simulation) -> None:
    """A quota cannot be lower than what is used, deleted bytes included."""
    client = _client(simulation)
    client.put_in_snapshot("snap-1", "a", size_bytes=1_000)
    client.delete("a")
    client.do(records.SetQuota, 999, NO_LIMIT)
