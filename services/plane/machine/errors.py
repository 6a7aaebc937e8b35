"""What can be wrong with the stack under the plane: Java, the jars, the broker, ports and disks.

Every message is one sentence for a person at a terminal, and ends in what to do.
"""

from __future__ import annotations

import errno
from pathlib import Path

from services.domain.errors import DeepcleanError


class StackError(DeepcleanError):
    """Something under the plane is missing or does not start; the message says what to do about it."""


def disk_error(path: Path, error: OSError) -> StackError:
    """Turn a failed write into a sentence about the disk that it failed on."""
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
