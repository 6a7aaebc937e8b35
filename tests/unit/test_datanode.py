"""One datanode: what it writes to its disks, what it refuses, and what a crash or a disk leaves."""

from __future__ import annotations

from errno import ENOSPC
from functools import partial
from pathlib import Path
from shutil import rmtree
from zlib import crc32

import pytest
from prometheus_client import CollectorRegistry
from starlette.testclient import TestClient

from schemas.block_checksums import PIECE_BYTES, checksums_of, checksums_of_parts
from schemas.block_store import (
    BlockContents,
    DeletionOrder,
    Heartbeat,
    NodeOrders,
    RemoveOrder,
    RepairOrder,
    ReplicaReport,
    ReplicaState,
)
from services.datanode.errors import BlockError, DiskError
from services.datanode.http_api import routes
from services.datanode.metrics import DatanodeMetrics
from services.datanode.peers import UnreachableError
from services.datanode.repair import repair
from services.datanode.tables import Counter, shard_and_container, storage_id
from services.datanode.upkeep import Heartbeats
from services.runtime.http.server import http_app
from services.storage.memory import MemoryStore
from tests.datanodes import Machine, Network, flip_a_bit

CONTAINER = 5
DATA = bytes(range(256)) * 200


@pytest.fixture
def network() -> Network:
    return Network(lambda _, __: NodeOrders())


@pytest.fixture
def machine(network: Network, tmp_path: Path) -> Machine:
    """A datanode with two disks and one open container."""
    return added(network, "one", tmp_path)


def added(network: Network, name: str, directory: Path) -> Machine:
    machine = network.machines[name] = Machine(name, directory, network, disks=2)
    machine.node.obey(0, NodeOrders(create=(CONTAINER,)))
    return machine


def report(machine: Machine) -> ReplicaReport:
    (found,) = machine.node.report(0)
    return found


def delete(machine: Machine, txn: int, *local_ids: int) -> None:
    machine.node.obey(0, NodeOrders(delete=(DeletionOrder(txn, CONTAINER, local_ids, (1,) * len(local_ids)),)))


def refusal(machine: Machine, local_id: int, data: bytes = DATA) -> str:
    """The code with which a block is refused."""
    with pytest.raises(BlockError) as caught:
        machine.network.write(machine.name, CONTAINER, local_id, data)
    return caught.value.code


def test_checksums_are_of_pieces_wherever_the_parts_end() -> None:
    data = DATA[: 2 * PIECE_BYTES + 7]
    expected = [crc32(data[:PIECE_BYTES]), crc32(data[PIECE_BYTES : 2 * PIECE_BYTES]), crc32(data[2 * PIECE_BYTES :])]
    assert checksums_of(data) == expected
    assert list(checksums_of_parts([data[:5], data[5:30_000], data[30_000:]])) == expected
    assert list(checksums_of_parts([])) == []


def test_containers_of_all_shards_have_ids_of_their_own() -> None:
    assert shard_and_container(storage_id(1_023, 7)) == (1_023, 7)
    assert storage_id(1, 0) > storage_id(0, 2**54 - 1)
    with pytest.raises(ValueError, match="no container"):
        storage_id(0, 2**54)


def test_a_disk_has_the_families_and_keys_of_schema_v3(machine: Machine) -> None:
    big = bytes(1_048_576) + b"end"
    machine.network.write("one", CONTAINER, 42, big)
    machine.network.write("one", CONTAINER, 43, DATA)
    delete(machine, 9, 43)
    families = machine.stores[0]._families
    prefix = CONTAINER.to_bytes(8, "big") + b"|"
    assert sorted(families["block_data"].rows) == [prefix + b"%020d" % local_id for local_id in (42, 43)]
    assert list(families["delete_txns"].rows) == [prefix + b"%020d" % 9]
    assert {key.removeprefix(prefix).decode() for key in families["metadata"].rows} >= {
        "#BLOCKCOUNT", "#BYTESUSED", "#PENDINGDELETEBLOCKCOUNT", "#delTX",
    }  # fmt: skip
    volume, storage = machine.node.volumes()[0], storage_id(0, CONTAINER)
    assert volume.counter(storage, Counter.PENDING_DELETE) == 1
    assert volume.counter(storage, Counter.BYTES_USED) == len(big) + len(DATA)
    assert [entry.checksums for entry in volume.blocks(storage)] == [tuple(checksums_of(big))], "43 is on its way out"
    machine.chores.go_on(0)
    assert report(machine) == ReplicaReport(CONTAINER, ReplicaState.OPEN, 1, len(big), 0, 9)
    assert machine.files() == {(CONTAINER, 42): big}


