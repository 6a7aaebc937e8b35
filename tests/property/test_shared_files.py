"""The rows of many states of a database, read from the table files that they share, are those that RocksDB reads."""

from __future__ import annotations

import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rocksdict import (
    BlockBasedIndexType,
    BlockBasedOptions,
    Cache,
    Checkpoint,
    DataBlockIndexType,
    DBCompressionType,
    Options,
    Rdict,
)

from services.domain.errors import InvariantError
from services.storage.rocks_options import RocksOptions
from streaming.rocksdb import shared_files
from streaming.rocksdb.checkpoint_rows import WHOLE, CheckpointFile, ReadOnlyRows, Row
from streaming.rocksdb.shared_files import SharedFiles
from streaming.rocksdb.side_by_side import Marked, SideBySide
from streaming.rocksdb.table_file import BrokenTableFileError, TableFile, UnknownTableFileError

FAMILY = "fileTable"
KEYS = 600
PARTS = (b"", b"/1/007", b"/1/02", b"/1/5", b"\xff" * 32)


def plain() -> Options:
    """An index in one, without compression."""
    blocks = BlockBasedOptions()
    blocks.set_block_size(700)
    blocks.set_index_type(BlockBasedIndexType.binary_search())
    options = Options(raw_mode=True)
    options.set_block_based_table_factory(blocks)
    options.set_compression_type(DBCompressionType.none())
    return options


def partitioned() -> Options:
    """An index of many partitions, whose entries repeat parts of keys, and LZ4 with more effort."""
    blocks = BlockBasedOptions()
    blocks.set_block_size(300)
    blocks.set_index_type(BlockBasedIndexType.two_level_index_search())
    blocks.set_metadata_block_size(200)
    blocks.set_index_block_restart_interval(16)
    options = Options(raw_mode=True)
    options.set_block_based_table_factory(blocks)
    options.set_compression_type(DBCompressionType.lz4hc())
    options.set_level_zero_file_num_compaction_trigger(3)
    return options


def of_the_plane() -> Options:
    """An index in partitions, LZ4, as the services have."""
    return RocksOptions().family(None, Cache(1 << 20))


def rewritten() -> Options:
    """ZSTD and large blocks, as rewritten checkpoints have."""
    return RocksOptions().packed_family(None, Cache(1 << 20))


FORMS = [plain, partitioned, of_the_plane, rewritten]


@dataclass(frozen=True, slots=True)
class Round:
    """What happens before a state is kept."""

    seed: int
    changes: int
    percent_deleted: int
    is_compacted: bool
    readers: int
    """So many read an older state until all is written and merged: until then, a file has several entries of a key."""


ROUNDS = st.builds(
    Round, st.integers(0, 1 << 30), st.integers(0, KEYS), st.integers(0, 100), st.booleans(), st.integers(0, 3)
)


