"""Errors of the stack under the plane: Java, the jars, the broker, ports and disks.

Every message is one sentence for a terminal and ends with the remedy.
"""

from __future__ import annotations

import errno
from pathlib import Path

from services.domain.errors import DeepcleanError


class StackError(DeepcleanError):
    """A part of the stack under the plane is missing or does not start; the message ends with the remedy."""


def disk_error(path: Path, error: OSError) -> StackError:
    """Return the error for a failed write, with the path that could not be written."""
    match error.errno:
        case errno.ENOSPC | errno.EDQUOT:
            return StackError(f"The disk under {path} is full: free some space there or choose another directory.")
        case errno.EROFS:
            return StackError(f"The disk under {path} is read-only: mount it for writing or choose another directory.")
        case errno.EACCES | errno.EPERM:
            return StackError(f"{path} may not be written to: change its owner or mode, or choose another directory.")
        case _:
            return StackError(
                f"{path} cannot be used ({error.strerror or error}): repair it or choose another directory."
            )