def test_bytes_are_read_from_any_place_and_a_block_may_be_written_again(machine: Machine) -> None:
    for _ in range(2):
        machine.network.write("one", CONTAINER, 1, DATA)
    assert report(machine).block_count == 1
    for offset, length in ((0, len(DATA)), (16_383, 2), (40_000, 99_999), (len(DATA), 1), (5, 0)):
        assert machine.node.read(0, CONTAINER, 1, offset, length) == DATA[offset : offset + length]


def test_bytes_that_arrive_differently_are_refused(machine: Machine) -> None:
    machine.node.write_chunk(0, CONTAINER, 1, "a", 0, DATA)
    with pytest.raises(BlockError, match="send again"):
        machine.node.put_block(0, CONTAINER, 1, "a", BlockContents(len(DATA), (1, 2, 3, 4)))
    assert machine.files() == {}
    assert report(machine).block_count == 0


def test_two_writers_of_a_block_do_not_mix(machine: Machine) -> None:
    machine.node.write_chunk(0, CONTAINER, 1, "a", 0, DATA)
    machine.network.write("one", CONTAINER, 1, b"other", writer="b")
    assert machine.node.read(0, CONTAINER, 1, 0, 100) == b"other"


def test_a_closed_container_and_one_that_is_not_there_refuse_blocks(machine: Machine) -> None:
    machine.node.obey(0, NodeOrders(close=(CONTAINER,)))
    assert refusal(machine, 1) == "CLOSED_CONTAINER_IO"
    machine.node.obey(0, NodeOrders(remove=(RemoveOrder(CONTAINER, only_if_empty=True),)))
    assert refusal(machine, 1) == "CONTAINER_NOT_FOUND"
    machine.node.obey(0, NodeOrders(create=(CONTAINER,)))
    assert refusal(machine, 1) == "CONTAINER_NOT_FOUND", "an order that comes late makes no empty copy"


def test_a_container_with_a_block_is_not_removed_as_empty(machine: Machine) -> None:
    machine.network.write("one", CONTAINER, 1, DATA)
    machine.node.obey(0, NodeOrders(remove=(RemoveOrder(CONTAINER, only_if_empty=True),)))
    assert machine.node.read(0, CONTAINER, 1, 0, len(DATA)) == DATA
    machine.node.obey(0, NodeOrders(remove=(RemoveOrder(CONTAINER, only_if_empty=False),)))
    assert machine.node.report(0) == ()
    assert machine.files() == {}


def test_what_a_slow_client_writes_after_the_deletion_is_refused(machine: Machine) -> None:
    delete(machine, 3, 1)
    assert refusal(machine, 1) == "BLOCK_DELETED", "taken"
    machine.chores.go_on(0)
    assert refusal(machine, 1) == "BLOCK_DELETED", "carried out"
    machine.start()
    assert refusal(machine, 1) == "BLOCK_DELETED", "after a restart"
    machine.node.obey(0, NodeOrders(close=(CONTAINER,)))
    assert machine.stores[0]._families["block_data"].rows == {}, "a closed container needs no memory of it"


def test_a_deletion_that_was_acknowledged_is_carried_out_after_a_restart(machine: Machine) -> None:
    machine.network.write("one", CONTAINER, 1, DATA)
    delete(machine, 3, 1)
    machine.start()
    assert len(machine.files()) == 1
    machine.chores.go_on(0)
    assert machine.files() == {}
    delete(machine, 3, 1)
    machine.chores.go_on(10_000)
    assert (report(machine).block_count, report(machine).used_bytes) == (0, 0)


