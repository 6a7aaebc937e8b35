"""Read the files of a database that another process may have open and may be writing to, without changing any of them.

rocksdict and RocksDB write files of their own beside a database even when they open it read-only, and the writer
deletes files. So a temporary directory gets a copy of the manifest, and links to the table files and the write-ahead
logs, which are held open, and RocksDB opens that directory. It shows one moment: it keeps all table files open, and has
the rows of the logs in memory.

The logs are taken first, then the manifest. So whatever is flushed meanwhile is in a log or in a table file of the
manifest, and no row of an earlier moment is missing. Table files are taken before and after it, since it names
files that are deleted or made meanwhile.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path
from resource import RLIMIT_NOFILE, getrlimit, setrlimit
from tempfile import TemporaryDirectory
from typing import Any

from rocksdict import Cache, Rdict

from services.storage.rocks_checkpoints import Handle, open_read_only
from services.storage.rocks_options import RocksOptions
from services.storage.rocks_views import RocksView, explaining
from services.storage.store import StoreError
from services.storage.tables import TableDefinition

ATTEMPTS = 20
"""How often a database is opened whose writer replaces files meanwhile."""
ALL_FILES = -1
CURRENT = "CURRENT"


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
    """Open links to the files. Try again if the writer has deleted one before it was held open."""
    options = RocksOptions(checkpoint_open_files=ALL_FILES)
    cache = Cache(options.block_cache_bytes)
    _allow_many_files()
    for attempt in range(ATTEMPTS):
        linked = Path(scratch, str(attempt))
        linked.mkdir()
        with ExitStack() as held:
            with explaining(source, "opened"):
                names = _names(source)
                _link(source, linked, held)
            try:
                return open_read_only(linked, definitions, options, cache, named=source)
            except StoreError:
                if _names(source) == names:
                    raise
    raise StoreError(f"{source} cannot be opened, its writer replaces files faster than they are opened: try again")


def _link(source: Path, linked: Path, held: ExitStack) -> None:
    _hold(source.glob("*.log"), linked, held)
    _hold(source.glob("*.sst"), linked, held)
    manifest = (source / CURRENT).read_text("ascii")
    (linked / CURRENT).write_text(manifest, "ascii")
    (linked / manifest.strip()).write_bytes((source / manifest.strip()).read_bytes())
    known = {file.name for file in linked.iterdir()}
    _hold((file for file in source.glob("*.sst") if file.name not in known), linked, held)


def _hold(files: Iterable[Path], linked: Path, held: ExitStack) -> None:
    """Open files, and link to what is open: RocksDB finds it there even if the writer deletes the files first."""
    for file in files:
        with suppress(FileNotFoundError):  # if the manifest names it, RocksDB says so
            descriptor = os.open(file, os.O_RDONLY)
            held.callback(os.close, descriptor)
            (linked / file.name).symlink_to(f"/dev/fd/{descriptor}")


def _names(source: Path) -> set[str]:
    return {file.name for file in source.iterdir()}


def _allow_many_files() -> None:
    """Allow this process as many open files as it may have: it opens each twice for a moment."""
    _, most = getrlimit(RLIMIT_NOFILE)
    with suppress(ValueError, OSError):  # some systems have a lower limit than they say
        setrlimit(RLIMIT_NOFILE, (most, most))
