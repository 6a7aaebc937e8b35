"""A plane in memory that keeps bytes: the services are those of the in-memory plane, the datanode is a real one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from schemas.block_store import BlockContents, BlockStoreStatus, ContainerPlace, ListedTransaction, NodeOrders
from schemas.records import BlockRun, ContainerState
from services.client.errors import PlaneError
from services.datanode.errors import BlockError
from services.plane.in_memory.client import InMemoryClient
from services.plane.in_memory.plane import InMemoryPlane
from tests.datanodes import Machine, Network

NODE = "one"


class OneDatanode:
    """The block store of a shard: one datanode, which makes each container when it is asked for it.

    Implements what clients of the port ``services.client.plane.BlockStore`` write and read by.
    """

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self.read_lengths: list[int] = []
        """Bytes of each read, in their order."""

    def status(self) -> BlockStoreStatus:
        """One copy of each block."""
        return BlockStoreStatus(1, (), {}, 0, 0, 0, 0)

    def place(self, container_id: int) -> ContainerPlace:
        """The one datanode, which has every container."""
        self._machine.node.obey(0, NodeOrders(create=(container_id,)))
        return ContainerPlace(container_id, ContainerState.OPEN, True, (NODE,))

    def write_chunk(self, url: str, container_id: int, local_id: int, writer: str, offset: int, data: bytes) -> None:
        """Write a chunk of a block."""
        self._machine.node.write_chunk(0, container_id, local_id, writer, offset, data)

    def put_block(self, url: str, container_id: int, local_id: int, writer: str, contents: BlockContents) -> None:
        """Make what was written the block."""
        self._machine.node.put_block(0, container_id, local_id, writer, contents)

    def read(self, url: str, container_id: int, local_id: int, offset: int, length: int) -> bytes:
        """Read bytes of a block."""
        self.read_lengths.append(length)
        try:
            return self._machine.node.read(0, container_id, local_id, offset, length)
        except BlockError as error:
            raise PlaneError(error.code, str(error)) from error

    def transactions(self, *, is_parked: bool, start: int = 0, limit: int = 1_000) -> list[ListedTransaction]:
        """None."""
        return []

    def retry(self, deletion_txns: Sequence[int] | None) -> int:
        """Nothing."""
        return 0

    def stored_runs(self) -> Iterator[BlockRun]:
        """None."""
        return iter(())

    def are_whole(self, url: str, container_id: int, local_ids: Sequence[int]) -> list[bool]:
        """Whether blocks are there."""
        return self._machine.node.are_whole(0, container_id, list(local_ids))


class ClientWithBytes(InMemoryClient):
    """A client of a plane in memory, with a datanode below a directory."""

    def __init__(self, directory: Path) -> None:
        super().__init__(InMemoryPlane())
        network = Network(lambda _, __: NodeOrders())
        self.datanode = OneDatanode(Machine(NODE, directory, network))

    def block_store(self, shard: int) -> OneDatanode:  # type: ignore[override]  # that of the base has none
        """The datanode."""
        return self.datanode
