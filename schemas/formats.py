"""What is kept on disk says of itself how to read it: databases, their checkpoints and copies, backups, Spark's place.

The *format* is a number for all that is not a record: which tables there are, how their keys are built, how a stored
row begins. A program reads the formats up to its own, and refuses a newer one.

A database also keeps each schema by which its rows were written. So the program before an upgrade, when it is started
again, reads rows that the newer one has written meanwhile: every two versions of a schema are compatible.

Rows of the family ``formatTable``::

    format                     the number, in digits
    schema/<record>/<version>  the schema as JSON
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path

from schemas.codec import released_schemas
from schemas.stored_rows import learn

FORMAT = 1
FAMILY = "formatTable"
FORMAT_KEY = b"format"
FILE = "format"
"""Holds the number beside files that are no database."""
_SCHEMA = b"schema/"


class FormatError(Exception):
    """What is on the disk cannot be read by this program; the message says what to do."""


def check(found: int | None, what: str) -> None:
    """Compare a format with that of this program.

    Raises:
        FormatError: it is newer, or there is none, since a program before release 0.2.0 has written it.
    """
    if found is None:
        raise FormatError(
            f"{what} has no format: a deepclean before 0.2.0 has written it, and this one cannot read it; "
            f"start on an empty directory"
        )
    if found > FORMAT:
        raise FormatError(
            f"{what} has format {found}, this program reads up to {FORMAT}: start the newer deepclean that wrote it"
        )


def check_rows(rows: Iterable[tuple[bytes, bytes]], what: str) -> None:
    """Check the rows of ``formatTable``, and learn the schemas that this program does not have.

    Raises:
        FormatError: as ``check``.
    """
    found = dict(rows)
    number = found.pop(FORMAT_KEY, None)
    check(None if number is None else int(number), what)
    for key, schema in found.items():
        if key.startswith(_SCHEMA):
            record, _, version = key.removeprefix(_SCHEMA).decode().partition("/")
            learn(record, int(version), json.loads(schema))


def rows_of(records: Iterable[type[object]]) -> Mapping[bytes, bytes]:
    """What a database keeps in ``formatTable`` whose tables hold these records."""
    rows = {FORMAT_KEY: b"%d" % FORMAT}
    for name in sorted({record.__name__ for record in records}):
        for version, schema in enumerate(released_schemas(name), start=1):
            rows[_SCHEMA + f"{name}/{version}".encode()] = json.dumps(schema, separators=(",", ":")).encode()
    return rows


def check_directory(directory: Path, what: str) -> None:
    """Check a directory that is no database by its file; one that is new gets it.

    Raises:
        FormatError: as ``check``.
    """
    file = directory / FILE
    if file.is_file():
        check(int(file.read_text("ascii")), what)
    elif directory.is_dir() and any(directory.iterdir()):
        check(None, what)
    else:
        directory.mkdir(parents=True, exist_ok=True)
        file.write_text(f"{FORMAT}\n", "ascii")