def test_two_transactions_with_one_id_are_both_carried_out(machine: Machine) -> None:
    for local_id in (1, 2, 3):
        machine.network.write("one", CONTAINER, local_id, DATA)
    delete(machine, 3, 1)
    delete(machine, 3, 2)
    machine.chores.go_on(0)
    assert set(machine.files()) == {(CONTAINER, 3)}
    assert machine.node.volumes()[0].counter(storage_id(0, CONTAINER), Counter.PENDING_DELETE) == 0


def test_files_without_rows_are_removed_at_the_start(machine: Machine) -> None:
    machine.network.write("one", CONTAINER, 1, DATA)
    machine.node.write_chunk(0, CONTAINER, 2, "a", 0, DATA)
    folder = machine.path_of(CONTAINER, 1).parent
    (folder / "3.block").write_bytes(DATA)
    machine.start()
    assert [path.name for path in folder.iterdir()] == ["1.block"]


def test_blocks_whose_database_was_lost_are_kept(machine: Machine) -> None:
    machine.network.write("one", CONTAINER, 1, DATA)
    machine.stores[0] = MemoryStore()
    with pytest.raises(DiskError, match="put back the database"):
        machine.start()
    assert len(machine.files()) == 1


def test_a_full_disk_refuses_blocks_and_does_not_fail(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    machine.network.write("one", CONTAINER, 1, DATA)
    with monkeypatch.context() as patch:
        patch.setattr("os.pwrite", lambda *_: _raise(OSError(ENOSPC, "No space left on device")))
        assert refusal(machine, 2) == "DISK_OUT_OF_SPACE"
    assert machine.node.failures() == []
    machine.network.write("one", CONTAINER, 2, DATA)


def _raise(error: OSError) -> None:
    raise error


@pytest.mark.parametrize("is_missing", [False, True])
def test_a_damaged_block_is_not_read_and_is_healed_from_another_datanode(
    machine: Machine, network: Network, tmp_path: Path, *, is_missing: bool
) -> None:
    added(network, "two", tmp_path)
    for name in ("one", "two"):
        network.write(name, CONTAINER, 1, DATA)
    path = machine.path_of(CONTAINER, 1)
    if is_missing:
        path.unlink()
    else:
        flip_a_bit(path, 20_000)
        assert machine.node.read(0, CONTAINER, 1, 40_000, 10) == DATA[40_000:40_010], "other pieces are good"
    with pytest.raises(BlockError) as caught:
        machine.node.read(0, CONTAINER, 1, 16_384, 10_000)
    assert caught.value.code == "CHECKSUM_MISMATCH"
    assert report(machine).damaged_blocks == 1
    assert repair(machine.node, 0, RepairOrder(CONTAINER, ("two",)), network) == 1
    assert path.read_bytes() == DATA
    assert report(machine).damaged_blocks == 0


def test_the_scrubber_finds_what_nobody_reads(machine: Machine) -> None:
    for local_id in range(5):
        machine.network.write("one", CONTAINER, local_id, DATA)
    machine.chores.go_on(0)
    flip_a_bit(machine.path_of(CONTAINER, 3), 1)
    machine.chores.go_on(1)
    assert report(machine).damaged_blocks == 0, "the next pass is not due"
    machine.chores.go_on(10_000)
    assert report(machine).damaged_blocks == 1
    assert machine.node.are_whole(0, CONTAINER, [2, 3, 9]) == [True, False, False]


def test_a_copy_is_made_of_what_all_sources_have_and_counts_when_it_is_whole(network: Network, tmp_path: Path) -> None:
    for name, local_ids in (("one", (1, 2)), ("two", (2, 3))):
        added(network, name, tmp_path)
        for local_id in local_ids:
            network.write(name, CONTAINER, local_id, DATA + bytes([local_id]))
        network.machines[name].node.obey(0, NodeOrders(close=(CONTAINER,)))
    third = network.machines["three"] = Machine("three", tmp_path, network)
    flip_a_bit(network.machines["one"].path_of(CONTAINER, 2), 7)
    network.machines["two"].is_up = False
    order = RepairOrder(CONTAINER, ("one", "two"))
    with pytest.raises(UnreachableError):
        repair(third.node, 0, order, network)
    assert report(third).state is ReplicaState.RECOVERING
    network.machines["two"].is_up = True
    third.start()
    repair(third.node, 0, order, network)
    assert report(third).state is ReplicaState.CLOSED
    assert third.files() == {(CONTAINER, local_id): DATA + bytes([local_id]) for local_id in (1, 2, 3)}


def test_a_copy_without_room_for_a_block_is_not_whole(
    machine: Machine, network: Network, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine.network.write("one", CONTAINER, 1, DATA)
    machine.node.obey(0, NodeOrders(close=(CONTAINER,)))
    other = network.machines["two"] = Machine("two", tmp_path, network)
    with monkeypatch.context() as patch:
        patch.setattr("os.pwrite", lambda *_: _raise(OSError(ENOSPC, "No space left on device")))
        with pytest.raises(UnreachableError, match="not copied yet"):
            repair(other.node, 0, RepairOrder(CONTAINER, ("one",)), network)
    assert report(other).state is ReplicaState.RECOVERING
    assert repair(other.node, 0, RepairOrder(CONTAINER, ("one",)), network) == 1
    assert report(other).state is ReplicaState.CLOSED


def test_what_is_damaged_on_every_source_does_not_keep_a_copy_from_being_made(
    machine: Machine, network: Network, tmp_path: Path
) -> None:
    for local_id in (1, 2):
        machine.network.write("one", CONTAINER, local_id, DATA)
    machine.node.obey(0, NodeOrders(close=(CONTAINER,)))
    flip_a_bit(machine.path_of(CONTAINER, 2), 9)
    other = network.machines["two"] = Machine("two", tmp_path, network)
    with pytest.raises(UnreachableError):
        repair(other.node, 0, RepairOrder(CONTAINER, ("one",)), network)
    repair(other.node, 0, RepairOrder(CONTAINER, ("one",)), network)
    assert report(other) == ReplicaReport(CONTAINER, ReplicaState.CLOSED, 2, 2 * len(DATA), 1, 0)
    assert set(other.files()) == {(CONTAINER, 1)}
    third = added(network, "three", tmp_path)  # a datanode comes back, and has a whole one
    network.write("three", CONTAINER, 2, DATA)
    assert repair(other.node, 0, RepairOrder(CONTAINER, ("one", "three")), network) == 1
    assert report(other).damaged_blocks == 0
    assert other.files()[CONTAINER, 2] == third.files()[CONTAINER, 2] == DATA


def begun(machine: Machine) -> list[str]:
    """Names of the files that hold what is being written."""
    return sorted(path.name for path in machine.directory.glob("one/disk-*/chunks/*/*.tmp"))


def test_what_a_client_has_begun_goes_with_its_block_or_when_the_container_is_closed(machine: Machine) -> None:
    for local_id in (1, 2, 3):
        machine.node.write_chunk(0, CONTAINER, local_id, "abc", 0, DATA)
    machine.network.write("one", CONTAINER, 1, DATA, writer="f")
    delete(machine, 9, 1, 2)
    machine.chores.go_on(0)
    assert begun(machine) == ["1.abc.tmp", "3.abc.tmp"]
    (storage, volume) = machine.node.place(0, CONTAINER)
    volume._files.write(storage, 7, "heal", 0, DATA)
    machine.node.obey(0, NodeOrders(close=(CONTAINER,)))
    assert begun(machine) == ["7.heal.tmp"]


def test_a_disk_without_room_for_a_container_takes_deletions_all_the_same(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine.network.write("one", CONTAINER, 1, DATA)
    with monkeypatch.context() as patch:
        patch.setattr("os.fsync", lambda *_: _raise(OSError(ENOSPC, "No space left on device")))
        order = DeletionOrder(9, CONTAINER, (1,), (1,))
        taken = machine.node.obey(0, NodeOrders(create=(6,), delete=(order,)))
    assert taken == [order.acknowledgement(is_stored=True)]
    assert not machine.node.failures()
    machine.chores.go_on(0)
    assert machine.files() == {}


@pytest.mark.parametrize("offset", [-1, 1 << 62])
def test_a_wrong_offset_is_refused_and_no_failure_of_the_disk(machine: Machine, offset: int) -> None:
    machine.network.write("one", CONTAINER, 1, DATA)
    found = routes(machine.node, DatanodeMetrics(CollectorRegistry()))
    app = http_app(CollectorRegistry(), list, list, found, token="")
    with TestClient(app) as client:
        base = f"/v1/shards/0/containers/{CONTAINER}/blocks"
        answers = [
            client.get(f"{base}/1", params={"offset": offset, "length": 100}),
            client.put(f"{base}/1/chunks", params={"offset": offset, "writer": "a"}, content=DATA),
            client.get(f"{base}/{'9' * 300}", params={"offset": 0, "length": 100}),
        ]
    assert [answer.json()["code"] for answer in answers] == ["INVALID_REQUEST"] * 3
    assert not machine.node.failures()


def answer_with(orders: NodeOrders, shard: int, heartbeat: Heartbeat) -> NodeOrders:
    del shard, heartbeat
    return orders


def test_deletions_of_containers_that_are_elsewhere_do_not_hurry_the_next_heartbeat(machine: Machine) -> None:
    here, elsewhere = DeletionOrder(1, CONTAINER, (1,), (1,)), DeletionOrder(2, 99, (1,), (1,))
    for orders, has_more in (((elsewhere,), False), ((here, elsewhere), True)):
        machine.network.receive = partial(answer_with, NodeOrders(delete=orders))
        assert machine.heartbeats.beat() is has_more


def test_a_datanode_goes_on_without_a_disk_that_is_gone(machine: Machine) -> None:
    machine.node.obey(0, NodeOrders(create=(6,)))
    machine.network.write("one", CONTAINER, 1, DATA)
    machine.network.write("one", 6, 1, DATA)
    rmtree(machine.disk(0))
    assert [copy.container_id for copy in machine.node.report(0)] == [6]
    assert len(machine.node.volumes()) == 1
    taken = machine.node.obey(0, NodeOrders(delete=(DeletionOrder(1, CONTAINER, (1,), (1,)),)))
    assert taken == [], "the disk may be back with the block"
    assert machine.node.read(0, 6, 1, 0, len(DATA)) == DATA
    assert "replace the disk" in machine.node.failures()[0]


def test_of_two_copies_the_newer_one_counts(machine: Machine) -> None:
    machine.network.write("one", CONTAINER, 1, DATA)
    old = machine.node.volumes()[0]
    newer = machine.node.volumes()[1]
    while newer.counter(storage_id(0, CONTAINER), Counter.CREATED) <= old.counter(
        storage_id(0, CONTAINER), Counter.CREATED
    ):
        newer.create(storage_id(0, CONTAINER), ReplicaState.CLOSED)
    machine.start()
    assert report(machine).state is ReplicaState.CLOSED
    assert machine.files() == {}, "the older copy is gone"


@pytest.mark.parametrize("has_added_shards", [True, False])
def test_a_datanode_reports_to_shards_that_were_added(machine: Machine, *, has_added_shards: bool) -> None:
    """It cannot read the log: the block store says how many shards there are."""
    heard: list[tuple[int, int]] = []
    shards = 1

    def send(shard: int, heartbeat: Heartbeat) -> NodeOrders:
        heard.append((shard, heartbeat.number))
        return NodeOrders(shards=shards)

    metrics = DatanodeMetrics(CollectorRegistry())
    heartbeats = Heartbeats(machine.node, "one", "", [0], send, metrics, has_added_shards=has_added_shards)
    heartbeats.beat()
    shards = 3
    heartbeats.beat()
    heartbeats.beat()
    added = [(1, 1), (2, 1)] if has_added_shards else []
    assert heard == [(0, 1), (0, 2), (0, 3), *added]
