"""Options of RocksDB: one set, the same in tests and in production."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rocksdict import (
    BlockBasedIndexType,
    BlockBasedOptions,
    Cache,
    DBCompactionStyle,
    DBCompressionType,
    DBRecoveryMode,
    Options,
    ReadOptions,
    SliceTransform,
)

from services.storage.tables import TableDefinition

MEBIBYTE = 1 << 20
READ_ONLY_MEMTABLE_BYTES = 64 * 1024
"""The smallest size that RocksDB accepts."""
MANIFEST_BYTES = 64 * 1024
"""A longer manifest is begun anew. Each checkpoint has a copy of it, which grew by 2 kB with each earlier snapshot."""
ARENA_BLOCK_BYTES = 64 * 1024
"""Allocation unit of a memtable. Every unit of work writes a dozen families, most of them a row or two. With a megabyte
for each (RocksDB's default) and a filter for each (0.8 MB at a ratio of 0.05), the nearly empty memtables exceeded
their common limit, and nearly every unit of work caused a flush.
"""
MEMTABLE_FILTER_SHARE = 0.005
"""Share of a memtable for the filter of its keys: 60 kB are 16 bits for each of 30,000 keys, the most that it holds."""
FILTER_PART_BYTES = 8 * 1024
BLOCK_BYTES = 4 * 1024
"""A look-up that misses the cache reads and unpacks one block; most miss it in a bucket of ten million keys."""
PACKED_BLOCK_BYTES = 16 * 1024
"""Blocks of packed tables: a fifth smaller than with 4 KiB."""
SCANNED_RESTART_INTERVAL = 64
"""Of packed tables whose rows are only scanned: deletedNameTable is a tenth smaller than with 16."""
PACKED_LEVEL = 1
"""Of ZSTD. Higher levels pack garbage rows no better, and cost more."""
CHECKPOINT_BLOCK_BYTES, CHECKPOINT_RESTART_INTERVAL, CHECKPOINT_LEVEL = 16 * 1024, 64, 12
"""Of rewritten checkpoints. A million rows of keyTable take 17 MB and 3.5 seconds; 21 MB and 1.5 with level 7; 40 MB in
the database, and 36 after a merge at rest."""
TABLE_FILE_BYTES = 16 * MEBIBYTE
RUNS_BEFORE_COMPACTION = 8
"""Sorted runs of a family before some are merged: twice RocksDB's default: most are small and all have filters."""
WINDOW_BITS = -14
"""RocksDB's default; ZSTD does not use it."""
PREFIX_BYTES_PER_SEPARATOR = 8
"""Assumed length of one part of a key: RocksDB cuts prefixes by length, not at separators."""


@dataclass(frozen=True, slots=True)
class RocksOptions:
    """The limits of one database and of its open checkpoints."""

    memtables_bytes: int = 12 * MEBIBYTE
    """Limit over all families. A checkpoint flushes them first, so this bounds the cost of a snapshot."""
    block_cache_bytes: int = 64 * MEBIBYTE
    max_open_files: int = 512
    bloom_bits_per_key: int = 10
    background_jobs: int = 3
    checkpoint_handles: int = 16
    """Checkpoints that stay open without a reader."""
    checkpoint_open_files: int = 64
    least_gain_bytes: int = 1 * MEBIBYTE
    """Least that rewriting a checkpoint has to free."""
    is_looking_up_beside: bool = True
    """Whether another thread looks up most keys of a large set; False where a thread's time is measured."""

    def database(self) -> Options:
        """Return the options of the database as a whole."""
        options = Options(raw_mode=True)
        options.create_if_missing(True)
        options.create_missing_column_families(True)
        options.set_db_write_buffer_size(self.memtables_bytes)
        # All families are flushed together: a checkpoint then waits for one flush instead of one for each family, and a
        # rarely written family does not keep the write-ahead log.
        options.set_atomic_flush(True)
        # The tail of a batch that was never acknowledged is cut off; other damage makes the start fail.
        options.set_wal_recovery_mode(DBRecoveryMode.point_in_time())
        options.set_max_open_files(self.max_open_files)
        options.set_max_background_jobs(self.background_jobs)
        options.set_keep_log_file_num(3)
        options.set_max_log_file_size(MEBIBYTE // 2)
        options.set_stats_dump_period_sec(0)
        options.set_max_manifest_file_size(MANIFEST_BYTES)
        return options

    def checkpoint(self) -> Options:
        """Return the options of a checkpoint, which is read-only."""
        options = Options(raw_mode=True)
        options.set_max_open_files(self.checkpoint_open_files)
        options.set_keep_log_file_num(1)
        return options

    def read_only_family(self, definition: TableDefinition[Any] | None, cache: Cache) -> Options:
        """Return the options of a checkpoint's column family: as ``family``, with the smallest write buffer."""
        options = self.family(definition, cache)
        options.set_write_buffer_size(READ_ONLY_MEMTABLE_BYTES)
        return options

    def packed_family(self, definition: TableDefinition[Any] | None, cache: Cache) -> Options:
        """Return the options by which files of a checkpoint are written that is rewritten: as small as is cheap.

        They have no filters: with one sorted run a look-up reads one block, found or not.
        """
        blocks = BlockBasedOptions()
        blocks.set_block_cache(cache)
        blocks.set_index_type(BlockBasedIndexType.two_level_index_search())
        blocks.set_metadata_block_size(FILTER_PART_BYTES)
        blocks.set_block_size(CHECKPOINT_BLOCK_BYTES)
        blocks.set_block_restart_interval(CHECKPOINT_RESTART_INTERVAL)
        options = self.family(definition, cache)
        options.set_block_based_table_factory(blocks)
        options.set_compression_type(DBCompressionType.zstd())
        options.set_compression_options(WINDOW_BITS, CHECKPOINT_LEVEL, 0, 0)
        options.set_bottommost_compression_type(DBCompressionType.zstd())
        options.set_bottommost_compression_options(WINDOW_BITS, CHECKPOINT_LEVEL, 0, 0, True)
        return options

    def family(self, definition: TableDefinition[Any] | None, cache: Cache) -> Options:
        """Return the options of one column family."""
        blocks = BlockBasedOptions()
        is_packed = definition is not None and definition.is_packed
        blocks.set_block_cache(cache)
        blocks.set_bloom_filter(self.bloom_bits_per_key, False)
        blocks.set_cache_index_and_filter_blocks(True)
        blocks.set_pin_l0_filter_and_index_blocks_in_cache(True)
        # Partitioned: else the filter of a file of a million keys is one block of 1.2 MB, which does not fit into a
        # shard of the cache (1 MB each) and is read from disk for every look-up.
        blocks.set_index_type(BlockBasedIndexType.two_level_index_search())
        blocks.set_partition_filters(True)
        blocks.set_metadata_block_size(FILTER_PART_BYTES)
        blocks.set_pin_top_level_index_and_filter(True)
        blocks.set_block_size(PACKED_BLOCK_BYTES if is_packed else BLOCK_BYTES)
        if definition is not None and is_packed and not definition.prefix_separators:
            blocks.set_block_restart_interval(SCANNED_RESTART_INTERVAL)
        options = Options(raw_mode=True)
        options.set_block_based_table_factory(blocks)
        # ZSTD only where few rows are looked up: in keyTable it makes random overwrites a fifth more expensive.
        options.set_compression_type(DBCompressionType.lz4())
        if is_packed:
            options.set_bottommost_compression_type(DBCompressionType.zstd())
            options.set_bottommost_compression_options(WINDOW_BITS, PACKED_LEVEL, 0, 0, True)
            options.set_optimize_filters_for_hits(True)  # no filter in the largest run: who looks a row up has found it
        # Sorted runs are merged by size. Level compaction would move files that overlap no other, as those of rows in
        # the order of deaths, without merging: each checkpoint would leave a tiny file for ever and link all earlier
        # ones.
        options.set_compaction_style(DBCompactionStyle.universal())
        options.set_target_file_size_base(TABLE_FILE_BYTES)
        options.set_level_zero_file_num_compaction_trigger(RUNS_BEFORE_COMPACTION)
        options.set_write_buffer_size(self.memtables_bytes)
        options.set_arena_block_size(ARENA_BLOCK_BYTES)
        if definition is not None and definition.prefix_separators:
            length = PREFIX_BYTES_PER_SEPARATOR * definition.prefix_separators
            options.set_prefix_extractor(SliceTransform.create_max_len_prefix(length))
            options.set_memtable_whole_key_filtering(True)
            options.set_memtable_prefix_bloom_ratio(MEMTABLE_FILTER_SHARE)
        return options


def total_order() -> ReadOptions:
    """Return options for reading every row. Without total order, a prefix extractor makes an iterator skip rows."""
    options = ReadOptions()
    options.set_total_order_seek(True)
    return options


def scan_options(end: bytes) -> ReadOptions:
    """Return options for reading every row below a key. The caller keeps the key alive while an iterator uses them."""
    options = total_order()
    options.set_iterate_upper_bound(end)
    return options
