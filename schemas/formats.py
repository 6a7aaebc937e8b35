"""The format of stored files: databases, their checkpoints and copies, backups, and Spark's checkpoint.

The *format* is a number. It covers everything that no record's schema covers: the set of tables, the layout of their
keys, the first bytes of a stored row. A program reads the formats up to its own, and refuses a newer one.

A database also holds each schema by which its rows were written. So an older program that is started again after an
upgrade can read the rows that the newer one has written: every two versions of a schema are compatible.

Rows of the family ``formatTable``::

    format                     the number, in digits
    schema/<record>/<version>  the schema as JSON
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping

from schemas.schema_files import released_schemas
from schemas.stored_rows import EMBEDDED, learn

FORMAT = 1
FAMILY = "formatTable"
FORMAT_KEY = b"format"
FILE = "format"
"""Name of the file that holds the format in a directory that is not a database."""
SCHEMAS_OF_ROWS = b"schema/"
"""How the keys of rows with schemas begin."""


class FormatError(Exception):
    """This program cannot read a stored format; the message holds the remedy."""


def check(found: int | None, what: str) -> None:
    """Compare a format with that of this program.

    Raises:
        FormatError: the format is newer; or it is missing, because a program before release 0.2.0 wrote the files.
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
    """Check the rows of ``formatTable``, and register the schemas that this program does not have.

    Raises:
        FormatError: as ``check``.
    """
    found = dict(rows)
    number = found.pop(FORMAT_KEY, None)
    check(None if number is None else int(number), what)
    for key, schema in found.items():
        learn_row(key, schema)


def learn_row(key: bytes, schema: bytes) -> None:
    """Register the schema in a row of ``formatTable``; a row of another kind is ignored."""
    if key.startswith(SCHEMAS_OF_ROWS):
        record, version = _record_and_version(key)
        learn(record, version, json.loads(schema))


def is_first(key: bytes) -> bool:
    """Return whether a row of ``formatTable`` has the first version of a schema, which every program knows."""
    return _record_and_version(key)[1] == 1


def _record_and_version(key: bytes) -> tuple[str, int]:
    record, _, version = key.removeprefix(SCHEMAS_OF_ROWS).decode().partition("/")
    return record, int(version)


def rows_of(records: Iterable[type[object]]) -> Mapping[bytes, bytes]:
    """Return the rows of ``formatTable`` for a database whose tables hold these records."""
    rows = {FORMAT_KEY: b"%d" % FORMAT}
    for name in sorted({one.__name__ for record in records for one in (record, *EMBEDDED.get(record, ()))}):
        for version, schema in enumerate(released_schemas(name), start=1):
            rows[SCHEMAS_OF_ROWS + f"{name}/{version}".encode()] = json.dumps(schema, separators=(",", ":")).encode()
    return rows
