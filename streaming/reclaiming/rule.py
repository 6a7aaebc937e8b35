"""The rule of the plane as native Spark expressions; a property test checks that they equal the pure rule.

Rows have the columns ``birth``, ``death`` and ``snapshots_before_death``, and are joined with those of their bucket.
``live_ordinals`` and ``live_txns`` hold the ordinals and txns of the bucket's live snapshots, ascending, after a
leading 0. ``snapshots_ever`` is the number of snapshots that the bucket ever had; ``newest_txn`` is the txn of the
newest of them. All columns of a bucket are null for a bucket that the view does not know.

The newest live snapshot before a death is found by its page (``services.domain.rank_pages``) and a binary search among
the ordinals of the page. A column cannot loop, so each step of the search is a column of its own, which reads one cell.
The number of steps belongs to the view; were it too small, the row would be refused, since the next ordinal would not
lie beyond the death.

Spark evaluates an expression again for each place at which it is used, unless it is a column of an earlier projection.
Therefore the look-ups are columns: ``with_neighbours`` adds them, and ``verdict`` uses them.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, functions
from pyspark.sql.functions import col, lit, when

RECLAIMABLE = "reclaimable"
HELD = "held"
UNKNOWN_DEATH_ERROR = "UnknownDeathError"
LIFETIME_ERROR = "LifetimeError"
CHAIN_COLUMNS = ("page_shift", "page_ranks", "live_ordinals", "live_txns", "snapshots_ever", "newest_txn")
"""The columns of a bucket."""


def with_neighbours(rows: DataFrame, search_steps: int) -> DataFrame:
    """Replace the columns of the bucket by those of the snapshots next to each row's death.

    ``live_before`` is the txn of the newest live snapshot before the death, 0 if there was none; null if the bucket
    never had so many snapshots. ``captured_before`` and ``captured_after`` are bounds of the death, null for no bound.
    """
    before = col("snapshots_before_death")
    own = [name for name in rows.columns if name not in CHAIN_COLUMNS]
    page = functions.call_function("shiftright", before, col("page_shift"))
    searched = rows.withColumn("live_place", functions.get("page_ranks", page.try_cast("int")))
    for step in (1 << number for number in reversed(range(search_steps))):
        later = col("live_place") + lit(step)
        is_before = functions.get("live_ordinals", later) <= before
        searched = searched.withColumn("live_place", when(is_before, later).otherwise(col("live_place")))
    ever, newest, is_last = functions.coalesce("snapshots_ever", lit(0)), col("newest_txn"), col("is_last")
    next_ordinal = functions.get("live_ordinals", col("live_place") + 1)
    found = searched.select(
        *(*own, "newest_txn"),
        ((before >= 0) & (before <= ever) & (next_ordinal.isNull() | (next_ordinal > before))).alias("is_known"),
        (before == ever).alias("is_last"),
        when(before == 0, lit(0).cast("long"))
        .otherwise(functions.get("live_txns", col("live_place")))
        .alias("live_before"),
        functions.get("live_txns", col("live_place") + 1).alias("live_after"),
    )
    return found.select(
        *own,
        when(col("is_known"), col("live_before")).alias("live_before"),
        when(is_last & newest.isNotNull(), newest).otherwise(col("live_before")).alias("captured_before"),
        # Null if no snapshot was created after the death: then there is no upper bound to check.
        functions.coalesce("live_after", when(~is_last, newest)).alias("captured_after"),
    )


def verdict() -> Column:
    """Return the verdict on a row: ``RECLAIMABLE``, ``HELD``, the name of an error, or null for a null input.

    Every verdict has its own condition, so that a null never becomes a verdict.
    """
    birth, death, live_before = col("birth"), col("death"), col("live_before")
    is_impossible = (birth <= 0) | (birth > death) | (col("captured_before") >= death)
    is_beyond_next = col("captured_after").isNotNull() & (col("captured_after") <= death)
    return (
        when(birth.isNull() | death.isNull() | col("snapshots_before_death").isNull(), lit(None))
        .when(live_before.isNull(), lit(UNKNOWN_DEATH_ERROR))
        .when(is_impossible | is_beyond_next, lit(LIFETIME_ERROR))
        .when(birth > live_before, lit(RECLAIMABLE))
        .when(birth <= live_before, lit(HELD))
    )
