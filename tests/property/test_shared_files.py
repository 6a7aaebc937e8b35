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
from rocksdict import BlockBasedIndexType, BlockBasedOptions, Cache, Checkpoint, DBCompressionType, Options, Rdict

from services.storage.rocks_options import RocksOptions
from streaming.rocksdb.checkpoint_rows import WHOLE, CheckpointFile, ReadOnlyRows, Row
from streaming.rocksdb.shared_files import SharedFiles
from streaming.rocksdb.side_by_side import Marked, SideBySide
from streaming.rocksdb.table_file import BrokenTableFileError, TableFile, UnknownTableFileError

FAMILY = "fileTable"
KEYS = 600
PARTS = (b"", b"/1/007", b"/1/02", b"/1/5", b"\xff" * 32)


def plain() -> Options:
    """An index in one part, without compression."""
    blocks = BlockBasedOptions()
    blocks.set_block_size(700)
    blocks.set_index_type(BlockBasedIndexType.binary_search())
    options = Options(raw_mode=True)
    options.set_block_based_table_factory(blocks)
    options.set_compression_type(DBCompressionType.none())
    return options


def of_the_plane() -> Options:
    """An index in parts, LZ4, as the services have."""
    return RocksOptions().family(None, Cache(1 << 20))


def rewritten() -> Options:
    """ZSTD and large blocks, as rewritten checkpoints have."""
    return RocksOptions().packed_family(None, Cache(1 << 20))


@dataclass(frozen=True, slots=True)
class Round:
    """What happens before a state is kept."""

    seed: int
    changes: int
    percent_deleted: int
    is_compacted: bool
    is_snapshot_held: bool
    """Older versions of a key stay in a file while somebody may read them."""


ROUNDS = st.builds(
    Round, st.integers(0, 1 << 30), st.integers(0, KEYS), st.integers(0, 100), st.booleans(), st.booleans()
)


def write(database: Rdict, rows: Rdict, one: Round) -> None:
    random = Random(one.seed)
    for half in range(2):
        held = rows.snapshot() if one.is_snapshot_held else None
        for number in random.sample(range(KEYS), one.changes // 2):
            key = b"/1/%03d" % number
            if random.randrange(100) < one.percent_deleted:
                rows.delete(key)
            else:
                rows.put(key, random.randbytes(random.choice((0, 3, 40, 200))))
        if half or held:
            rows.flush()
        del held
    if one.is_compacted:
        rows.compact_range(None, None)


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
        for file in rows.table_files():
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


@given(st.lists(ROUNDS, min_size=1, max_size=7), st.sampled_from([plain, of_the_plane, rewritten]), st.data())
def test_rows_are_those_that_rocksdb_reads(
    rounds: list[Round], options_of: Callable[[], Options], data: st.DataObject
) -> None:
    start, end = sorted(data.draw(st.lists(st.sampled_from(PARTS), min_size=2, max_size=2, unique=True)))
    wanted = data.draw(st.integers(1, (1 << len(rounds)) - 1))
    with states(rounds, options_of) as opened:
        by_rocksdb = SideBySide([(1 << number, rows) for number, rows in enumerate(opened)])
        expected = together(by_rocksdb.distinct_rows(FAMILY, start, end))
        assert together(shared(opened).distinct_rows(FAMILY, start, end)) == expected
        some = {row: mask & wanted for row, mask in expected.items() if mask & wanted}
        assert together(shared(opened).only(wanted).distinct_rows(FAMILY, start, end)) == some


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


@pytest.mark.parametrize("share", [0.0, 0.2, 0.5, 0.8, 0.97, 1.0])
def test_no_damage_goes_unnoticed(tmp_path: Path, share: float) -> None:
    file = written(tmp_path, nothing)
    content = bytearray(file.read_bytes())
    content[int(share * (len(content) - 1))] ^= 4
    file.write_bytes(content)
    with pytest.raises((BrokenTableFileError, UnknownTableFileError)):
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


def in_buckets() -> Options:
    options = plain()
    blocks = BlockBasedOptions()
    blocks.set_format_version(3)
    options.set_block_based_table_factory(blocks)
    return options


@pytest.mark.parametrize(
    ("change", "options_of"),
    [
        (lambda database: database.delete_range(b"/1/1", b"/1/2"), plain),
        (nothing, of_snappy),
        (nothing, in_buckets),
    ],
)
def test_what_is_not_known_is_left_to_rocksdb(
    tmp_path: Path, change: Callable[[Rdict], object], options_of: Callable[[], Options]
) -> None:
    with pytest.raises(UnknownTableFileError):
        TableFile(written(tmp_path, change, options_of()))


def test_rows_of_the_log_alone_are_not_in_files(tmp_path: Path) -> None:
    made = plain()
    made.create_if_missing(True)
    database = Rdict(str(tmp_path), made)
    database.put(b"/1/1", b"value")
    with ReadOnlyRows(str(tmp_path), ["default"]) as rows:
        assert rows.table_files() == []
    database.flush()
    database.put(b"/1/2", b"value")
    with ReadOnlyRows(str(tmp_path), ["default"]) as rows:
        assert rows.table_files() == []
    database.close()


def test_rocksdb_refuses_a_state_with_a_missing_file(tmp_path: Path) -> None:
    written(tmp_path, nothing).unlink()
    with pytest.raises(Exception, match="No such file"):
        ReadOnlyRows(str(tmp_path), ["default"])
