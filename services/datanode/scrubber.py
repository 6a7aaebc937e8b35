"""Reads all blocks of a datanode again and again, slowly, and compares them with their checksums.

A block that differs, or whose file is missing, is marked. The next heartbeat reports it, and mock_scm has it healed
from another datanode.
"""

from __future__ import annotations

from collections.abc import Iterator

import structlog

from services.datanode.errors import BlockError, DiskError
from services.datanode.node import DataNode

logger = structlog.get_logger(__name__)


class Scrubber:
    """One pass after the other over all blocks."""

    def __init__(self, node: DataNode, interval_ms: int, bytes_per_second: int) -> None:
        self._node = node
        self._interval_ms = interval_ms
        self._bytes_per_second = bytes_per_second
        self._pass: Iterator[tuple[int, bool]] | None = None
        self._next_pass_ms = 0
        self._allowed_ms = 0

    def go_on(self, now_ms: int) -> tuple[int, int]:
        """Read as many blocks as the time since the last call allows. Return the bytes read, and the blocks damaged."""
        if now_ms < self._allowed_ms:
            return 0, 0
        if self._pass is None:
            if now_ms < self._next_pass_ms:
                return 0, 0
            self._next_pass_ms = now_ms + self._interval_ms
            self._pass = self._blocks()
        read_bytes = damaged = 0
        for size_bytes, is_whole in self._pass:
            read_bytes, damaged = read_bytes + size_bytes, damaged + (not is_whole)
            if read_bytes >= self._bytes_per_second:
                self._allowed_ms = now_ms + 1_000 * read_bytes // max(1, self._bytes_per_second)
                return read_bytes, damaged
        self._pass = None
        return read_bytes, damaged

    def _blocks(self) -> Iterator[tuple[int, bool]]:
        """Read every block; yield its size and whether it is whole."""
        for storage, volume in self._node.containers():
            after = -1
            try:
                while page := volume.blocks(storage, after):
                    for entry in page:
                        is_whole = volume.is_whole(storage, entry.local_id)
                        if is_whole is False:
                            logger.error("a block is damaged", container=storage, block=entry.local_id)
                        yield entry.size_bytes, is_whole is not False
                    after = page[-1].local_id
            except BlockError:  # the container was removed meanwhile
                continue
            except DiskError as error:
                logger.error("a disk failed", reason=str(error))
