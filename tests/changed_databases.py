"""Changes rows in the database of a service whose plane runs, as a fault of the disk would."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

from services.plane.stack.plane_file import running_plane
from services.storage.rocks import RocksStore
from services.storage.store import StoreError
from services.storage.tables import TableDefinition
from tests.waiting import eventually


@contextmanager
def changing(home: Path, service: str, tables: Sequence[TableDefinition[Any]]) -> Iterator[RocksStore]:
    """Kill a service, and open its database; its supervisor starts it again only when the database is closed."""
    plane = running_plane(home)
    try:
        os.kill(plane.supervisor.pid, signal.SIGSTOP)
        os.kill(plane.processes[service].identity.pid, signal.SIGKILL)
        with closing(_opened(home / "data" / service / "0" / "db", tables)) as store:
            yield store
    finally:
        os.kill(plane.supervisor.pid, signal.SIGCONT)


def _opened(directory: Path, tables: Sequence[TableDefinition[Any]]) -> RocksStore:
    """Open the database of a killed process as soon as the last of its threads has let go of the lock."""
    opened = list[RocksStore]()

    def is_opened() -> bool:
        with suppress(StoreError):
            opened.append(RocksStore(directory, tables))
        return bool(opened)

    eventually(is_opened)
    return opened[0]
