"""Read the space of a bucket with all cells of its matrix, page by page."""

from __future__ import annotations

from collections.abc import Iterator

from schemas.answers import BucketSpace
from schemas.records import SpaceCellValue
from services.client.plane import MetadataReads

PAGE_ROWS = 10_000


def space_pages(reads: MetadataReads, volume: str, bucket: str) -> Iterator[BucketSpace]:
    """Yield the space of a bucket, at least once, each time with further cells. While nothing is written, the pages are
    of one txn.
    """
    page = reads.space(volume, bucket, limit=PAGE_ROWS)
    yield page
    while len(page.cells) == PAGE_ROWS:
        last = page.cells[-1]
        page = reads.space(volume, bucket, start_after=f"{last.first_holder}:{last.last_holder}", limit=PAGE_ROWS)
        yield page


def all_cells(reads: MetadataReads, volume: str, bucket: str) -> Iterator[SpaceCellValue]:
    """Yield every cell of a bucket's space matrix."""
    for page in space_pages(reads, volume, bucket):
        yield from page.cells
