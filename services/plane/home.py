"""Where the plane keeps what it downloads and what it writes: ``DEEPCLEAN_HOME``, else ``.deepclean``
beside the virtual environment, which is the checkout."""

from __future__ import annotations

import os
import sys
from pathlib import Path


def home_directory() -> Path:
    """The directory for jars, databases, logs and checkpoints; it may not exist yet."""
    named = os.environ.get("DEEPCLEAN_HOME")
    return Path(named).resolve() if named else Path(sys.prefix).parent / ".deepclean"


def jars_directory() -> Path:
    """Where ``make setup`` puts the jars, in a directory each for ``kafka`` and ``spark``."""
    return home_directory() / "jars"
