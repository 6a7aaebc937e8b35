"""The format of each table's keys, as the table in the docstring of a service's ``tables.py`` has it."""

from __future__ import annotations

import re
from itertools import pairwise
from types import ModuleType

from services.directory_deletion import tables as directory_deletion_tables
from services.key_deletion import tables as key_deletion_tables
from services.metadata.state import tables as metadata_tables
from services.mock_scm import tables as scm_tables
from services.runtime.loop import runner
from services.snapshots.state import tables as snapshots_tables

_MODULES: dict[str, ModuleType] = {
    "metadata": metadata_tables,
    "snapshots": snapshots_tables,
    "key_deletion": key_deletion_tables,
    "directory_deletion": directory_deletion_tables,
    "mock_scm": scm_tables,
}


def key_formats(service: str) -> dict[str, str]:
    """Return the format of the keys of each table of a service, as in ``/bucketId/death/objectId``."""
    return {**_documented(runner), **_documented(_MODULES[service])}


def _documented(module: ModuleType) -> dict[str, str]:
    """Return the second column of the docstring's table by the first; a row without a first column has another key."""
    lines = (module.__doc__ or "").splitlines()
    head, _, end = (number for number, line in enumerate(lines) if re.fullmatch("=+ =+ =+", line))
    ends = [0, *(found.end() + 1 for found in re.finditer("=+", lines[head]))]
    found: dict[str, str] = {}
    name = ""
    for line in lines[head + 3 : end]:
        first, key = (line[start:stop].strip() for start, stop in pairwise(ends[:3]))
        name = first or name
        found[name] = f"{found[name]} or {key}" if not first and key else found.get(name, key)
    return found
