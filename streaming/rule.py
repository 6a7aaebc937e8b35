"""The rule of the plane as a native Spark expression; a property test holds it equal to the pure one.

A bucket's two arrays have a cell for each n from 0 to the number of snapshots that it ever had: ``previous_cells``
the newest live snapshot among the first n, ``taken_cells`` the n-th snapshot itself, live or dropped. Both are null
for a bucket that the view does not know.
"""

from __future__ import annotations

from pyspark.sql import Column, functions

RECLAIMABLE = "reclaimable"
HELD = "held"
UNKNOWN_DEATH_ERROR = "UnknownDeathError"
LIFETIME_ERROR = "LifetimeError"


def verdict(
    birth: Column, death: Column, snapshots_before_death: Column, previous_cells: Column, taken_cells: Column
) -> Column:
    """Say what is to become of a row: ``RECLAIMABLE``, ``HELD``, the name of an error, or null for a null input.

    n = 0 is the only default: no snapshot before the death, whether the bucket is known or not. Every other verdict
    is said by a branch of its own, so that a null never becomes one.
    """
    has_none_before = snapshots_before_death == 0
    nothing = functions.lit(0).cast("long")
    previous = functions.when(has_none_before, nothing).otherwise(_cell(previous_cells, snapshots_before_death))
    last_taken = functions.when(has_none_before, nothing).otherwise(_cell(taken_cells, snapshots_before_death))
    next_taken = _cell(taken_cells, functions.try_add(snapshots_before_death, functions.lit(1)))
    is_impossible = (birth <= 0) | (birth >= death) | (previous >= death) | (last_taken >= death)
    is_beyond_next = next_taken.isNotNull() & (next_taken <= death)
    return (
        functions.when(birth.isNull() | death.isNull() | snapshots_before_death.isNull(), functions.lit(None))
        .when(previous.isNull() | last_taken.isNull(), functions.lit(UNKNOWN_DEATH_ERROR))
        .when(is_impossible | is_beyond_next, functions.lit(LIFETIME_ERROR))
        .when(birth > previous, functions.lit(RECLAIMABLE))
        .when(birth <= previous, functions.lit(HELD))
    )


def _cell(cells: Column, index: Column) -> Column:
    """One cell; null beyond the array, below it, and for an unknown bucket. Never raises."""
    return functions.get(cells, index.try_cast("int"))
