"""Keeps the plane's files readable for its own account only.

Databases hold the names of keys and, on a secured plane, the secrets with which commands are signed. The broker's files
and backups hold them, too.
"""

from __future__ import annotations

import os

OWNER_ONLY = 0o077


def keep_files_private() -> None:
    """Make all files that this process and its children create later unreadable for other accounts."""
    os.umask(OWNER_ONLY)
