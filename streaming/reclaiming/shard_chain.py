"""One shard's snapshot chain as far as it was read, and whether anything may be judged with it."""

from __future__ import annotations

from schemas.codec import DecodeError, codec
from schemas.records import FullChain, SnapshotChainRecord
from services.domain.chain_view import ChainGapError, ChainOrderError, ChainView


class ShardChain:
    """The view that follows from a shard's messages, which come in the order of their offsets.

    A message that cannot be read, a gap or a contradiction breaks the chain. It is whole again when the view has
    reached every version that was named since, by markers that follow on what it knows, or by a full chain to its last
    part.
    """

    def __init__(self) -> None:
        self.view = ChainView()
        self.next_offset = 0
        self.trouble = ""
        """Why nothing may be judged; empty for a chain that is whole."""
        self._needed_version = 0

    def receive(self, offset: int, body: bytes, fingerprint: bytes | None) -> set[int]:
        """Follow a message; says which buckets changed. One that was read before tells nothing."""
        if offset < self.next_offset:
            return set()
        self.next_offset = offset + 1
        try:
            marker = codec(SnapshotChainRecord).decode_message(body, fingerprint)
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

    def begin_again(self, reason: str) -> set[int]:
        """Forget all of it, to read the topic anew; says which buckets that concerns."""
        self._break(reason, self.view.version)
        self.next_offset = 0
        return self._forget()

    def _contradicted(self, marker: SnapshotChainRecord, reason: str) -> set[int]:
        if isinstance(marker.body, FullChain) and marker.version <= self.view.version:
            # Nobody knows which of the two is right: only a later record of the whole chain settles it.
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
