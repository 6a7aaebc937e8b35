"""Opens the databases of an Ozone Manager read-only, a few at a time, with one cache for all of them.

SST files that two snapshots share by hard links share their blocks in the cache, too. Indexes and Bloom filters are in
the cache, so that memory does not grow with the number of open databases.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from pathlib import Path

from rocksdict import BlockBasedOptions, Cache, Options

from services.lens.ozone import tables
from streaming.lens.ozone.layout import OzoneLocationError, unreadable
from streaming.rocksdb.checkpoint_rows import ReadOnlyRows, quick_options

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


def opened(directory: Path, families: Sequence[str], scratch: Path, cache: Cache | None = None) -> ReadOnlyRows:
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
        return ReadOnlyRows(str(directory), families, options, str(scratch))
    except PermissionError as error:
        raise unreadable(error) from None
    except Exception as error:  # rocksdict raises no narrower class
        raise OzoneLocationError(
            f"{directory} cannot be opened ({error}): if it is a copy, copy it again, with the files that end in .log."
        ) from None


class OpenStores:
    """The databases that a worker has open; the one that was not used for the longest time is closed first."""

    def __init__(self, scratch: Path) -> None:
        self._scratch = scratch
        self.cache = Cache(CACHE_BYTES)
        self._open: OrderedDict[str, ReadOnlyRows] = OrderedDict()

    def get(self, directory: str) -> ReadOnlyRows:
        """Return an open database. It stays open until ``MAX_OPEN_STORES`` others have been asked for."""
        found = self._open.pop(directory, None)
        if found is None:
            while len(self._open) >= MAX_OPEN_STORES:
                self._open.popitem(last=False)[1].close()
            found = opened(Path(directory), LIVE_TABLES, self._scratch, self.cache)
        self._open[directory] = found
        return found
