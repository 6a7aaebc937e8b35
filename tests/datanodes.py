"""Datanodes in one process: real ones on real files, with databases in memory and requests that can be lost."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from prometheus_client import CollectorRegistry

from schemas.block_checksums import checksums_of
from schemas.block_store import MAX_CHUNK_BYTES, BlockContents, BlockEntry, Heartbeat, NodeOrders
from services.datanode.metrics import DatanodeMetrics
from services.datanode.node import DataNode
from services.datanode.peers import UnreachableError
from services.datanode.settings import DatanodeSettings
from services.datanode.upkeep import Chores, Heartbeats
from services.datanode.volume import Volume
from services.storage.memory import MemoryStore

Send = Callable[[int, Heartbeat], NodeOrders]
SCRUB_MS = 5_000


@dataclass
class Machine:
    """One datanode on disks that outlive its process."""

    name: str
    directory: Path
    network: Network
    disks: int = 1
    stores: dict[int, MemoryStore] = field(default_factory=dict)
    is_up: bool = True
    starts: int = 0

    def __post_init__(self) -> None:
        self.stores = {number: MemoryStore() for number in range(self.disks)}
        self.start()

    def disk(self, number: int) -> Path:
        """The directory of a disk."""
        return self.directory / self.name / f"disk-{number}"

    def start(self) -> None:
        """Start the process, or start it again after a crash."""
        self.starts += 1
        self.is_up = True
        self.node = DataNode([Volume(self.disk(number), self.stores[number]) for number in range(self.disks)])
        metrics = DatanodeMetrics(CollectorRegistry())
        self.heartbeats = Heartbeats(self.node, self.name, self.name, [0], self.network.send, metrics)
        self.heartbeats._started_ms = self.starts
        limits = DatanodeSettings(scrub_interval_ms=SCRUB_MS)
        self.chores = Chores(self.node, self.network, limits, metrics)

    def lose_disk(self, number: int) -> None:
        """Replace a disk by an empty one, while the process is down."""
        shutil.rmtree(self.disk(number))
        self.stores[number] = MemoryStore()

    def files(self) -> dict[tuple[int, int], bytes]:
        """The bytes of every block file, by container and local id."""
        found = {}
        for path in self.directory.glob(f"{self.name}/disk-*/chunks/*/*.block"):
            found[int(path.parent.name, 16), int(path.stem)] = path.read_bytes()
        return found

    def path_of(self, container_id: int, local_id: int) -> Path:
        """The file of a block."""
        (path,) = self.directory.glob(f"{self.name}/disk-*/chunks/{container_id:016x}/{local_id}.block")
        return path


class Network:
    """Carries requests between datanodes and to mock_scm; loses what a test has it lose."""

    def __init__(self, receive: Send) -> None:
        self.receive = receive
        self.machines: dict[str, Machine] = {}
        self.loses_request = False
        self.loses_answer = False

    def send(self, shard: int, heartbeat: Heartbeat) -> NodeOrders:
        """Carry a heartbeat to mock_scm."""
        if self.loses_request:
            raise UnreachableError("lost")
        orders = self.receive(shard, heartbeat)
        if self.loses_answer:
            raise UnreachableError("lost")
        return orders

    def _node(self, url: str) -> DataNode:
        if not self.machines[url].is_up:
            raise UnreachableError(f"{url} is down")
        return self.machines[url].node

    def blocks(self, url: str, shard: int, container_id: int) -> Iterator[BlockEntry]:
        """The blocks of a copy, as ``Peers`` has them."""
        yield from self._node(url).blocks(shard, container_id, -1, 2**31)

    def block(self, url: str, shard: int, container_id: int, entry: BlockEntry) -> Iterator[bytes]:
        """The bytes of a block, as ``Peers`` has them."""
        for offset in range(0, entry.size_bytes, MAX_CHUNK_BYTES):
            yield self._node(url).read(shard, container_id, entry.local_id, offset, MAX_CHUNK_BYTES)

    def write(self, url: str, container_id: int, local_id: int, data: bytes, writer: str = "a") -> None:
        """Write a block as a client does."""
        node = self._node(url)
        for offset in range(0, len(data), MAX_CHUNK_BYTES):
            node.write_chunk(0, container_id, local_id, writer, offset, data[offset : offset + MAX_CHUNK_BYTES])
        node.put_block(0, container_id, local_id, writer, BlockContents(len(data), tuple(checksums_of(data))))


def flip_a_bit(path: Path, place: int) -> None:
    """Change one bit of a file."""
    data = bytearray(path.read_bytes())
    data[place % len(data)] ^= 1 << place % 8
    path.write_bytes(data)
