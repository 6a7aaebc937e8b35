"""Read the files of a database that another process may have open and may be writing to, without changing any of them.

rocksdict and RocksDB write files of their own beside a database even when they open it read-only. So the database is
opened through a temporary directory of symbolic links. It shows one moment: all table files are open from then on, also
those that the writer has deleted since, and the rows of the write-ahead log are in memory.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from rocksdict import Cache, Rdict

from services.storage.rocks_checkpoints import OPENERS_FILES, Handle, open_read_only
from services.storage.rocks_options import RocksOptions
from services.storage.rocks_views import RocksView, explaining
from services.storage.store import StoreError
from services.storage.tables import TableDefinition

ATTEMPTS = 20
"""How often a database is opened whose writer replaces files meanwhile."""
ALL_FILES = -1


class FilesView(RocksView):
    """The committed rows of a database's files at the moment at which they were opened."""

    def __init__(self, source: Path, handle: Handle) -> None:
        super().__init__(source, handle.families)
        self._opened = handle.families

    @property
    def families(self) -> list[str]:
        """The names of the families that the database has."""
        return list(self._opened)

    def estimated_rows(self, family: str) -> int:
        """Return about how many rows a family has; rows that were written again may count twice."""
        return self._number(family, "rocksdb.estimate-num-keys")

    def size_bytes(self, family: str) -> int:
        """Return the bytes of a family in table files."""
        return self._number(family, "rocksdb.total-sst-files-size")

    def _number(self, family: str, name: str) -> int:
        found: int | None = self._opened[family].property_int_value(name)
        return found or 0


def list_families(source: Path) -> set[str]:
    """Return the names of the families of the database in a directory. Raise StoreError if it cannot be read."""
    with explaining(source, "opened"):
        return set(Rdict.list_cf(str(source)))


@contextmanager
def reading_files(source: Path, definitions: Sequence[TableDefinition[Any]]) -> Iterator[FilesView]:
    """Open the database in a directory, with those of the defined families that it has.

    Raises:
        StoreError: it cannot be read, or a newer program has written it.
    """
    with (
        TemporaryDirectory(prefix="deepclean-tables-") as scratch,
        closing(_opened(source, definitions, scratch)) as handle,
        closing(FilesView(source, handle)) as view,
    ):
        yield view


def _opened(source: Path, definitions: Sequence[TableDefinition[Any]], scratch: str) -> Handle:
    """Open links to the files. Try again when the writer has added or deleted files meanwhile."""
    options = RocksOptions(checkpoint_open_files=ALL_FILES)
    cache = Cache(options.block_cache_bytes)
    for attempt in range(1, ATTEMPTS + 1):
        linked = Path(scratch, str(attempt))
        with explaining(source, "opened"):
            files = _files_of(source)
            linked.mkdir()
            for file in files:
                (linked / file.name).symlink_to(file)
        try:
            return open_read_only(linked, definitions, options, cache, named=source)
        except StoreError:
            if attempt == ATTEMPTS or _files_of(source) == files:
                raise
    raise AssertionError  # the last attempt returns or raises


def _files_of(source: Path) -> set[Path]:
    return {file for file in source.absolute().iterdir() if not file.name.startswith(OPENERS_FILES)}
