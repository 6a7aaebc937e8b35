"""Errors of the stack under the plane: Java, the jars, the broker, ports and disks.

Every message is one sentence for a terminal and ends with the remedy.
"""

from __future__ import annotations

import errno
from pathlib import Path

from services.domain.errors import DeepcleanError


class StackError(DeepcleanError):
    """A part of the stack under the plane is missing or does not start; the message ends with the remedy."""


DISK_FULL = "The disk under {directory} is full: free some space there or choose another directory."
READ_ONLY = "The disk under {directory} is read-only: mount it for writing or choose another directory."
FORBIDDEN = "{directory} may not be written to: change its owner or mode, or choose another directory."
_UNKNOWN = "{directory} cannot be used ({reason}): repair it or choose another directory."
_SENTENCES = {
    errno.ENOSPC: DISK_FULL,
    errno.EDQUOT: DISK_FULL,
    errno.EROFS: READ_ONLY,
    errno.EACCES: FORBIDDEN,
    errno.EPERM: FORBIDDEN,
}


def disk_error(path: Path, error: OSError) -> StackError:
    """Return the error for a failed write, with the path that could not be written."""
    sentence = _SENTENCES.get(error.errno or 0, _UNKNOWN)
    return StackError(sentence.format(directory=path, reason=error.strerror or error))
