"""Read all cells of a bucket's space matrix, page by page."""

from __future__ import annotations

from collections.abc import Iterator

from schemas.records import SpaceCellValue
from services.client.plane import MetadataReads

PAGE_ROWS = 10_000


def all_cells(reads: MetadataReads, volume: str, bucket: str) -> Iterator[SpaceCellValue]:
    """Yield every cell of a bucket's space matrix. The pages are of one txn only while nothing is written."""
    start_after = ""
    while page := reads.space(volume, bucket, start_after=start_after, limit=PAGE_ROWS).cells:
        yield from page
        if len(page) < PAGE_ROWS:
            return
        start_after = f"{page[-1].first_holder}:{page[-1].last_holder}"
