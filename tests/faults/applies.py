"""Defects that make one command take as long as there is data, put back by hand; and what a paged search may miss."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest

from schemas.records import DeletedDirectoryRow
from services.domain.space_matrix import EMPTY, cell_counts, merged_after_drop
from services.domain.table_keys import bucket_id_prefix, holders_of_cell
from services.metadata.collecting import expansion, sweeps
from services.metadata.state import orphan_search, space
from services.metadata.state.directory_paths import DirectoryPaths
from services.metadata.state.orphan_search import OrphanSearch
from services.metadata.state.space import SpaceChanges, cell_of
from services.metadata.state.tables import SPACE_TABLE
from services.runtime.loop.runner import Runner
from services.runtime.loop.service import Work
from services.storage import linked_files
from services.storage.empty_stretches import EmptyStretches
from services.storage.store import prefix_end
from services.storage.tables import CachedRows, UnitOfWork
from tests.faults.fault import Fault

_UNBOUNDED = 1 << 40


def a_drop_reads_the_whole_matrix(patch: pytest.MonkeyPatch) -> None:
    """A drop decoded every cell of its bucket, which grow as the square of the snapshots."""

    def drop(self: SpaceChanges, work: Work, bucket_id: int, dropped: int, live: tuple[int, ...]) -> int:
        prefix = bucket_id_prefix(bucket_id)
        rows = work.table(SPACE_TABLE).scan(prefix, prefix_end(prefix))
        cells = {holders_of_cell(key): cell_of(value) for key, value in rows}
        for holder, cell in merged_after_drop(cells, dropped, live).items():
            self._put(work, bucket_id, holder, cell_counts(cell))
        return cells.get((dropped, dropped), EMPTY).rows

    patch.setattr(SpaceChanges, "drop", drop)


def a_drop_forgets_the_cells_that_end_with_it(patch: pytest.MonkeyPatch) -> None:
    """Only the cells that begin with the dropped snapshot were merged: they are the ones in one range."""
    patch.setattr(space, "_cells_until", lambda work, bucket_id, last, live: {})


def a_scan_steps_over_what_was_removed(patch: pytest.MonkeyPatch) -> None:
    """Each sweep of a range stepped over all rows that sweeps before it had removed there."""
    patch.setattr(EmptyStretches, "_remember", lambda *_: None)


def a_stretch_outlives_a_row(patch: pytest.MonkeyPatch) -> None:
    """A row that was written where a scan had found nothing was never found."""
    patch.setattr(EmptyStretches, "written", lambda *_: None)


def an_old_scan_says_what_is_empty(patch: pytest.MonkeyPatch) -> None:
    """A scan from before a write remembered a stretch in which a row had been written since."""
    original = EmptyStretches.written

    def written(self: EmptyStretches, rows: Mapping[bytes, Any]) -> None:
        original(self, rows)
        self._writes -= 1

    patch.setattr(EmptyStretches, "written", written)


def every_checkpoint_is_listed_each_time(patch: pytest.MonkeyPatch) -> None:
    """Every five seconds all files of all checkpoints were asked for their sizes, and the writer waited for Python."""
    patch.setattr(linked_files, "_time_of_change", lambda *_: linked_files._UNSURE)


def a_directory_that_has_changed_is_not_listed_again(patch: pytest.MonkeyPatch) -> None:
    """What was trimmed from a checkpoint, or added to it, was not seen once it had been listed."""
    patch.setattr(linked_files, "_time_of_change", lambda *_: 0)


def a_directory_that_changed_in_a_tick_is_not_listed_again(patch: pytest.MonkeyPatch) -> None:
    """What was added to a checkpoint within the tick in which it was listed was not seen."""
    patch.setattr(linked_files, "_SAME_TICK_NS", 0)


def a_sweeps_page_reads_without_bound(patch: pytest.MonkeyPatch) -> None:
    """A page whose filter passed little looked through very many rows at once."""
    page = sweeps._Page.carry_out

    def carry_out(self: sweeps._Page, first: bytes, end: bytes) -> tuple[int, bytes]:
        patch.setattr(sweeps, "MAX_ROWS_READ", _UNBOUNDED)
        return page(self, first, end)

    patch.setattr(sweeps._Page, "carry_out", carry_out)


def a_unit_counts_what_it_changes_alone(patch: pytest.MonkeyPatch) -> None:
    """Messages that read much and change nothing, as pages of sweeps, were taken in one unit."""
    patch.setattr(UnitOfWork, "rows", lambda self: self._changes + len(self._journal))


def a_step_applies_all_that_was_read(patch: pytest.MonkeyPatch) -> None:
    """A step ended only when all messages that were read at once were taken in, unit after unit."""
    step = Runner.step

    def all_of_them(self: Runner, timeout_seconds: float = 0.0) -> int:
        taken = step(self, timeout_seconds)
        while self._ahead or self._polled:
            taken += step(self, 0.0)
        return taken

    patch.setattr(Runner, "step", all_of_them)


def a_refused_command_forgets_every_path(patch: pytest.MonkeyPatch) -> None:
    """One refused command cleared all that was known of directories."""
    patch.setattr(DirectoryPaths, "undo_message", DirectoryPaths.clear)


def a_refused_command_leaves_its_paths(patch: pytest.MonkeyPatch) -> None:
    """A refused command left directories in the cache that it was about to make."""
    patch.setattr(DirectoryPaths, "undo_message", lambda self: None)


def a_moved_directory_keeps_the_paths_below(patch: pytest.MonkeyPatch) -> None:
    """Only the path itself was forgotten, not those of the directories in it."""

    def forget(self: DirectoryPaths, bucket_id: int, path: str = "") -> None:
        for half in (self._young, self._old):
            half.ids.pop((bucket_id, path), None)

    patch.setattr(DirectoryPaths, "forget", forget)


def the_row_cache_is_emptied_whole(patch: pytest.MonkeyPatch) -> None:
    """When it was full every row was let go of, those in use, too."""

    def emptied(self: CachedRows, rows: Any) -> None:
        if len(self._young) > self._max_rows:
            self._young.clear()
        self._young.update(rows)

    patch.setattr(CachedRows, "written", emptied)


def an_older_row_outlives_a_newer_one_in_the_cache(patch: pytest.MonkeyPatch) -> None:
    """What the older half had was asked first."""

    def get(self: CachedRows, key: bytes, default: Any) -> Any:
        return self._old.get(key, self._young.get(key, default))

    patch.setattr(CachedRows, "get", get)


def a_search_reads_the_whole_shard(patch: pytest.MonkeyPatch) -> None:
    """The search for owners of orphaned blocks looked through all versions within one command."""
    looked_on = orphan_search.looked_on

    def unbounded(work: Work, page: Any) -> Any:
        patch.setattr(orphan_search, "MAX_ROWS_READ", _UNBOUNDED)
        return looked_on(work, page)

    patch.setattr("services.metadata.collecting.orphans.looked_on", unbounded)


def a_search_misses_what_moves_behind_it(patch: pytest.MonkeyPatch) -> None:
    """Nobody looked at the rows that commands move while a search goes on."""
    patch.setattr(OrphanSearch, "look_at_message", lambda self, work: None)


def an_expansion_begins_again_with_each_page(patch: pytest.MonkeyPatch) -> None:
    """Each page stepped over all children that were moved before it."""
    save: Callable[..., None] = expansion._Page._save

    def forgetful(self: Any, row: DeletedDirectoryRow, made: int, *, is_expanded: bool) -> None:
        save(self, replace(row, next_directory="", next_file=""), made, is_expanded=is_expanded)

    patch.setattr(expansion._Page, "_save", forgetful)


_APPLIES = "tests/unit/test_applies.py"
_LINKED = "tests/unit/test_linked_files.py"
_SEARCH = "tests/property/test_orphan_search.py"
_LOOP = "tests/unit/test_loop.py"

FAULTS = (
    Fault(
        a_scan_steps_over_what_was_removed,
        caught_by="tests/unit/test_empty_stretches.py::test_a_scan_begins_where_the_one_before_has_found_the_first_row",
        message=r"assert \('fgh', b'a'\) == \('fgh', b'f'\)",
    ),
    Fault(
        a_stretch_outlives_a_row,
        caught_by="tests/unit/test_empty_stretches.py::test_a_row_that_is_put_into_a_stretch_is_found",
        message=r"assert \('k', b'k'\) == \('dk', b'd'\)",
    ),
    Fault(
        an_old_scan_says_what_is_empty,
        caught_by="tests/unit/test_empty_stretches.py::test_a_scan_that_began_before_a_write_remembers_nothing",
        message=r"assert \[b'b', b'h'\] == \[b'b', b'e', b'h'\]",
    ),
    Fault(
        a_stretch_outlives_a_row,
        caught_by="tests/property/test_unit_of_work.py::test_scans_find_whatever_earlier_scans_have_not",
        message=r"assert \[.*\] == \[",
    ),
    Fault(
        a_drop_reads_the_whole_matrix,
        caught_by=f"{_APPLIES}::test_a_drop_reads_what_touches_its_snapshot_alone",
        message=r"assert \d+ <= ",
    ),
    Fault(
        a_drop_forgets_the_cells_that_end_with_it,
        caught_by=f"{_APPLIES}::test_a_drop_reads_what_touches_its_snapshot_alone",
        message=r"SpaceCell",
    ),
    Fault(
        every_checkpoint_is_listed_each_time,
        caught_by=f"{_LINKED}::test_a_directory_is_listed_again_when_it_has_changed_and_only_then",
        message="contains 4 more items, first extra item: 'one'",
    ),
    Fault(
        a_directory_that_has_changed_is_not_listed_again,
        caught_by=f"{_LINKED}::test_each_file_counts_once_whatever_is_linked_and_removed",
        message=r"assert \d+ == \d+",
    ),
    Fault(
        a_directory_that_changed_in_a_tick_is_not_listed_again,
        caught_by=f"{_LINKED}::test_what_changes_in_the_tick_in_which_a_directory_was_listed_is_seen",
        message="assert 5 == 8",
    ),
    Fault(
        a_sweeps_page_reads_without_bound,
        caught_by=f"{_APPLIES}::test_a_sweeps_page_ends_after_so_many_rows_however_few_it_sends",
        message=r"assert \d+ <= ",
    ),
    Fault(
        a_unit_counts_what_it_changes_alone,
        caught_by=f"{_LOOP}::test_a_unit_of_work_ends_when_it_has_looked_through_enough",
        message=r"assert \[10\] == ",
    ),
    Fault(
        a_step_applies_all_that_was_read,
        caught_by=f"{_LOOP}::test_a_step_applies_one_unit_and_looks_into_the_log_before_the_next",
        message=r"assert \(1\d, ",
    ),
    Fault(
        a_refused_command_forgets_every_path,
        caught_by=f"{_APPLIES}::test_a_refused_command_discards_what_it_has_cached_itself",
        message="assert False",
    ),
    Fault(
        a_refused_command_leaves_its_paths,
        caught_by="tests/unit/test_metadata.py::TestNamespace::test_directories_of_a_refused_command_are_not_remembered",
        message="assert",
    ),
    Fault(
        a_moved_directory_keeps_the_paths_below,
        caught_by=f"{_APPLIES}::test_a_directory_that_moves_takes_the_paths_below_with_it_and_no_others",
        message=r"assert \[False, ",
    ),
    Fault(
        the_row_cache_is_emptied_whole,
        caught_by=f"{_APPLIES}::test_rows_that_are_cached_go_by_halves",
        message="it is in use",
    ),
    Fault(
        an_older_row_outlives_a_newer_one_in_the_cache,
        caught_by=f"{_APPLIES}::test_a_cached_row_is_never_older_than_the_written_one",
        message=r"assert (None|\d+) == \d+",
    ),
    Fault(
        a_search_reads_the_whole_shard,
        caught_by=f"{_APPLIES}::test_a_search_for_owners_reads_a_page_at_a_time",
        message=r"assert \d+ <= ",
    ),
    Fault(
        a_search_misses_what_moves_behind_it,
        caught_by=f"{_SEARCH}::test_an_owner_that_moves_behind_the_search_ends_it",
        message="SEARCH_IN_PROGRESS",
    ),
    Fault(
        an_expansion_begins_again_with_each_page,
        caught_by=f"{_APPLIES}::test_each_page_of_an_expansion_goes_on_where_the_last_one_ended",
        message=r"assert \d+ <= \d",
    ),
)
