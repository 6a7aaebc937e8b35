"""What the plane keeps is for its own account alone.

Databases hold the names of keys and, on a secured plane, the secrets that commands are signed with; the broker's files
and backups hold the same.
"""

from __future__ import annotations

import os

OWNER_ONLY = 0o077


def keep_files_private() -> None:
    """Whatever this process and those that it starts make from now on, no other account may read."""
    os.umask(OWNER_ONLY)
