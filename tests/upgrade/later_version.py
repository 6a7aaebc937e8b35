"""Makes a version of the program that is later than this one: each schema of a topic and of a table has a field more.

The version is a folder of packages, for ``PYTHONPATH``. It differs from this version by its schemas and by what a
developer would have to change with them: where rows are put together field by field or from encoded parts, it writes a
value of its own to the field, which this version has no word for and must neither show nor stumble over.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
PACKAGES = ("deepclean", "schemas", "services", "streaming")
FIELD = {"name": "added_later", "type": "long", "default": 0, "doc": "A field of the later version."}
VALUE = 7
"""The value of the field in rows that are put together; others have the default."""
FOLLOWING = ("signature", "version_rows", "numbers")
"""Fields behind which there is none to add. The signature stays the last field of a command, and ``version_rows`` and
``is_composed`` those of the row of a key, where a deletion reads them without decoding the row. The numbers of a
claimed row, with the row of deletedTable as it is encoded, are appended to a beginning that many claimed rows share."""
PARTS = frozenset({"barrier", "block_run"})
"""Parts of other records, which Spark or a column of numbers makes field by field: they stay as they are."""
HEADS = frozenset({"claimed_head"})
"""Records that are never stored, but are the first fields of one that is: they change with it."""
COMPOSED = frozenset({"claimed_row", "deleted_key_row", "inventory_row", "key_row", "metadata_reply"})
"""Records that the program puts together field by field or from encoded parts: see ``CHANGES``."""
CHANGES = (
    (
        "streaming/reclaiming/batch.py",
        "to_avro(record, ",
        f'to_avro(record.withField("{FIELD["name"]}", lit(0).cast("long")), ',
    ),
    (
        "services/metadata/namespace/keys.py",
        '"version_rows": version_rows,',
        f'"{FIELD["name"]}": {VALUE}, "version_rows": version_rows,',
    ),
    (
        "services/metadata/service.py",
        '"committed": committed,',
        f'"committed": committed, "{FIELD["name"]}": {VALUE},',
    ),
    (
        "services/metadata/namespace/garbage.py",
        '"unread_bytes", "version_of")',
        f'"unread_bytes", "version_of", "{FIELD["name"]}")',
    ),
    ("services/metadata/namespace/garbage.py", '"shadow_hour": 0,', f'"shadow_hour": 0, "{FIELD["name"]}": {VALUE},'),
    (
        "services/metadata/collecting/claims.py",
        '"numbers": _NO_NUMBERS}',
        f'"{FIELD["name"]}": {VALUE}, "numbers": _NO_NUMBERS}}',
    ),
    (
        "services/mock_scm/inventory.py",
        "run)).removesuffix(_BLOCK_RUN.encode(run))",
        "run)).removesuffix(_BLOCK_RUN.encode(run) + bytes(1))",
    ),
    (
        "services/mock_scm/inventory.py",
        "inventory.put_encoded(key, row)",
        f"inventory.put_encoded(key, row + bytes([{2 * VALUE}]))",
    ),
)
"""The file, what it has once, and what the later version has there."""


def environment(*folders: Path) -> dict[str, str]:
    """Return the settings with which a Python process imports packages from these folders, the first one first."""
    return {"PYTHONPATH": os.pathsep.join(map(str, folders)), "PYTHONSAFEPATH": "1"}


def make_later_version(folder: Path) -> Path:
    """Make the later version in a new folder and return it."""
    for package in PACKAGES:
        shutil.copytree(ROOT / package, folder / package, ignore=shutil.ignore_patterns("__pycache__"))
    names = set(_evolve(folder))
    assert len(names) > 60, "most schemas change"
    assert names >= COMPOSED
    for name, present, later in CHANGES:
        file = folder / name
        text = file.read_text("utf-8")
        assert text.count(present) == 1, f"{name} does this in one place: {present}"
        file.write_text(text.replace(present, later), "utf-8")
    for module in ("schemas.generate", "tests.schema_releases"):
        command = [sys.executable, "-m", module]
        subprocess.run(command, env={**os.environ, **environment(folder, ROOT)}, check=True, capture_output=True)
    return folder


def _evolve(folder: Path) -> Iterator[str]:
    """Add the field to each released record; yield the names of the files."""
    released = {file.name.split(".")[0] for file in (folder / "schemas" / "released").glob("*.avsc")}
    for file in sorted((folder / "schemas" / "avro").rglob("*.avsc")):
        if file.stem not in (released | HEADS) - PARTS:
            continue
        schema: dict[str, Any] = json.loads(file.read_text("utf-8"))
        if schema["type"] != "record":
            continue
        fields = schema["fields"]
        fields.insert(_place([field["name"] for field in fields]), FIELD)
        file.write_text(json.dumps(schema, indent=2), "utf-8")
        yield file.stem


def _place(names: Sequence[str]) -> int:
    """Return the place of the new field: the last one, unless something has to follow it."""
    return next((names.index(name) for name in FOLLOWING if name in names), len(names))
