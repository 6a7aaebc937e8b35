"""Follows the snapshot chain for a judge, which must stop at a missing marker."""

from __future__ import annotations

from schemas.records import SnapshotChainRecord
from services.domain.chain_view import ChainView, ChainViewError
from services.domain.errors import ChainBrokenError
from services.runtime.loop.service import Work
from services.runtime.parts.stored_chain import StoredChain
from services.storage.tables import TablesReader


class ChainFollower:
    """The complete view of the shard's chain, up to the newest marker read."""

    def __init__(self) -> None:
        self._chain = StoredChain()

    @property
    def view(self) -> ChainView:
        """Return the view; ``restore`` replaces it by another object."""
        return self._chain.view

    def restore(self, tables: Work | TablesReader) -> None:
        """Rebuild the view."""
        self._chain.restore(tables)

    def follow(self, record: SnapshotChainRecord, work: Work) -> bool:
        """Apply a marker; return whether the view has changed.

        Raises:
            ChainBrokenError: an earlier marker is missing, or this one contradicts them; nothing may be judged.
        """
        try:
            return self._chain.follow(record, work)
        except ChainViewError as error:
            raise ChainBrokenError(work.shard, str(error)) from error
