"""The rule of the plane as a native Spark expression; a property test holds it equal to the pure one.

Of a bucket it asks what the pure view keeps: ``live_txns``, when its live snapshots were taken, with a 0 before them;
``snapshots_ever``, how many it ever had, and ``newest_txn``, when the newest of those was taken. Which cell of
``live_txns`` a row's n stands for is looked up in pages (``services.domain.rank_pages``), since a column cannot search
in an array without copying it. All are null for a bucket that the view does not know.
"""

from __future__ import annotations

from pyspark.sql import Column, functions

RECLAIMABLE = "reclaimable"
HELD = "held"
UNKNOWN_DEATH_ERROR = "UnknownDeathError"
LIFETIME_ERROR = "LifetimeError"
CHAIN_COLUMNS = ("page_shift", "page_mask", "page_starts", "page_ranks", "live_txns", "snapshots_ever", "newest_txn")
"""What a verdict asks of a bucket, in the order of ``verdict``."""


def verdict(
    birth: Column,
    death: Column,
    snapshots_before_death: Column,
    page_shift: Column,
    page_mask: Column,
    page_starts: Column,
    page_ranks: Column,
    live_txns: Column,
    snapshots_ever: Column,
    newest_txn: Column,
) -> Column:
    """Say what is to become of a row: ``RECLAIMABLE``, ``HELD``, the name of an error, or null for a null input.

    n = 0 is the only default: no snapshot before the death, whether the bucket is known or not. Every other verdict
    is said by a branch of its own, so that a null never becomes one.
    """
    ever = functions.coalesce(snapshots_ever, functions.lit(0))
    is_known = (snapshots_before_death >= 0) & (snapshots_before_death <= ever)
    page = functions.call_function("shiftright", snapshots_before_death, page_shift)
    place = _cell(page_ranks, _cell(page_starts, page) + snapshots_before_death.bitwiseAND(page_mask))
    before_all = functions.lit(0).cast("long")
    previous = functions.when(snapshots_before_death == 0, before_all).otherwise(_cell(live_txns, place))
    is_last = snapshots_before_death == ever
    last_captured = functions.when(is_last & newest_txn.isNotNull(), newest_txn).otherwise(previous)
    # None was taken since where both are null: then nothing is beyond it.
    next_captured = functions.coalesce(_cell(live_txns, place + 1), functions.when(~is_last, newest_txn))
    is_impossible = (birth <= 0) | (birth >= death) | (last_captured >= death)
    is_beyond_next = next_captured.isNotNull() & (next_captured <= death)
    return (
        functions.when(birth.isNull() | death.isNull() | snapshots_before_death.isNull(), functions.lit(None))
        .when(~is_known | previous.isNull(), functions.lit(UNKNOWN_DEATH_ERROR))
        .when(is_impossible | is_beyond_next, functions.lit(LIFETIME_ERROR))
        .when(birth > previous, functions.lit(RECLAIMABLE))
        .when(birth <= previous, functions.lit(HELD))
    )


def _cell(cells: Column, index: Column) -> Column:
    """One cell; null beyond the array, below it, and for an unknown bucket. Never raises."""
    return functions.get(cells, index.try_cast("int"))
