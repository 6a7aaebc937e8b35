"""Runs of places as Spark columns: ascending, not overlapping and not adjacent."""

from __future__ import annotations

from pyspark.sql import Column, functions

RUNS = "array<struct<first: int, last: int>>"

_MERGED = f"""aggregate(
    array_sort(%s), cast(array() as {RUNS}),
    (found, run) -> if(
        size(found) > 0 and run.first <= element_at(found, -1).last + 1,
        concat(
            slice(found, 1, size(found) - 1),
            array(named_struct(
                'first', element_at(found, -1).first, 'last', greatest(element_at(found, -1).last, run.last)
            ))
        ),
        concat(found, array(named_struct('first', run.first, 'last', run.last)))
    )
)"""


def merged_runs(column: str) -> Column:
    """Return the runs of an array column, which may overlap and be unordered, as the fewest runs."""
    return functions.expr(f"if(size({column}) < 2, {column}, {_MERGED % column})")
