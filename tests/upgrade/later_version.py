"""Makes a version of the program that is later than this one: each schema of a topic and of a table has a field more.

The version is a folder of packages, for ``PYTHONPATH``. It differs from this version by its schemas and by what a
developer would have to change with them.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
PACKAGES = ("deepclean", "schemas", "services", "streaming")
FIELD = {"name": "added_later", "type": "long", "default": 0, "doc": "A field of the later version."}
LAST_OF_COMMANDS = "signature"
"""The signature stays the last field of a command."""
COMPOSED = frozenset({"barrier", "block_run", "claimed_row", "deleted_key_row", "inventory_row", "key_row"})
"""Records that the program puts together field by field or from encoded parts, and would have to add a new field to."""
PLAIN_ENCODING = "to_avro(record, "
LATER_ENCODING = f'to_avro(record.withField("{FIELD["name"]}", lit(0).cast("long")), '


def environment(*folders: Path) -> dict[str, str]:
    """Return the settings with which a Python process imports packages from these folders, the first one first."""
    return {"PYTHONPATH": os.pathsep.join(map(str, folders)), "PYTHONSAFEPATH": "1"}


def make_later_version(folder: Path, changed: Mapping[str, str] | None = None) -> Path:
    """Make the later version in a new folder and return it."""
    for package in PACKAGES:
        shutil.copytree(ROOT / package, folder / package, ignore=shutil.ignore_patterns("__pycache__"))
    names = set(_evolve(folder))
    assert len(names) > 60, "most schemas change"
    batch = folder / "streaming" / "reclaiming" / "batch.py"
    text = batch.read_text("utf-8")
    assert text.count(PLAIN_ENCODING) == 1, "Spark's messages are encoded in one place"
    batch.write_text(text.replace(PLAIN_ENCODING, LATER_ENCODING), "utf-8")
    for module in ("schemas.generate", "tests.schema_releases"):
        command = [sys.executable, "-m", module]
        subprocess.run(command, env={**os.environ, **environment(folder, ROOT)}, check=True, capture_output=True)
    return folder


def _evolve(folder: Path) -> Iterator[str]:
    """Add the field to each released record; yield the names of the files."""
    released = {file.name.split(".")[0] for file in (folder / "schemas" / "released").glob("*.avsc")}
    for file in sorted((folder / "schemas" / "avro").rglob("*.avsc")):
        if file.stem not in released - COMPOSED:
            continue
        schema: dict[str, Any] = json.loads(file.read_text("utf-8"))
        if schema["type"] != "record":
            continue
        fields = schema["fields"]
        place = len(fields) - (1 if fields and fields[-1]["name"] == LAST_OF_COMMANDS else 0)
        fields.insert(place, FIELD)
        file.write_text(json.dumps(schema, indent=2), "utf-8")
        yield file.stem
