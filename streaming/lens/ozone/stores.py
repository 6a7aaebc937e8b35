"""Opens the databases of an Ozone Manager read-only, a few at a time, with one cache for all of them.

SST files that two snapshots share by hard links share their blocks in the cache, too. Indexes and Bloom filters are in
the cache, so that memory does not grow with the number of open databases.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from rocksdict import BlockBasedOptions, Cache, Options

from services.lens.ozone import tables
from services.lens.ozone.layout import OzoneLocationError, unreadable
from streaming.rocksdb.checkpoint_rows import CHUNK_ROWS, ReadOnlyRows, Row, quick_options

CACHE_BYTES = 128 << 20
MAX_OPEN_STORES = 128
LIVE_TABLES = (tables.KEY, tables.FILE)
ACTIVE_TABLES = (
    *LIVE_TABLES,
    tables.DIRECTORY,
    tables.DELETED,
    tables.OPEN_KEY,
    tables.OPEN_FILE,
    tables.MULTIPART,
    tables.MULTIPART_PARTS,
)


class OzoneRows(ReadOnlyRows):
    """Some tables of a database, whose damaged files are errors that say what to do."""

    def __init__(self, directory: Path, families: Sequence[str], options_of: Callable[[], Options], scratch: Path):
        self._directory = directory
        super().__init__(str(directory), families, options_of, str(scratch))

    def get(self, family: str, keys: list[bytes]) -> list[bytes | None]:
        """Return the values of some keys, in their order; None for those that are missing."""
        try:
            return super().get(family, keys)
        except Exception as error:  # rocksdict raises no narrower class
            raise _damaged(self._directory, "read", error) from None

    def chunks(self, family: str, start: bytes, end: bytes, most: int = CHUNK_ROWS) -> Iterator[list[Row]]:
        """Yield the rows of ``scan`` in lists of at most ``most`` rows."""
        try:
            yield from super().chunks(family, start, end, most)
        except Exception as error:  # rocksdict raises no narrower class
            raise _damaged(self._directory, "read", error) from None


def _damaged(directory: Path, what: str, error: Exception) -> OzoneLocationError:
    return OzoneLocationError(
        f"{directory} cannot be {what} ({error}): if it is a copy, copy it again, with the files that end in .log."
    )


def opened(directory: Path, families: Sequence[str], scratch: Path, cache: Cache | None = None) -> OzoneRows:
    """Open some tables of a database.

    Raises:
        OzoneLocationError: it is damaged, incomplete or not readable.
    """

    def options() -> Options:
        found = quick_options()
        if cache is not None:
            blocks = BlockBasedOptions()
            blocks.set_block_cache(cache)
            blocks.set_cache_index_and_filter_blocks(True)
            found.set_block_based_table_factory(blocks)
        return found

    try:
        return OzoneRows(directory, families, options, scratch)
    except PermissionError as error:
        raise unreadable(error) from None
    except Exception as error:  # rocksdict raises no narrower class
        raise _damaged(directory, "opened", error) from None


class OpenStores:
    """The databases that a worker has open; the one that was not used for the longest time is closed first."""

    def __init__(self, scratch: Path) -> None:
        self._scratch = scratch
        self.cache = Cache(CACHE_BYTES)
        self._open: OrderedDict[Path, OzoneRows] = OrderedDict()

    def get(self, directory: Path) -> OzoneRows:
        """Return an open database. It stays open until ``MAX_OPEN_STORES`` others have been asked for."""
        found = self._open.pop(directory, None)
        if found is None:
            while len(self._open) >= MAX_OPEN_STORES:
                self._open.popitem(last=False)[1].close()
            found = opened(directory, LIVE_TABLES, self._scratch, self.cache)
        self._open[directory] = found
        return found
