"""What a key's row says of its blocks, and when Ozone takes two rows for the same version of a key."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any

from schemas.records import Replication
from services.domain.replication import CODES

Block = tuple[int, int]
"""Container and local id. The commit sequence is not part of it: it can differ between rows of one block."""
RATIS, ERASURE_CODED = 1, 4
UNKNOWN_BIRTH = -1
_EPOCH_OF_RATIS = 2
_COUNTER_BITS, _EPOCH_SHIFT = 8, 62
HSYNC = "hsyncClientId"
COMMITTED = "CKDEL"


def birth_of(object_id: int) -> int:
    """Return the transaction that created an object; ``UNKNOWN_BIRTH`` if its id was made without Ratis' log."""
    if (object_id >> _EPOCH_SHIFT) & 3 != _EPOCH_OF_RATIS:
        return UNKNOWN_BIRTH
    return (object_id & ((1 << _EPOCH_SHIFT) - 1)) >> _COUNTER_BITS


def blocks_of(version_lists: Iterable[Any]) -> dict[Block, int]:
    """Return the blocks of all versions in a row with their lengths, in the order of the row, each once."""
    found: dict[Block, int] = {}
    for version in version_lists:
        for location in version.locations:
            block = location.block.id
            found[block.container, block.local] = location.length
    return found


def replicated_bytes(size_bytes: int, owner: Any) -> int:
    """Return what ``size_bytes`` take on disks with the replication of ``owner``, a row that names one."""
    if owner.type == RATIS:
        return size_bytes * int(owner.factor)
    if owner.type != ERASURE_CODED or not owner.ec.data:
        return size_bytes
    cell, data, parity = int(owner.ec.cell_bytes), int(owner.ec.data), int(owner.ec.parity)
    stripes, rest = divmod(size_bytes, data * cell)
    return size_bytes + parity * (stripes * cell + min(cell, rest))


_THREE_COPIES = 3
_CODES = {(code.data, code.parity): replication for replication, code in CODES.items()}


def replication_here(owner: Any) -> Replication:
    """Return the replication of a plane that is nearest to that of a row: one copy, if there is none like it."""
    if owner.type == ERASURE_CODED:
        return _CODES.get((owner.ec.data, owner.ec.parity), Replication.RATIS_ONE)
    is_of_three = owner.type == RATIS and owner.factor == _THREE_COPIES
    return Replication.RATIS_THREE if is_of_three else Replication.RATIS_ONE


def sizes_of(lengths: Collection[int], owner: Any) -> tuple[int, int]:
    """Return the bytes of some blocks of a row, and what they take on disks: each block for itself."""
    return sum(lengths), sum(replicated_bytes(length, owner) for length in lengths)


def metadata_keys(info: Any) -> set[str]:
    """Return the names of the metadata of a row."""
    return {entry.key for entry in info.metadata}


def is_same_version(previous: Any | None, info: Any) -> bool:
    """Return whether a snapshot's row keeps a deleted one, by the rule of Ozone's filter of reclaimable keys.

    The object must be the same. The blocks of the latest version must be, too, unless both rows were hsynced. A row
    that only holds blocks which were never used has object id 0, and nothing keeps it.
    """
    if previous is None or info.object_id == 0 or previous.object_id != info.object_id:
        return False
    if HSYNC in metadata_keys(info) and HSYNC in metadata_keys(previous):
        return True
    if len(previous.versions) != len(info.versions) or not info.versions:
        return False
    return _compared(previous.versions[-1].locations) == _compared(info.versions[-1].locations)


def _compared(locations: Sequence[Any]) -> list[tuple[int, ...]]:
    return [
        (
            location.block.id.container,
            location.block.id.local,
            location.block.commit_sequence,
            location.length,
            location.offset,
            location.create_version,
        )
        for location in locations
    ]
