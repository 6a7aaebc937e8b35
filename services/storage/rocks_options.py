"""How RocksDB is tuned: one set of options, the same in tests as in production."""

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
    WriteOptions,
)

from services.storage.tables import TableDefinition

MEBIBYTE = 1 << 20
READ_ONLY_MEMTABLE_BYTES = 64 * 1024
"""The least that RocksDB takes."""
ARENA_BLOCK_BYTES = 64 * 1024
"""What a memtable grows by. A dozen families are written in every unit of work, most of them a row or two: with a
megabyte for each (RocksDB's own choice) and a filter of each (0.8 MB at a ratio of 0.05), they were over the limit of
all memtables together before they held much, and nearly every unit of work had something flushed.
"""
MEMTABLE_FILTER_SHARE = 0.005
"""Of a memtable, for a filter of its keys: 60 kB are 16 bits for each of 30,000 keys, as many as it ever holds."""
FILTER_PART_BYTES = 8 * 1024
BLOCK_BYTES = 4 * 1024
"""What a look-up reads and unpacks that finds nothing in the cache, as most do in a bucket of ten million keys."""
TABLE_FILE_BYTES = 16 * MEBIBYTE
RUNS_BEFORE_COMPACTION = 8
"""Sorted runs of a family before some are merged: twice RocksDB's own, since most are small and all have filters."""
PREFIX_BYTES_PER_SEPARATOR = 8
"""RocksDB cuts prefixes by length, not at separators: this is how long one part of a key is taken to be."""


@dataclass(frozen=True, slots=True)
class RocksOptions:
    """The limits of one database and of the checkpoints that are open beside it."""

    memtables_bytes: int = 12 * MEBIBYTE
    """Over all families. A checkpoint first writes them out, so this bounds what a snapshot costs."""
    block_cache_bytes: int = 64 * MEBIBYTE
    max_open_files: int = 512
    bloom_bits_per_key: int = 10
    background_jobs: int = 3
    checkpoint_handles: int = 16
    """Checkpoints that stay open while nobody reads them."""
    checkpoint_open_files: int = 64
    is_looking_up_beside: bool = True
    """Most of many keys that are looked up together by another thread; False where a thread's time is measured."""

    def database(self) -> Options:
        """Options of the database as a whole."""
        options = _raw_options()
        options.create_if_missing(True)
        options.create_missing_column_families(True)
        options.set_db_write_buffer_size(self.memtables_bytes)
        # All families are written out together: a checkpoint then waits for one flush instead of one for each family,
        # and no family that is hardly written holds the write-ahead log.
        options.set_atomic_flush(True)
        # The tail of a batch that was never acknowledged is cut off; anything else stops the start.
        options.set_wal_recovery_mode(DBRecoveryMode.point_in_time())
        options.set_max_open_files(self.max_open_files)
        options.set_max_background_jobs(self.background_jobs)
        options.set_keep_log_file_num(3)
        options.set_max_log_file_size(4 * MEBIBYTE)
        options.set_stats_dump_period_sec(0)
        return options

    def checkpoint(self) -> Options:
        """Options of a checkpoint, which is only read."""
        options = _raw_options()
        options.set_max_open_files(self.checkpoint_open_files)
        options.set_keep_log_file_num(1)
        return options

    def read_only_family(self, definition: TableDefinition[Any] | None, cache: Cache) -> Options:
        """Options of one column family of a checkpoint: as ``family``, with next to no room for what is written."""
        options = self.family(definition, cache)
        options.set_write_buffer_size(READ_ONLY_MEMTABLE_BYTES)
        return options

    def family(self, definition: TableDefinition[Any] | None, cache: Cache) -> Options:
        """Options of one column family."""
        blocks = BlockBasedOptions()
        blocks.set_block_cache(cache)
        blocks.set_bloom_filter(self.bloom_bits_per_key, False)
        blocks.set_cache_index_and_filter_blocks(True)
        blocks.set_pin_l0_filter_and_index_blocks_in_cache(True)
        # In parts: the filter of a file of a million keys is one block of 1.2 MB else, which has no room in a slice of
        # the cache (1 MB each) and is read from disk again for every look-up.
        blocks.set_index_type(BlockBasedIndexType.two_level_index_search())
        blocks.set_partition_filters(True)
        blocks.set_metadata_block_size(FILTER_PART_BYTES)
        blocks.set_pin_top_level_index_and_filter(True)
        blocks.set_block_size(BLOCK_BYTES)
        options = _raw_options()
        options.set_block_based_table_factory(blocks)
        # Not ZSTD below: it makes a held version 40 bytes instead of 73, and is a quarter of what compaction costs.
        options.set_compression_type(DBCompressionType.lz4())
        # Sorted runs are merged by their sizes. Levels would move down as it is whatever overlaps nothing, such as rows
        # in the order of deaths: each checkpoint would leave a tiny file for ever, and link all those before it.
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


def _raw_options() -> Options:
    """Keys and values are bytes as they are."""
    return Options(raw_mode=True)


def total_order() -> ReadOptions:
    """Every row. Without total order a prefix extractor makes an iterator leave rows out."""
    options = ReadOptions()
    options.set_total_order_seek(True)
    return options


def scan_options(end: bytes) -> ReadOptions:
    """Every row up to a key. The caller keeps the key alive as long as an iterator uses the options."""
    options = total_order()
    options.set_iterate_upper_bound(end)
    return options


def synced() -> WriteOptions:
    """A write returns when the disk has it."""
    options = WriteOptions()
    options.sync = True
    return options
