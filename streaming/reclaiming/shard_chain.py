"""One shard's snapshot chain as far as it was read, and whether entries can be judged with it."""

from __future__ import annotations

from schemas.codec import DecodeError, codec
from schemas.records import FullChain, SnapshotChainRecord
from services.domain.chain_view import ChainGapError, ChainOrderError, ChainView


class ShardChain:
    """The chain view built from a shard's messages, in the order of their offsets.

    An unreadable message, a gap or a contradiction breaks the chain. The chain is whole again when the view has
    reached every version named since then, through consecutive markers or through all parts of a full chain.
    """

    def __init__(self) -> None:
        self.view = ChainView()
        self.next_offset = 0
        self.trouble = ""
        """Why the chain is broken, so that no entry can be judged; empty for a whole chain."""
        self._needed_version = 0

    def receive(self, offset: int, message: bytes) -> set[int]:
        """Apply a message; return the ids of the buckets that changed. A message that was read before is ignored."""
        if offset < self.next_offset:
            return set()
        self.next_offset = offset + 1
        try:
            marker = codec(SnapshotChainRecord).decode_message(message)
        except DecodeError as unreadable:
            self._break(f"offset {offset} cannot be read: {unreadable}", self.view.version)
            return set()
        is_confirmed = self.view.is_confirmed_by_full_chain(marker)
        try:
            changed = self.view.follow(marker)
        except (ChainGapError, ChainOrderError) as broken:
            return self._contradicted(marker, f"offset {offset}: {broken}")
        if changed is None and not is_confirmed:
            return set()
        if self.view.version >= self._needed_version:
            self.trouble, self._needed_version = "", 0
        return set(changed or ())

    def ends_at(self, offset: int) -> None:
        """Note that no message is left before an offset."""
        self.next_offset = max(self.next_offset, offset)

    def begin_again(self, reason: str) -> set[int]:
        """Discard the chain, so that the topic is read again from the start; return the ids of its buckets."""
        self._break(reason, self.view.version)
        self.next_offset = 0
        return self._forget()

    def _contradicted(self, marker: SnapshotChainRecord, reason: str) -> set[int]:
        if isinstance(marker.body, FullChain) and marker.version <= self.view.version:
            # The view or the full chain is wrong; only a later full chain can tell which.
            self._break(reason, marker.version + 1)
            return self._forget()
        self._break(reason, marker.version)
        return set()

    def _break(self, reason: str, needed_version: int) -> None:
        self.trouble = self.trouble or reason
        self._needed_version = max(self._needed_version, needed_version)

    def _forget(self) -> set[int]:
        changed = set(self.view.bucket_ids())
        self.view = ChainView()
        return changed
