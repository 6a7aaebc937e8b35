"""Where the plane keeps what it writes (``DEEPCLEAN_HOME``, else ``.deepclean`` beside the virtual environment, which
is the checkout), and where the jars are that it runs on."""

from __future__ import annotations

import os
import sys
from pathlib import Path


def home_directory() -> Path:
    """The directory for databases, logs and checkpoints; it may not exist yet."""
    named = os.environ.get("DEEPCLEAN_HOME")
    return Path(named).resolve() if named else _checkout_directory()


def jars_directory() -> Path:
    """Where ``make setup`` puts the jars, in a directory each for ``kafka`` and ``spark``; a home may bring its own."""
    own = home_directory() / "jars"
    return own if own.is_dir() else _checkout_directory() / "jars"


def _checkout_directory() -> Path:
    return Path(sys.prefix).parent / ".deepclean"
