"""The states of the pages of the lens: a database of Ozone and Iceberg tables by the names that the pages use."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table

from tests.ozone_databases import OzoneDatabase, key_info
from tests.stages import Stage, Staging

SNAPSHOTS = ("january", "february", "march", "april", "may")


@contextmanager
def a_database_of_ozone(stage: Stage) -> Iterator[None]:
    """Before each snapshot of a bucket a key is put, and another one deleted."""
    database = OzoneDatabase(stage.scratch / "om", "sales")
    reports = database.bucket("reports", 2)
    before = None
    for number, name in enumerate(SNAPSHOTS, start=1):
        row = key_info(reports, f"report-of-{name}", 10 * number, [(number, 1_000_000)])
        database.live(reports, row)
        if before is not None:
            database.remove(reports, before)
            database.deleted(reports, before.object_id, before)
        database.snapshot(reports, name, 10 * number, number)
        before = row
    stage.stand_ins["/backup/om"] = str(database.close())
    yield
    of_the_lens = stage.run(f"deepclean lens ozone {stage.scratch}/om what-if march april --bucket sales/reports")
    of_the_plane = stage.ran["deepclean space what-if trial/reports march april"].output
    assert "1.9 MiB" in of_the_lens
    assert "1.9 MiB" in of_the_plane


OZONE = Staging(around=a_database_of_ozone)


@contextmanager
def two_tables_of_a_catalog(stage: Stage) -> Iterator[None]:
    """A table in a directory that is also in the catalog, with a file that no snapshot names, and one with a tag. The
    catalog is a file.
    """
    uri, lake = f"sqlite:///{stage.scratch}/catalog.db", stage.scratch / "lake"
    with SqlCatalog("lake", uri=uri, warehouse=lake.as_uri()) as catalog:
        catalog.create_namespace("db")
        table, events = (_overwritten(catalog, f"db.{name}", lake / "db" / name) for name in ("table", "events"))
        tagged = events.snapshots()[0].snapshot_id
        events.manage_snapshots().create_tag(tagged, "before-cleaning").commit()
    (lake / "db" / "table" / "data" / "left-over.parquet").write_bytes(bytes(100))
    oldest = str(table.snapshots()[0].snapshot_id)
    stage.stand_ins |= {
        "/lake/db/table": f"{lake}/db/table",
        "s3://lake/db/table/metadata/00007-….metadata.json": table.metadata_location.removeprefix("file://"),
        "3051729675574597004": oldest,
    }
    stage.run(f"export PYICEBERG_CATALOG__LAKE__TYPE=sql PYICEBERG_CATALOG__LAKE__URI={uri}")
    yield
    by_file, orphans, by_tag = (
        stage.ran[f"deepclean lens iceberg {of}"].output
        for of in (
            "s3://lake/db/table/metadata/00007-….metadata.json what-if 3051729675574597004",
            "lake:db.table orphans",
            "lake:db.events what-if before-cleaning",
        )
    )
    assert by_file.startswith(f"deleting {oldest} would free")
    assert "left-over.parquet" in orphans
    assert by_tag.startswith(f"deleting {tagged} would free")


def _overwritten(catalog: Catalog, name: str, place: Path) -> Table:
    """Create a table whose rows were written, and overwritten twice."""
    rows = pa.table({"id": list(range(1_000))})
    table = catalog.create_table(name, schema=rows.schema, location=place.as_uri())
    table.append(rows)
    for _ in range(2):
        table.overwrite(rows)
    return table


ICEBERG = Staging(around=two_tables_of_a_catalog)
