"""Reads of a running plane over HTTP: the services' JSON answers, decoded into their records."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any

import httpx
from pydantic import TypeAdapter, ValidationError

from schemas.answers import (
    BucketSpace,
    CollectionStatus,
    DeadLetterBytes,
    DeadLetterCount,
    DiffJob,
    ListedDeletion,
    ListedEntry,
    RetentionPreview,
    ScmTotals,
    SnapshotConsumer,
    SnapshotTag,
    StatAnswer,
)
from schemas.http_token import bearer
from schemas.records import (
    BlockRun,
    BucketRow,
    DeadLetterRow,
    DirectoryRow,
    KeyRow,
    RetentionPolicy,
    RetentionRow,
    SnapshotInfo,
    VolumeRow,
)
from services.client.errors import PlaneError, UnreachableError
from services.client.wire.paging import deleted_position, page_or_all
from services.domain.snapshot_diff import DiffEntry

READ_SECONDS = 60.0
UNAVAILABLE = 503
MAX_PAGE_ROWS = 10_000
Parameters = Mapping[str, str | int]
_PREVIEWED = ("num_retained_min", "num_retained_max", "time_retained_ms", "expire_limit", "consumer_expiration_ms")
"""The fields of a policy that decide which snapshots expire."""


@cache
def _adapter(answer_type: Any) -> TypeAdapter[Any]:
    return TypeAdapter(answer_type)


class HttpShard:
    """The reads of one shard of one service. Safe to use from several threads."""

    def __init__(
        self,
        http: httpx.Client,
        service: str,
        address: str,
        shard: int,
        answered_txn: Callable[[], int] = lambda: 0,
    ) -> None:
        self._http = http
        self._service = service
        self._address = address
        self._base = f"{address}/v1/shards/{shard}"
        self._shard = shard
        self._answered_txn = answered_txn

    def get(self, path: str, answer_type: Any, parameters: Parameters | None = None) -> Any:
        """Send a GET that includes all commands answered so far; raise PlaneError when the service refuses."""
        return self.ask_for("GET", path, answer_type, parameters)

    def ask_for(self, method: str, path: str, answer_type: Any, parameters: Parameters | None = None) -> Any:
        """Like ``get`` with another HTTP method, for requests that start or stop something."""
        return self._ask(method, path, answer_type, params=self._with_after(parameters))

    def post(self, path: str, answer_type: Any, body: bytes, parameters: Parameters | None = None) -> Any:
        """Send a request whose parameters are too long for a URL."""
        headers = {"content-type": "application/json"}
        return self._ask("POST", path, answer_type, params=self._with_after(parameters), content=body, headers=headers)

    def _with_after(self, parameters: Parameters | None) -> Parameters:
        wanted = dict(parameters or {})
        txn = self._answered_txn()
        if txn:
            wanted["after"] = f"{self._shard}:{txn}"
        return wanted

    def _ask(self, method: str, path: str, answer_type: Any, **request: Any) -> Any:
        try:
            response = self._http.request(method, self._base + path, **request)
        except httpx.TimeoutException as error:
            raise UnreachableError(
                f"{self._service} at {self._address} did not answer within {READ_SECONDS:g} seconds: "
                f"see how it does (deepclean status), then try again"
            ) from error
        except httpx.HTTPError as error:
            raise UnreachableError(
                f"{self._service} at {self._address} cannot be reached ({error}): "
                f"see whether the plane runs (deepclean status)"
            ) from error
        if response.is_success:
            return self._decoded(response, answer_type)
        raise self._refusal(response)

    def _decoded(self, response: httpx.Response, answer_type: Any) -> Any:
        try:
            return _adapter(answer_type).validate_json(response.content)
        except ValidationError as error:
            raise UnreachableError(
                f"what answers at {response.url} is not {self._service} of this version: "
                f"see which program listens there ({error.error_count()} errors)"
            ) from error

    def _refusal(self, response: httpx.Response) -> Exception:
        try:
            body = response.json()
            if response.status_code == UNAVAILABLE:
                return UnreachableError(f"{self._service} at {self._address} cannot answer now: {body['message']}")
            return PlaneError(str(body["code"]), str(body["message"]), str(body.get("next_snapshot", "")))
        except (ValueError, KeyError, TypeError):
            return UnreachableError(
                f"{self._service} at {self._address} answered {response.status_code} without a reason: read its log"
            )


def http_client(token: str = "") -> httpx.Client:
    """Return the HTTP client that the reads of one plane share. It ignores the proxy settings of the environment."""
    return httpx.Client(timeout=READ_SECONDS, trust_env=False, headers=bearer(token))


class HttpMetadataReads:
    """Reads of one shard's metadata."""

    def __init__(self, shard: HttpShard) -> None:
        self._shard = shard

    def volumes(self, *, start_after: str = "", limit: int | None = None) -> list[VolumeRow]:
        """Return the volumes by name."""

        def page(after: str, rows: int) -> list[VolumeRow]:
            volumes: list[VolumeRow] = self._shard.get("/volumes", list[VolumeRow], _page(after, rows))
            return volumes

        return page_or_all(page, lambda row: row.volume, start_after=start_after, limit=limit)

    def buckets(self, volume: str, *, start_after: str = "", limit: int | None = None) -> list[BucketRow]:
        """Return the buckets of a volume by name."""

        def page(after: str, rows: int) -> list[BucketRow]:
            parameters = {"volume": volume, **_page(after, rows)}
            buckets: list[BucketRow] = self._shard.get("/buckets", list[BucketRow], parameters)
            return buckets

        return page_or_all(page, lambda row: row.bucket, start_after=start_after, limit=limit)

    def bucket(self, volume: str, bucket: str) -> BucketRow:
        """Return one bucket."""
        row: BucketRow = self._shard.get("/bucket", BucketRow, {"volume": volume, "bucket": bucket})
        return row

    def entries(
        self,
        volume: str,
        bucket: str,
        *,
        snapshot_id: str = "",
        prefix: str = "",
        start_after: str = "",
        limit: int | None = None,
    ) -> list[ListedEntry]:
        """Return the keys and directories behind a path, in walk order."""

        def page(after: str, rows: int) -> list[ListedEntry]:
            parameters = {**_place(volume, bucket, snapshot_id), "prefix": prefix, **_page(after, rows)}
            entries: list[ListedEntry] = self._shard.get("/entries", list[ListedEntry], parameters)
            return entries

        return page_or_all(page, lambda entry: entry.path, start_after=start_after, limit=limit)

    def deleted(
        self, volume: str, bucket: str, *, start_after: str = "", limit: int | None = None
    ) -> list[ListedDeletion]:
        """Return the deletions that are not claimed yet, oldest death first."""

        def page(after: str, rows: int) -> list[ListedDeletion]:
            parameters = {"volume": volume, "bucket": bucket, **_page(after, rows)}
            entries: list[ListedDeletion] = self._shard.get("/deleted", list[ListedDeletion], parameters)
            return entries

        return page_or_all(page, deleted_position, start_after=start_after, limit=limit)

    def stat(self, volume: str, bucket: str, path: str, *, snapshot_id: str = "") -> KeyRow | DirectoryRow:
        """Return one key or directory."""
        parameters = {**_place(volume, bucket, snapshot_id), "path": path}
        found: StatAnswer = self._shard.get("/stat", StatAnswer, parameters)
        row = found.key or found.directory
        assert row is not None  # noqa: S101  metadata refuses a path without key and directory
        return row

    def space(self, volume: str, bucket: str, *, start_after: str = "", limit: int = 1_000) -> BucketSpace:
        """Return the space of a bucket with a page of its cells."""
        parameters = {"volume": volume, "bucket": bucket, **_page(start_after, limit)}
        space: BucketSpace = self._shard.get("/space", BucketSpace, parameters)
        return space

    def collection(self, volume: str = "", bucket: str = "") -> list[CollectionStatus]:
        """Return the collection state of the shard, then that of one bucket or of all suspended buckets."""
        parameters: Parameters = {"volume": volume, "bucket": bucket} if bucket else {}
        found: list[CollectionStatus] = []
        while True:
            after: Parameters = {"start_after": found[-1].bucket_id} if found[1:] else {}
            asked = {**parameters, **after, "limit": MAX_PAGE_ROWS}
            first, *lines = self._shard.get("/collection", list[CollectionStatus], asked)
            found += lines if found else [first, *lines]  # the shard's own line leads every page
            if len(lines) < MAX_PAGE_ROWS:
                return found

    def ask_for_diff(
        self, volume: str, bucket: str, *, from_snapshot_id: str = "", to_snapshot_id: str = ""
    ) -> DiffJob:
        """Start a diff of two states of a bucket."""
        parameters = {"volume": volume, "bucket": bucket}
        parameters |= {"from_snapshot_id": from_snapshot_id, "to_snapshot_id": to_snapshot_id}
        job: DiffJob = self._shard.ask_for("POST", "/diffs", DiffJob, parameters)
        return job

    def diff_job(self, job_id: str, *, wait_seconds: int = 0) -> DiffJob:
        """Return the progress of a diff, at once or after a wait."""
        job: DiffJob = self._shard.get("/diff", DiffJob, {"job_id": job_id, "wait_seconds": wait_seconds})
        return job

    def diff_jobs(self, volume: str, bucket: str) -> list[DiffJob]:
        """Return the stored diffs of a bucket, oldest first."""
        jobs: list[DiffJob] = self._shard.get("/diffs", list[DiffJob], {"volume": volume, "bucket": bucket})
        return jobs

    def cancel_diff(self, job_id: str) -> DiffJob:
        """Stop a diff that has not ended."""
        job: DiffJob = self._shard.ask_for("DELETE", "/diff", DiffJob, {"job_id": job_id})
        return job

    def diff_entries(self, job_id: str, *, start_after: int = 0, limit: int) -> list[DiffEntry]:
        """Return a page of a finished diff."""
        parameters: dict[str, str | int] = {"job_id": job_id, "start_after": start_after, "limit": limit}
        entries: list[DiffEntry] = self._shard.get("/diff/entries", list[DiffEntry], parameters)
        return entries


