"""The home directory of the plane, and the directory of its jars.

The home is ``DEEPCLEAN_HOME``, else ``.deepclean`` beside the virtual environment, which is the checkout.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path


def home_directory() -> Path:
    """Return the directory for databases, logs and checkpoints; it may not exist yet."""
    named = os.environ.get("DEEPCLEAN_HOME")
    return Path(named).resolve() if named else _checkout_directory()


def jars_directory() -> Path:
    """Return the directory of the jars, with the sub-directories ``kafka`` and ``spark``.

    It is ``jars`` in the home if that exists, else the directory that ``make setup`` fills.
    """
    own = home_directory() / "jars"
    return own if own.is_dir() else _checkout_directory() / "jars"


def _checkout_directory() -> Path:
    return Path(sys.prefix).parent / ".deepclean"


def kept_shards(home: Path) -> int:
    """Return the number of shards of which a home has data; 1 for a new home."""
    found = (int(one.name) for one in home.glob("data/*/*") if one.name.isdecimal())
    return 1 + max(found, default=0)


def kept_datanodes(home: Path) -> int:
    """Return the number of datanodes of which a home has data; 0 for a home without."""
    numbers = (one.name.rpartition("-")[2] for one in home.glob("data/datanode-*"))
    found = (int(number) for number in numbers if number.isdecimal())
    return 1 + max(found, default=-1)
