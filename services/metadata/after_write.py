"""Clean-up after each unit of work, outside of it: removes files and rows that no read can reach."""

from __future__ import annotations

from services.metadata.service import MetadataService
from services.runtime.loop.service import Service
from services.storage.store import Store


def remove_unneeded(service: Service, store: Store) -> None:
    """Remove the checkpoints of dropped snapshots, and a page of the changes before the oldest live snapshot."""
    if isinstance(service, MetadataService):
        for name in service.pop_dropped_checkpoints():
            store.remove_checkpoint(name)
        service.unneeded_changes.remove_page(store)
