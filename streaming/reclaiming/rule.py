"""The rule of the plane as a native Spark expression; a property test checks that it equals the pure rule.

The columns of a bucket are those of the pure view. ``live_txns`` holds the txns of its live snapshots, after a leading
0. ``snapshots_ever`` is the number of snapshots that the bucket ever had; ``newest_txn`` is the txn of the newest of
them. Pages (``services.domain.rank_pages``) map snapshots_before_death to a cell of ``live_txns``, because a column
cannot search an array without copying it. All columns are null for a bucket that the view does not know.
"""

from __future__ import annotations

from pyspark.sql import Column, functions

RECLAIMABLE = "reclaimable"
HELD = "held"
UNKNOWN_DEATH_ERROR = "UnknownDeathError"
LIFETIME_ERROR = "LifetimeError"
CHAIN_COLUMNS = ("page_shift", "page_mask", "page_starts", "page_ranks", "live_txns", "snapshots_ever", "newest_txn")
"""The columns of a bucket, in the order of the parameters of ``verdict``."""


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
    """Return the verdict on a row: ``RECLAIMABLE``, ``HELD``, the name of an error, or null for a null input.

    snapshots_before_death = 0 is the only default: it needs no bucket in the view. Every verdict has its own
    condition, so that a null never becomes a verdict.
    """
    ever = functions.coalesce(snapshots_ever, functions.lit(0))
    is_known = (snapshots_before_death >= 0) & (snapshots_before_death <= ever)
    page = functions.call_function("shiftright", snapshots_before_death, page_shift)
    place = _cell(page_ranks, _cell(page_starts, page) + snapshots_before_death.bitwiseAND(page_mask))
    before_all = functions.lit(0).cast("long")
    previous = functions.when(snapshots_before_death == 0, before_all).otherwise(_cell(live_txns, place))
    is_last = snapshots_before_death == ever
    last_captured = functions.when(is_last & newest_txn.isNotNull(), newest_txn).otherwise(previous)
    # Both are null if no snapshot was created after the death: then there is no upper bound to check.
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
    """Return a cell; null for an index outside the array and for an unknown bucket. Never raises."""
    return functions.get(cells, index.try_cast("int"))
