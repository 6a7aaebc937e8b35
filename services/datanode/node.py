"""One datanode: its containers over all its disks, and the orders of mock_scm.

Each order can come any number of times, and late: it does nothing if what it wants is so already.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from typing import ParamSpec, TypeVar

import structlog

from schemas.block_store import (
    Acknowledgement,
    BlockContents,
    BlockEntry,
    DeletionOrder,
    NodeOrders,
    RemoveOrder,
    RepairOrder,
    ReplicaReport,
    ReplicaState,
)
from services.datanode.errors import BlockError, DiskError, no_container
from services.datanode.tables import Counter, shard_and_container, storage_id
from services.datanode.volume import Volume

logger = structlog.get_logger(__name__)
P = ParamSpec("P")
T = TypeVar("T")


class DataNode:
    """The containers of one datanode. Safe to use from several threads."""

    def __init__(self, volumes: Sequence[Volume]) -> None:
        self._all = list(volumes)
        self._lock = threading.RLock()
        self._places: dict[int, Volume] = {}
        self._had: set[int] = set()
        """Containers that this process has had: none is created a second time, as if it had not been lost."""
        self._repairs: dict[int, tuple[int, RepairOrder]] = {}
        """By container the shard and the order; one at a time is carried out."""
        for volume in self._all:
            for storage in volume.containers():
                self._found(storage, volume)

    def _found(self, storage: int, volume: Volume) -> None:
        """Take in a container at the start. Of two copies the newer one counts: the other disk was away meanwhile."""
        other = self._places.get(storage)
        if other is not None:
            older = min(volume, other, key=lambda one: one.counter(storage, Counter.CREATED))
            logger.warning("an older copy of a container is removed", container=storage, disk=str(older.directory))
            older.remove_container(storage, only_if_empty=False)
            volume = other if older is volume else volume
        self._places[storage] = volume
        self._had.add(storage)

    def volumes(self) -> list[Volume]:
        """Return the disks that work."""
        return [volume for volume in self._all if not volume.failure]

    def failures(self) -> list[str]:
        """Return why disks have failed."""
        return [volume.failure for volume in self._all if volume.failure]

    def place(self, shard: int, container_id: int) -> tuple[int, Volume]:
        """Return the id and the disk of a container. Raise BlockError if the datanode has no copy."""
        storage = storage_id(shard, container_id)
        volume = self._places.get(storage)
        if volume is None or volume.failure:
            raise no_container(container_id)
        return storage, volume

    def containers(self) -> list[tuple[int, Volume]]:
        """Return the containers on disks that work."""
        with self._lock:
            return [(storage, volume) for storage, volume in sorted(self._places.items()) if not volume.failure]

    def report(self, shard: int) -> tuple[ReplicaReport, ...]:
        """Return the copies of one shard's containers. A disk that does not answer any more is left out."""
        for volume in self.volumes():
            _unless_failed(volume.check)
        found = []
        for storage, volume in self.containers():
            of_shard, container_id = shard_and_container(storage)
            if of_shard == shard:
                found.append(_unless_failed(volume.report, storage, container_id))
        return tuple([one for one in found if one is not None])

    # Orders

    def obey(self, shard: int, orders: NodeOrders) -> list[Acknowledgement]:
        """Carry out orders, repairs later. Return what was done with transactions.

        An order that fails keeps none of the others from being carried out; the next heartbeat brings it again.
        """
        for container_id in orders.create:
            _unless_failed(self._create, storage_id(shard, container_id), ReplicaState.OPEN)
        for container_id in orders.close:
            _unless_failed(self._close, storage_id(shard, container_id))
        for remove in orders.remove:
            _unless_failed(self._remove, storage_id(shard, remove.container_id), remove)
        with self._lock:
            self._repairs = {key: one for key, one in self._repairs.items() if one[0] != shard} | {
                storage_id(shard, repair.container_id): (shard, repair) for repair in orders.repair
            }
        return self._take_deletions(shard, orders.delete)

    def _create(self, storage: int, state: ReplicaState) -> None:
        with self._lock:
            if storage in self._had or not (volumes := self.volumes()):
                return
            volume = min(volumes, key=_order_of_filling)
            volume.create(storage, state)
            self._places[storage] = volume
            self._had.add(storage)

    def _close(self, storage: int) -> None:
        volume = self._places.get(storage)
        if volume is not None and not volume.failure and volume.state(storage) is ReplicaState.OPEN:
            volume.close_container(storage)

    def _remove(self, storage: int, order: RemoveOrder) -> None:
        with self._lock:
            volume = self._places.get(storage)
            if volume is None or volume.failure:
                return
            if volume.remove_container(storage, only_if_empty=order.only_if_empty):
                del self._places[storage]

    def _take_deletions(self, shard: int, orders: Iterable[DeletionOrder]) -> list[Acknowledgement]:
        taken = []
        for order in orders:
            storage = storage_id(shard, order.container_id)
            volume = self._places.get(storage)
            if volume is not None:
                if volume.failure:
                    continue  # the disk may be back at the next start
                try:
                    volume.take_deletion(storage, order)
                except (BlockError, DiskError) as error:
                    logger.error("a deletion was not taken yet", container=order.container_id, reason=str(error))
                    continue
            taken.append(order.acknowledgement(is_stored=volume is not None))
        return taken

    def next_repair(self) -> tuple[int, RepairOrder] | None:
        """Return the shard and the order of a container that is to be repaired, and take it off the list."""
        with self._lock:
            for storage in self._repairs:
                return self._repairs.pop(storage)
            return None

    def begin_copy(self, shard: int, container_id: int) -> tuple[int, Volume]:
        """Return the place of a copy that is to be made, which may have begun before."""
        storage = storage_id(shard, container_id)
        with self._lock:
            volume = self._places.get(storage)
            if volume is None or volume.failure:
                self._places.pop(storage, None)
                self._had.discard(storage)
                self._create(storage, ReplicaState.RECOVERING)
        return self.place(shard, container_id)

    # Blocks

    def write_chunk(
        self, shard: int, container_id: int, local_id: int, writer: str, offset_bytes: int, data: bytes
    ) -> None:
        """Write a chunk of a block."""
        storage, volume = self.place(shard, container_id)
        volume.write_chunk(storage, local_id, writer, offset_bytes, data)

    def put_block(self, shard: int, container_id: int, local_id: int, writer: str, contents: BlockContents) -> None:
        """Make the written chunks the block."""
        storage, volume = self.place(shard, container_id)
        volume.put_block(storage, local_id, writer, contents)

    def read(self, shard: int, container_id: int, local_id: int, offset_bytes: int, length_bytes: int) -> bytes:
        """Return bytes of a block that were compared with their checksums."""
        storage, volume = self.place(shard, container_id)
        return volume.read(storage, local_id, offset_bytes, length_bytes)

    def blocks(self, shard: int, container_id: int, after: int, limit: int) -> list[BlockEntry]:
        """Return the blocks of a container behind a local id."""
        storage, volume = self.place(shard, container_id)
        return volume.blocks(storage, after, limit)

    def are_whole(self, shard: int, container_id: int, local_ids: Iterable[int]) -> list[bool]:
        """Return for each block whether it is here and not damaged, as far as is known."""
        storage, volume = self.place(shard, container_id)
        return [_is_sound(volume, storage, local_id) for local_id in local_ids]

    def carry_out_deletions(self, limit: int) -> tuple[int, int]:
        """Remove blocks by transactions that were taken. Return the blocks and the bytes."""
        removed = [_unless_failed(volume.carry_out_deletions, limit) for volume in self.volumes()]
        return sum(one[0] for one in removed if one), sum(one[1] for one in removed if one)

    def close(self) -> None:
        """Close the databases."""
        for volume in self._all:
            volume.close()


def _order_of_filling(volume: Volume) -> tuple[int, str]:
    """The disk with the fewest containers gets the next one."""
    return len(volume.containers()), str(volume.directory)


def _is_sound(volume: Volume, storage: int, local_id: int) -> bool:
    found = volume.blocks(storage, local_id - 1, 1)
    return bool(found) and found[0].local_id == local_id and not found[0].is_damaged


def _unless_failed(do: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> T | None:
    """Do something with a disk; return None if the disk fails at it, or is full."""
    try:
        return do(*arguments, **named)
    except DiskError as error:
        logger.error("a disk failed", reason=str(error))
    except BlockError as error:
        logger.error("a disk refuses", reason=str(error))
    return None
