"""Rows and space figures of no bucket may disagree: metadata holds such a bucket back, and here it is a defect."""

from __future__ import annotations

from schemas.records import BreakerCause
from services.metadata.state.collection_states import read_collection_rows
from services.storage.tables import TablesReader
from tests.simulation.errors import DefectError


def check_that_figures_agree(tables: TablesReader, shard: int) -> None:
    """Of no bucket has metadata found that its figures are wrong.

    Raises:
        DefectError: it has.
    """
    for bucket_id, row in read_collection_rows(tables).items():
        if row.trip is not None and row.trip.cause is BreakerCause.FIGURES:
            raise DefectError(f"shard {shard}: the figures of bucket {bucket_id} would fall below zero: {row.trip}")
