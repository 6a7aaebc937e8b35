"""Defects of space figures, put back by hand."""

from __future__ import annotations

import pytest

from services.domain.errors import InvariantError
from services.metadata.collecting import breaker
from services.metadata.state.space import SpaceChanges
from services.metadata.state.transaction import Transaction
from services.runtime.loop.service import Work
from tests.faults.fault import Fault


def one_bucket_stops_its_shard(patch: pytest.MonkeyPatch) -> None:
    """Where the figures of one bucket would fall below zero the shard stopped, and did so again at every start."""
    write = SpaceChanges.write

    def or_stop(self: SpaceChanges, work: Work) -> None:
        for bucket_id, holder in dict(self._rows.items()):
            if min(counts := self.counts(work, bucket_id, holder)) < 0:
                raise InvariantError(
                    f"the space matrix of bucket {bucket_id} would fall below zero at {holder}: {counts}"
                )
        write(self, work)

    patch.setattr(SpaceChanges, "write", or_stop)


def nobody_is_told_of_figures_that_disagree(patch: pytest.MonkeyPatch) -> None:
    """A bucket whose figures fell below zero went on being freed."""

    def forget(transaction: Transaction) -> None:
        transaction.space.disagreeing(transaction.work)

    patch.setattr(breaker, "trip_where_figures_disagree", forget)


FAULTS = (
    Fault(
        one_bucket_stops_its_shard,
        caught_by="tests/unit/test_figures.py::TestCells::test_a_bucket_is_suspended_and_the_shard_goes_on",
        message="would fall below zero",
    ),
    Fault(
        nobody_is_told_of_figures_that_disagree,
        caught_by="tests/unit/test_figures.py::TestCells::test_a_bucket_is_suspended_and_the_shard_goes_on",
        message="assert False|== \\[",
    ),
    Fault(
        nobody_is_told_of_figures_that_disagree,
        caught_by="tests/unit/test_figures.py::TestOtherFigures::test_a_version_without_blocks_stays_where_it_is",
        message=r"is_suspended_for_its_figures",
    ),
)
