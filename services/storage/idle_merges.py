"""Merges the sorted runs of a family while nothing is written.

RocksDB merges runs as rows are written (decision 0027), so it stops halfway when the writing does: after each of a
million keys was overwritten twice, the table of live keys takes two and a half times its size until somebody writes
more.
"""

from __future__ import annotations

import re

from rocksdict import BottommostLevelCompaction, CompactOptions, Rdict

LEAST_SHARE = 4
"""Runs are merged if those above the oldest one are at least as large as that divided by this number: a family that
grows by little between two rests is not merged at each."""
_FILE_BYTES = re.compile(r"^ \d+:(\d+)\[", re.MULTILINE)
_TIGHTER, _AS_OPENED = ({"bottommost_compression": name} for name in ("kLZ4HCCompression", "kDisableCompressionOption"))
"""Packs keyTable a tenth tighter at twice the cost, and is read as fast."""


def is_in_parts(rows: Rdict, least_bytes: int) -> bool:
    """Return whether a family has much in runs above its oldest one."""
    levels = (rows.property_value("rocksdb.sstables") or "").split("--- level ")[1:]
    files = [[int(size) for size in _FILE_BYTES.findall(level)] for level in levels]
    runs = [*files[0], *(sum(level) for level in files[1:] if level)] if files else []  # each file of level 0 is a run
    return sum(runs[:-1]) >= max(least_bytes, runs[-1] // LEAST_SHARE) if runs else False


def merge_at_rest(rows: Rdict, *, is_packed: bool) -> None:
    """Merge all runs of a family; writes go on meanwhile, and merges of other families."""
    options = CompactOptions()
    options.set_exclusive_manual_compaction(False)
    options.set_bottommost_level_compaction(BottommostLevelCompaction.force())
    if not is_packed:
        rows.set_options(_TIGHTER)
    try:
        rows.compact_range(None, None, options)
    finally:
        if not is_packed:
            rows.set_options(_AS_OPENED)