class HttpSnapshotReads:
    """Reads of one shard's snapshots."""

    def __init__(self, shard: HttpShard) -> None:
        self._shard = shard

    def snapshots(self, volume: str, bucket: str, *, with_deleted: bool = False) -> list[SnapshotInfo]:
        """Return the snapshots of a bucket in chain order."""
        parameters: dict[str, str | int] = {"volume": volume, "bucket": bucket, "limit": MAX_PAGE_ROWS}
        parameters["with_deleted"] = "true" if with_deleted else "false"
        snapshots: list[SnapshotInfo] = []
        while True:
            start_after = snapshots[-1].create_txn if snapshots else 0
            page = self._shard.get("/snapshots", list[SnapshotInfo], {**parameters, "start_after": start_after})
            snapshots += page
            if len(page) < MAX_PAGE_ROWS:
                return snapshots

    def snapshot(self, volume: str, bucket: str, name: str) -> SnapshotInfo:
        """Return one snapshot."""
        parameters = {"volume": volume, "bucket": bucket, "name": name}
        snapshot: SnapshotInfo = self._shard.get("/snapshot", SnapshotInfo, parameters)
        return snapshot

    def retention(self, volume: str, bucket: str) -> RetentionRow:
        """Return the retention policy of a bucket and the state of its runs."""
        row: RetentionRow = self._shard.get("/retention", RetentionRow, {"volume": volume, "bucket": bucket})
        return row

    def retention_preview(
        self, volume: str, bucket: str, *, policy: RetentionPolicy | None = None, now_ms: int | None = None
    ) -> RetentionPreview:
        """Return the effect of a retention run by the bucket's policy or another one, now or at another time."""
        parameters: dict[str, str | int] = {"volume": volume, "bucket": bucket}
        if policy is not None:
            parameters |= {name: getattr(policy, name) for name in _PREVIEWED}
        if now_ms is not None:
            parameters["now_ms"] = now_ms
        preview: RetentionPreview = self._shard.get("/retention/preview", RetentionPreview, parameters)
        return preview

    def tags(self, volume: str, bucket: str) -> list[SnapshotTag]:
        """Return the tags of a bucket, by name."""
        tags: list[SnapshotTag] = []
        while True:
            start_after = tags[-1].tag if tags else ""
            page = self._shard.get("/tags", list[SnapshotTag], _bucket_page(volume, bucket, start_after))
            tags += page
            if len(page) < MAX_PAGE_ROWS:
                return tags

    def consumers(self, volume: str, bucket: str) -> list[SnapshotConsumer]:
        """Return the consumers of a bucket, by name."""
        consumers: list[SnapshotConsumer] = []
        while True:
            start_after = consumers[-1].consumer if consumers else ""
            page = self._shard.get("/consumers", list[SnapshotConsumer], _bucket_page(volume, bucket, start_after))
            consumers += page
            if len(page) < MAX_PAGE_ROWS:
                return consumers

    def dead_letters(
        self,
        *,
        service: str = "",
        topic: str = "",
        error: str = "",
        since_ms: int = 0,
        with_resolved: bool = False,
        start_after: int | None = None,
        limit: int | None = None,
    ) -> list[DeadLetterRow]:
        """Return the shard's dead letters, newest first."""
        parameters = _letters(service, topic, error, since_ms, with_resolved=with_resolved)
        rows = MAX_PAGE_ROWS if limit is None else limit
        letters: list[DeadLetterRow] = []
        while True:
            if start_after is not None:
                parameters["start_after"] = start_after
            page = self._shard.get("/dead-letters", list[DeadLetterRow], {**parameters, "limit": rows})
            letters += page
            if limit is not None or len(page) < rows:
                return letters
            start_after = page[-1].number

    def dead_letter_counts(
        self, *, service: str = "", topic: str = "", error: str = "", since_ms: int = 0, with_resolved: bool = False
    ) -> list[DeadLetterCount]:
        """Return the number of dead letters of each kind."""
        parameters = _letters(service, topic, error, since_ms, with_resolved=with_resolved)
        counts: list[DeadLetterCount] = self._shard.get("/dead-letters/counts", list[DeadLetterCount], parameters)
        return counts

    def dead_letter(self, number: int) -> DeadLetterBytes:
        """Return one dead letter with its message."""
        letter: DeadLetterBytes = self._shard.get("/dead-letter", DeadLetterBytes, {"number": number})
        return letter


