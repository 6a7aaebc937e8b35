"""Reads of a running plane's space over HTTP."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from schemas.space_answers import (
    BlockExplanation,
    FreedSpace,
    PathExplanation,
    PlanSpace,
    SnapshotSpaces,
    SpacePlan,
    WhatIf,
)
from services.client.errors import PlaneError
from services.client.wire.http_reads import MAX_PAGE_ROWS, HttpShard, Parameters

MAX_ATTEMPTS = 5


class HttpSpaceReads:
    """Reads of one shard's metadata about space; implements ``services.client.plane.SpaceReads``."""

    def __init__(self, shard: HttpShard) -> None:
        self._shard = shard

    def snapshot_spaces(
        self, volume: str, bucket: str, *, start_after: int = 0, limit: int | None = None
    ) -> SnapshotSpaces:
        """Return live snapshots with referenced and shared bytes: a page of at most ``limit``, or all as of one txn.

        Raises:
            PlaneError: NOT_OF_ONE_TXN if the snapshots fill several pages and the shard changed between two of them in
                each of ``MAX_ATTEMPTS`` attempts.
        """
        if limit is not None:
            return self._snapshot_page(volume, bucket, start_after, limit)
        for _ in range(MAX_ATTEMPTS):
            pages = list(self._snapshot_pages(volume, bucket, start_after))
            if len({(page.txn, page.chain_version) for page in pages}) == 1:
                return replace(pages[0], snapshots=tuple(one for page in pages for one in page.snapshots))
        raise PlaneError(
            "NOT_OF_ONE_TXN",
            f"{volume}/{bucket} has more than {MAX_PAGE_ROWS:,} snapshots, and the shard has changed each time before "
            f"all were read: ask again when it is quieter, or page by page (GET …/space/snapshots)",
        )

    def _snapshot_pages(self, volume: str, bucket: str, start_after: int) -> Iterator[SnapshotSpaces]:
        while True:
            page = self._snapshot_page(volume, bucket, start_after, MAX_PAGE_ROWS)
            yield page
            if len(page.snapshots) < MAX_PAGE_ROWS:
                return
            start_after = page.snapshots[-1].txn

    def _snapshot_page(self, volume: str, bucket: str, start_after: int, limit: int) -> SnapshotSpaces:
        parameters: Parameters = {"volume": volume, "bucket": bucket, "start_after": start_after, "limit": limit}
        return self._shard.get("/space/snapshots", SnapshotSpaces, parameters)

    def what_if(self, volume: str, bucket: str, question: WhatIf) -> FreedSpace:
        """Return the space that dropping a set of snapshots would free."""
        parameters = {"volume": volume, "bucket": bucket}
        return self._shard.ask_for("POST", "/space/what-if", FreedSpace, parameters, question)

    def plan(self, volume: str, bucket: str, question: PlanSpace) -> SpacePlan:
        """Return the smallest set of snapshots whose drop frees the requested bytes."""
        return self._shard.ask_for("POST", "/space/plan", SpacePlan, {"volume": volume, "bucket": bucket}, question)

    def explain_path(self, volume: str, bucket: str, path: str) -> PathExplanation:
        """Return every version of a path."""
        parameters = {"volume": volume, "bucket": bucket, "path": path}
        return self._shard.get("/explain/path", PathExplanation, parameters)

    def explain_block(self, local_id: int, *, volume: str = "", bucket: str = "", start: str = "") -> BlockExplanation:
        """Return the version that owns a block, or the place where the search continues."""
        parameters: Parameters = {"local_id": local_id, "volume": volume, "bucket": bucket, "start": start}
        return self._shard.get("/explain/block", BlockExplanation, parameters)
