"""Faults of the block store: by each of them a block was lost, or was never freed."""

from __future__ import annotations

from unittest.mock import ANY

import pytest

from schemas.block_store import Heartbeat
from schemas.records import ContainerRow
from services.datanode import volume
from services.datanode.node import DataNode
from services.datanode.tables import BLOCK_DATA, number_key
from services.domain import block_placement
from services.domain.block_placement import Facts
from services.mock_scm import deletion_log, sequences
from services.mock_scm.node_registry import NodeRegistry
from services.mock_scm.replication import Replication
from services.runtime.loop.service import Work
from services.storage.tables import UnitOfWork
from tests.faults.fault import Fault

_DATANODE = "tests/unit/test_datanode.py::"
_PLACEMENT = "tests/unit/test_block_placement.py::"
_RUNS = "tests/property/test_block_store.py::test_no_live_block_is_lost_and_no_dead_one_stays"


def a_deleted_block_is_forgotten_at_once(patch: pytest.MonkeyPatch) -> None:
    """What a slow client wrote after the deletion of its block was accepted, and nobody deleted it."""

    def forget(work: UnitOfWork, storage: int, local_id: int, *, is_closed: bool) -> None:
        work.table(BLOCK_DATA).delete(number_key(storage, local_id))

    patch.setattr(volume, "forget_block", forget)


def a_lost_container_is_created_again(patch: pytest.MonkeyPatch) -> None:
    """An order that came late made an empty copy, which was taken for the one that was lost."""
    obey = DataNode.obey

    def obey_again(self: DataNode, shard: int, orders: object) -> object:
        self._had.clear()
        return obey(self, shard, orders)  # type: ignore[arg-type]

    patch.setattr(DataNode, "obey", obey_again)


def what_is_read_is_not_compared(patch: pytest.MonkeyPatch) -> None:
    """A reader got the bytes of a file in which a bit had flipped."""
    patch.setattr(volume, "checksums_of", lambda _: ANY)


def an_acknowledgement_is_only_a_number(patch: pytest.MonkeyPatch) -> None:
    """A transaction ended by the acknowledgement of other blocks, which had had its id before."""
    patch.setattr(deletion_log, "digest_of", lambda *_: ANY)


def an_old_heartbeat_counts(patch: pytest.MonkeyPatch) -> None:
    """A heartbeat that an earlier one had overtaken was taken for the present state: a container was closed by it."""

    def is_newer(self: NodeRegistry, one: Heartbeat, now_ms: int) -> bool:
        return True

    patch.setattr(NodeRegistry, "_is_newer", is_newer)


def ids_are_taken_from_the_counters_alone(patch: pytest.MonkeyPatch) -> None:
    """A database that was restored from an older copy gave out ids that datanodes knew already."""

    def raise_nothing(name: bytes, seen: int, work: Work) -> None:
        """Give out ids again."""

    patch.setattr(sequences, "raise_to", raise_nothing)
    patch.setattr("services.mock_scm.replication.raise_to", raise_nothing)


def a_container_is_placed_before_all_have_reported(patch: pytest.MonkeyPatch) -> None:
    """Copies of which a database made again did not know were not adopted: their deletions ended without them."""
    init = Replication.__init__

    def sure_at_once(self: Replication, *arguments: object) -> None:
        init(self, *arguments)  # type: ignore[arg-type]
        patch.setattr(self, "_is_sure", lambda now_ms, work: True)

    patch.setattr(Replication, "__init__", sure_at_once)


def an_open_copy_without_blocks_counts_as_empty_whatever_others_have(patch: pytest.MonkeyPatch) -> None:
    """A container was removed although a datanode had a block of it that a client was about to commit."""
    seen = block_placement._seen

    def blind(row: ContainerRow, facts: Facts) -> ContainerRow:
        for node, copy in list(facts.copies.items()):
            object.__setattr__(copy, "block_count", 0) if node else None
        return seen(row, facts)

    patch.setattr(block_placement, "_seen", blind)


def an_old_copy_goes_as_soon_as_another_one_is_there(patch: pytest.MonkeyPatch) -> None:
    """Copies that were still being made were taken for made."""

    def sources(self: Facts, row: ContainerRow) -> list[str]:
        return [one.node for one in row.replicas if one.node in self.copies]

    patch.setattr(Facts, "sources", sources)


FAULTS = (
    Fault(
        an_old_copy_goes_as_soon_as_another_one_is_there,
        caught_by=f"{_PLACEMENT}TestRules::test_an_old_copy_stays_until_those_in_its_place_are_made",
        message="assert not True",
    ),
    Fault(
        a_deleted_block_is_forgotten_at_once,
        caught_by=f"{_DATANODE}test_what_a_slow_client_writes_after_the_deletion_is_refused",
        message="DID NOT RAISE",
    ),
    Fault(
        a_lost_container_is_created_again,
        caught_by=f"{_DATANODE}test_a_closed_container_and_one_that_is_not_there_refuse_blocks",
        message="DID NOT RAISE",
    ),
    Fault(
        what_is_read_is_not_compared,
        caught_by=f"{_DATANODE}test_a_damaged_block_is_not_read_and_is_healed_from_another_datanode",
        message="DID NOT RAISE",
    ),
    Fault(
        an_acknowledgement_is_only_a_number,
        caught_by=f"{_PLACEMENT}TestWithADatanode::test_a_deletion_ends_when_the_datanode_has_acknowledged_these_blocks",
        message="other blocks had this id",
    ),
    Fault(
        an_old_heartbeat_counts,
        caught_by=f"{_PLACEMENT}TestWithADatanode::test_an_older_heartbeat_that_arrives_later_is_ignored",
        message="KeyError|assert",
    ),
    Fault(
        ids_are_taken_from_the_counters_alone,
        caught_by=f"{_PLACEMENT}TestWithADatanode::test_ids_that_a_datanode_or_a_client_names_are_not_given_again",
        message="77",
    ),
    Fault(a_container_is_placed_before_all_have_reported, caught_by=_RUNS, message="lost: |assert"),
    Fault(
        an_open_copy_without_blocks_counts_as_empty_whatever_others_have,
        caught_by=f"{_PLACEMENT}TestRules::"
        "test_an_empty_container_is_removed_when_all_datanodes_have_said_that_it_is_empty",
        message="blocks nobody committed yet",
    ),
)