class HttpScmReads:
    """Reads of one shard's storage container manager."""

    def __init__(self, shard: HttpShard) -> None:
        self._shard = shard

    def exist(self, runs: Sequence[BlockRun]) -> list[bool]:
        """Return for each run of blocks whether it is in the store."""
        existing: list[bool] = []
        for page in _pages(runs):
            existing += self._shard.post("/exist", list[bool], _adapter(list[BlockRun]).dump_json(list(page)))
        return existing

    def totals(self) -> ScmTotals:
        """Return the totals of the inventory."""
        totals: ScmTotals = self._shard.get("/totals", ScmTotals)
        return totals


def _page(start_after: str, limit: int) -> dict[str, str | int]:
    return {"start_after": start_after, "limit": limit}


def _bucket_page(volume: str, bucket: str, start_after: str) -> dict[str, str | int]:
    return {"volume": volume, "bucket": bucket, **_page(start_after, MAX_PAGE_ROWS)}


def _letters(service: str, topic: str, error: str, since_ms: int, *, with_resolved: bool) -> dict[str, str | int]:
    flag = "true" if with_resolved else "false"
    return {"service": service, "topic": topic, "error": error, "since_ms": since_ms, "with_resolved": flag}


def _place(volume: str, bucket: str, snapshot_id: str) -> dict[str, str | int]:
    return {"volume": volume, "bucket": bucket, "snapshot_id": snapshot_id}


def _pages(runs: Sequence[BlockRun]) -> Iterator[Sequence[BlockRun]]:
    for start in range(0, len(runs), MAX_PAGE_ROWS):
        yield runs[start : start + MAX_PAGE_ROWS]
