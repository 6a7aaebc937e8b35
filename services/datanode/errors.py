"""Errors of a datanode, with Ozone's result codes."""

from __future__ import annotations

from services.domain.errors import DeepcleanError


class BlockError(DeepcleanError):
    """A request about a container or a block that is refused."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class DiskError(DeepcleanError):
    """A disk cannot be read or written: the datanode goes on without it until its next start."""


def no_container(container_id: int) -> BlockError:
    """The datanode has no copy of a container."""
    return BlockError("CONTAINER_NOT_FOUND", f"container {container_id} is not here: ask mock_scm where it is")


def no_block(local_id: int) -> BlockError:
    """A container has no such block."""
    return BlockError("NO_SUCH_BLOCK", f"block {local_id} is not here: it was deleted, or was never written whole")


def damaged(local_id: int) -> BlockError:
    """The bytes of a block differ from its checksums."""
    return BlockError("CHECKSUM_MISMATCH", f"block {local_id} is damaged here: read it from another datanode")
