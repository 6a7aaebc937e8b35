"""The jars of table formats, which only tests need: fetched when a test first asks, by a lock as the plane's own.

``python -m tests.table_formats.jars`` resolves the versions below again and writes the lock.
"""

from __future__ import annotations

from importlib import resources
from pathlib import Path

from services.plane.machine.home import jars_directory
from services.plane.machine.jars import fetch_jars, jars_of, write_lock

LOCK = resources.files("tests.table_formats").joinpath("jars.lock")
ROOTS = {"iceberg": (("org.apache.iceberg", "iceberg-spark-runtime-4.0_2.13", "1.10.1"),)}


def fetched_jars(consumer: str) -> list[Path]:
    """Return the jars of a table format, and fetch what is missing of them."""
    jars = [jar for jar in jars_of(LOCK.read_text()) if jar.consumer == consumer]
    fetch_jars(jars_directory(), jars=jars)
    return [jars_directory() / consumer / jar.file_name for jar in jars]


if __name__ == "__main__":
    write_lock(Path(str(LOCK)), ROOTS)