def write(database: Rdict, rows: Rdict, one: Round) -> None:
    random, held = Random(one.seed), []
    hot = random.sample(range(KEYS), 5)
    for _ in range(one.readers + 1):
        for number in (*random.sample(range(KEYS), one.changes // (one.readers + 1)), *hot):
            key = b"/1/%03d" % number
            if random.randrange(100) < one.percent_deleted:
                rows.delete(key)
            else:
                rows.put(key, random.randbytes(random.choice((0, 3, 40, 200))))
        held.append(rows.snapshot())
        if random.randrange(2):
            rows.flush()
    rows.flush()
    if one.is_compacted:
        rows.compact_range(None, None)
    held.clear()


@contextmanager
def states(rounds: list[Round], options_of: Callable[[], Options]) -> Iterator[list[ReadOnlyRows]]:
    """A database is written, and each of its states kept, opened read-only."""
    with tempfile.TemporaryDirectory() as scratch, ExitStack() as opened:
        made = Options(raw_mode=True)
        made.create_if_missing(True)
        database = Rdict(f"{scratch}/db", made)
        rows = database.create_column_family(FAMILY, options_of())
        for number, one in enumerate(rounds):
            write(database, rows, one)
            Checkpoint(database).create_checkpoint(f"{scratch}/{number}")
        rows.close()
        database.close()
        yield [opened.enter_context(ReadOnlyRows(f"{scratch}/{number}", [FAMILY])) for number in range(len(rounds))]


def shared(opened: list[ReadOnlyRows]) -> SharedFiles:
    masks: defaultdict[CheckpointFile, int] = defaultdict(int)
    for number, rows in enumerate(opened):
        for file in rows.table_files() or ():
            masks[file] |= 1 << number
    return SharedFiles({FAMILY: [(mask, file.path) for file, mask in masks.items()]})


def together(found: Iterator[Marked]) -> dict[Row, int]:
    """The states that have each row; in the lists no state has a row twice, and the lists are in order."""
    masks: defaultdict[Row, int] = defaultdict(int)
    last = b""
    for rows, some in found:
        assert last < min(key for key, _ in rows)
        last = max(key for key, _ in rows)
        for row, mask in zip(rows, some, strict=True):
            assert mask
            assert not masks[row] & mask
            masks[row] |= mask
    return dict(masks)


@given(st.lists(ROUNDS, min_size=1, max_size=7), st.sampled_from(FORMS), st.integers(1, 6), st.data())
def test_rows_are_those_that_rocksdb_reads(
    rounds: list[Round], options_of: Callable[[], Options], blocks_at_once: int, data: st.DataObject
) -> None:
    start, end = sorted(data.draw(st.lists(st.sampled_from(PARTS), min_size=2, max_size=2, unique=True)))
    wanted = data.draw(st.integers(1, (1 << len(rounds)) - 1))
    with states(rounds, options_of) as opened, pytest.MonkeyPatch.context() as patch:
        patch.setattr(shared_files, "BLOCKS_AT_ONCE", blocks_at_once)
        by_rocksdb = SideBySide([(1 << number, rows) for number, rows in enumerate(opened)])
        expected = together(by_rocksdb.distinct_rows(FAMILY, start, end))
        by_files = shared(opened)
        assert together(by_files.distinct_rows(FAMILY, start, end)) == expected
        some = {row: mask & wanted for row, mask in expected.items() if mask & wanted}
        assert together(by_files.only(wanted).distinct_rows(FAMILY, start, end)) == some
        for key, _ in list(expected)[::97]:  # looked up one by one, as the versions of a key are
            assert together(by_files.distinct_rows(FAMILY, key, key + b"\0")) == {
                row: mask for row, mask in expected.items() if row[0] == key
            }


def written(directory: Path, change: Callable[[Rdict], object], options: Options | None = None) -> Path:
    """A table file of a small database."""
    made = options or plain()
    made.create_if_missing(True)
    database = Rdict(str(directory), made)
    for number in range(KEYS):
        database.put(b"/1/%03d" % number, b"value" * 10)
    change(database)
    database.flush()
    database.close()
    return next(directory.glob("*.sst"))


def nothing(_: Rdict) -> None:
    pass


@pytest.mark.parametrize("share", [0.0, 0.2, 0.5, 0.8, 0.97, 0.999, 1.0])
def test_damage_of_what_is_read_is_noticed(tmp_path: Path, share: float) -> None:
    file = written(tmp_path, nothing)
    content = bytearray(file.read_bytes())
    content[int(share * (len(content) - 1))] ^= 4
    file.write_bytes(content)
    with pytest.raises((BrokenTableFileError, InvariantError)):
        list(SharedFiles({FAMILY: [(1, str(file))]}).distinct_rows(FAMILY, *WHOLE))


def test_a_file_that_was_cut_off_is_broken(tmp_path: Path) -> None:
    file = written(tmp_path, nothing)
    file.write_bytes(file.read_bytes()[:40])
    with pytest.raises(BrokenTableFileError, match="too short"):
        TableFile(file)


def of_snappy() -> Options:
    options = plain()
    options.set_compression_type(DBCompressionType.snappy())
    return options


def of_blocks(change: Callable[[BlockBasedOptions], None]) -> Options:
    options = plain()
    blocks = BlockBasedOptions()
    change(blocks)
    options.set_block_based_table_factory(blocks)
    return options


def of_format_5() -> Options:
    return of_blocks(lambda blocks: blocks.set_format_version(5))


def of_hashes() -> Options:
    """Whose blocks of entries have an index by hashes."""
    return of_blocks(lambda blocks: blocks.set_data_block_index_type(DataBlockIndexType.binary_and_hash()))


def of_a_dictionary() -> Options:
    options = plain()
    options.set_compression_type(DBCompressionType.zstd())
    options.set_compression_options(-14, 3, 0, 1_000)
    return options


@pytest.mark.parametrize(
    ("change", "options_of"),
    [
        (lambda database: database.delete_range(b"/1/1", b"/1/2"), plain),
        (nothing, of_snappy),
        (nothing, of_format_5),
        (nothing, of_hashes),
        (nothing, of_a_dictionary),
        (lambda database: database.put_entity(b"/1/001", [b"name"], [b"value"]), plain),
    ],
)
def test_what_is_not_known_is_left_to_rocksdb(
    tmp_path: Path, change: Callable[[Rdict], object], options_of: Callable[[], Options]
) -> None:
    file = written(tmp_path, change, options_of())
    with pytest.raises(UnknownTableFileError):
        TableFile(file).check_entries()


def test_rows_of_the_log_alone_are_not_in_files(tmp_path: Path) -> None:
    made = plain()
    made.create_if_missing(True)
    database = Rdict(str(tmp_path), made)
    database.put(b"/1/1", b"value")
    with ReadOnlyRows(str(tmp_path), ["default"]) as rows:
        assert rows.table_files() is None
    database.flush()
    database.put(b"/1/2", b"value")
    with ReadOnlyRows(str(tmp_path), ["default"]) as rows:
        assert rows.table_files() is None
    database.close()


def test_rocksdb_refuses_a_state_with_a_missing_file(tmp_path: Path) -> None:
    written(tmp_path, nothing).unlink()
    with pytest.raises(Exception, match="No such file"):
        ReadOnlyRows(str(tmp_path), ["default"])
