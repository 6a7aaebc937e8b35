"""Defects of what must not grow for ever, put back by hand."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from schemas.records import FullChain, SpaceUpdate
from services.client.tasks import space_pages
from services.domain import chain_view
from services.domain.full_chain import FullChainParts
from services.metadata.checkpoints import capture_drop
from services.metadata.state import spent_ids
from services.plane.upkeep import trimming
from services.runtime.loop.runner import Runner
from services.runtime.loop.service import Work
from services.runtime.parts.stored_chain import StoredChain
from services.snapshots.lifecycle.protections import Protections
from services.snapshots.retention.runs import Retention
from services.snapshots.state.tables import bucket_key
from tests.faults.fault import Fault


def the_whole_chain_is_one_message(patch: pytest.MonkeyPatch) -> None:
    """A full chain was one message however long it was, and from some 190,000 snapshots on no broker took it."""
    patch.setattr(capture_drop, "in_parts", lambda buckets: [FullChain(tuple(buckets))])


def a_unit_is_offered_all_that_waits(patch: pytest.MonkeyPatch) -> None:
    """What a unit of work had no time for was read ahead again by the next one, and so on."""

    def offer(self: Runner, offered: int, applied: int) -> None:
        del self, offered, applied

    patch.setattr(Runner, "_offer_as_many_as_fit", offer)


def a_part_counts_as_the_whole(patch: pytest.MonkeyPatch) -> None:
    """A reader takes a part of the chain for all of it."""

    def follow(self: FullChainParts, version: int, part: FullChain) -> bool:
        self.version, self.count, self._parts = version, 1, [part]
        return True

    patch.setattr(FullChainParts, "follow", follow)


def a_missing_part_is_passed_over(patch: pytest.MonkeyPatch) -> None:
    """A reader that began amid the parts puts together what it has."""

    def follow(self: FullChainParts, version: int, part: FullChain) -> bool:
        self._parts = [one for one in self._parts if self.version == version and one.part < part.part] + [part]
        self.version, self.count = version, part.parts
        return part.part == part.parts

    patch.setattr(FullChainParts, "follow", follow)


def a_restart_forgets_the_parts(patch: pytest.MonkeyPatch) -> None:
    """Parts that have come are in memory alone, though the position is behind them."""
    original = StoredChain._keep_full

    def keep(self: StoredChain, record: Any, part: FullChain, work: Work, *, is_new: bool) -> None:
        if is_new:
            original(self, record, part, work, is_new=True)

    patch.setattr(StoredChain, "_keep_full", keep)


def a_marker_is_kept_for_ever(patch: pytest.MonkeyPatch) -> None:
    """The take of a snapshot stays in chainTable when it is dropped."""
    original = StoredChain._keep_marker

    def keep(self: StoredChain, body: Any, work: Work) -> None:
        before = list(work.table(_chain_table()).scan(b"/", b"0"))
        original(self, body, work)
        for key, row in before:
            if work.table(_chain_table()).get(key) is None:
                work.table(_chain_table()).put(key, row)

    patch.setattr(StoredChain, "_keep_marker", keep)


def _chain_table() -> Any:
    from services.runtime.parts.stored_chain import CHAIN_TABLE

    return CHAIN_TABLE


def a_view_keeps_what_was_dropped(patch: pytest.MonkeyPatch) -> None:
    """A view had cells, an id and a record for every snapshot that a bucket ever had."""
    original = chain_view._BucketChain.drop

    def drop(self: Any, ordinal: int) -> None:
        original(self, ordinal)
        self.by_id[f"dropped {ordinal}"] = ordinal

    patch.setattr(chain_view._BucketChain, "drop", drop)


def a_reader_starts_amid_the_parts(patch: pytest.MonkeyPatch) -> None:
    """The log was trimmed up to the newest record of a full chain, whichever part it was."""

    def newest(markers: Any) -> int | None:
        found = [offset for offset, marker in markers if isinstance(marker.body, FullChain)]
        return found[-1] if found else None

    patch.setattr(trimming, "newest_start", newest)


def a_dropped_id_is_known_for_ever(patch: pytest.MonkeyPatch) -> None:
    """Rows of dropped snapshots, and of those that were never taken, were never removed."""
    patch.setattr(spent_ids, "forget_some", lambda _: None)


def a_capture_may_come_at_any_time(patch: pytest.MonkeyPatch) -> None:
    """A take that comes again when its id is forgotten makes a second snapshot."""
    patch.setattr(spent_ids, "is_too_late", lambda *_: False)


def an_id_is_forgotten_while_its_capture_may_come(patch: pytest.MonkeyPatch) -> None:
    """An id is forgotten as soon as it is dropped."""
    patch.setattr(spent_ids, "KEPT_MS", -1)


def a_policy_outlives_its_bucket(patch: pytest.MonkeyPatch) -> None:
    """Policies of deleted buckets stayed, and failed at each of their periods."""
    patch.setattr(Retention, "forget_bucket", lambda *_: None)


def a_policy_goes_with_an_earlier_bucket_of_the_name(patch: pytest.MonkeyPatch) -> None:
    """News of a deletion takes the policy away that was set since for another bucket of the name."""

    def forget(self: Retention, place: tuple[str, str], _: SpaceUpdate, work: Work) -> None:
        self._remove(bucket_key(*place), work)

    patch.setattr(Retention, "forget_bucket", forget)


def consumers_go_by_name(patch: pytest.MonkeyPatch) -> None:
    """News of a deletion takes consumers away that read another bucket of the name."""

    def forget(self: Protections, place: tuple[str, str], _: SpaceUpdate, work: Work) -> None:
        for consumer in self.consumers_of(*place):
            self.remove_consumer(*place, consumer.consumer, work)

    patch.setattr(Protections, "forget_bucket", forget)


def a_client_reads_one_page_of_cells(patch: pytest.MonkeyPatch) -> None:
    """A client takes the first page of a matrix for all of it."""

    def first_page(reads: Any, volume: str, bucket: str) -> Iterator[Any]:
        yield from reads.space(volume, bucket, limit=space_pages.PAGE_ROWS).cells

    patch.setattr(space_pages, "all_cells", first_page)


_FULL, _SPENT = "tests/unit/test_full_chain.py", "tests/unit/test_spent_ids.py"
_RETENTION = "tests/unit/test_snapshots_retention.py"
FAULTS = (
    Fault(
        a_unit_is_offered_all_that_waits,
        caught_by="tests/unit/test_loop.py::test_a_unit_of_work_is_offered_little_more_than_it_has_room_for",
        message=r"\(2000, 1900\) == \(2000, 129\)",
    ),
    Fault(
        the_whole_chain_is_one_message,
        caught_by=f"{_FULL}::test_no_part_is_larger_than_a_message_may_be",
        message=r"assert 1 > 1",
    ),
    Fault(
        a_part_counts_as_the_whole,
        caught_by=f"{_FULL}::test_parts_that_are_sent_again_from_anywhere_make_the_same_view",
        message=r"assert ChainView|differ in bucket",
    ),
    Fault(
        a_missing_part_is_passed_over,
        caught_by=f"{_FULL}::test_one_who_begins_amid_the_parts_waits_for_the_next_full_chain",
        message=r"assert \[None, ",
    ),
    Fault(
        a_restart_forgets_the_parts,
        caught_by=f"{_FULL}::test_every_reader_judges_as_with_the_whole_list",
        message=r"assert ChainView\(version=0\) == ChainView\(version=300000\)",
    ),
    Fault(
        a_marker_is_kept_for_ever,
        caught_by=f"{_FULL}::test_captures_and_drops_leave_no_rows_behind",
        message=r"assert 502 == 2",
    ),
    Fault(
        a_view_keeps_what_was_dropped,
        caught_by="tests/unit/test_chain_view.py::test_what_was_dropped_costs_a_view_nothing",
        message=r"assert \d+ < 2000",
    ),
    Fault(
        a_reader_starts_amid_the_parts,
        caught_by=f"{_FULL}::test_a_reader_may_start_only_where_all_parts_follow",
        message=r"assert \d+ == 1",
    ),
    Fault(
        a_dropped_id_is_known_for_ever,
        caught_by=f"{_SPENT}::test_tables_hold_what_lives_and_what_was_dropped_in_two_days",
        message=r"assert 197 <= \(20 \+ 2\)",
    ),
    Fault(
        a_capture_may_come_at_any_time,
        caught_by=f"{_SPENT}::test_a_capture_that_comes_again_never_makes_a_second_snapshot",
        message=r"assert '' == 'INVALID_REQUEST'",
    ),
    Fault(
        an_id_is_forgotten_while_its_capture_may_come,
        caught_by=f"{_SPENT}::test_a_capture_that_comes_again_never_makes_a_second_snapshot",
        message=r"assert SnapshotCapt",
    ),
    Fault(
        a_policy_outlives_its_bucket,
        caught_by=f"{_RETENTION}::test_what_is_kept_of_a_bucket_by_its_name_goes_with_the_bucket",
        message=r"DID NOT RAISE",
    ),
    Fault(
        a_policy_goes_with_an_earlier_bucket_of_the_name,
        caught_by=f"{_RETENTION}::test_a_bucket_made_again_keeps_the_policy_that_was_set_for_it_whenever_the_news_comes",
        message=r"assert False",
    ),
    Fault(
        consumers_go_by_name,
        caught_by=f"{_RETENTION}::test_a_bucket_made_again_keeps_the_policy_that_was_set_for_it_whenever_the_news_comes",
        message=r"assert 0 == 1",
    ),
    Fault(
        a_client_reads_one_page_of_cells,
        caught_by="tests/contract/test_http_reads.py::test_the_cells_of_a_bucket_come_in_pages_and_all_of_them",
        message=r"assert \(SpaceCellVal",
    ),
)
