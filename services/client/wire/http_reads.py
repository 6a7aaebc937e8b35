"""Reads of a running plane over HTTP: the services' JSON answers, decoded into their records."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, TypeVar, cast

import httpx
from pydantic import TypeAdapter, ValidationError
from pydantic_core import to_json

from schemas.answers import (
    BucketSpace,
    CollectionStatus,
    DeadLetterBytes,
    DeadLetterCount,
    DiffJob,
    ListedDeletion,
    ListedEntry,
    ListedOpenKey,
    ListedToken,
    ListedVersion,
    RetentionPreview,
    ScmTotals,
    ShardKept,
    SnapshotConsumer,
    SnapshotTag,
    StatAnswer,
)
from schemas.http_token import bearer
from schemas.records import (
    AccessIdRow,
    Acl,
    AclObject,
    BlockRun,
    BucketRow,
    DeadLetterRow,
    DirectoryRow,
    KeyRow,
    PartRow,
    RetentionPolicy,
    RetentionRow,
    ShardState,
    SnapshotInfo,
    TenantRow,
    UploadRow,
    VolumeRow,
)
from services.client.errors import PlaneError, UnreachableError
from services.client.wire import paging
from services.client.wire.owners import MOVE_SECONDS, FollowedOwner
from services.domain.snapshot_diff import DiffEntry

READ_SECONDS = 60.0
WRONG_SHARD = "WRONG_SHARD"
UNAVAILABLE = 503
MAX_PAGE_ROWS = 10_000
Parameters = Mapping[str, str | int]
_PREVIEWED = ("num_retained_min", "num_retained_max", "time_retained_ms", "expire_limit", "consumer_expiration_ms")
"""The fields of a policy that decide which snapshots expire."""

T = TypeVar("T")
R = TypeVar("R")


@cache
def _adapter(answer_type: Any) -> TypeAdapter[Any]:
    return TypeAdapter(answer_type)


@dataclass(frozen=True, slots=True)
class HttpShard:
    """The reads of one shard of one service. Safe to use from several threads."""

    http: httpx.Client
    service: str
    address: str
    """Empty for a shard whose owner may move."""
    shard: int
    answered_txn: Callable[[], int] = lambda: 0
    owner: FollowedOwner | None = None
    """By whom the address is known that is empty here."""

    def get(self, path: str, answer_type: type[T], parameters: Parameters | None = None) -> T:
        """Send a GET that includes all commands answered so far; raise PlaneError when the service refuses."""
        return self.ask_for("GET", path, answer_type, parameters)

    def ask_for(
        self,
        method: str,
        path: str,
        answer_type: type[T],
        parameters: Parameters | None = None,
        body: Any = None,
    ) -> T:
        """Like ``get`` with another HTTP method, or with a body, sent as JSON, for what is too long for a URL.

        While the shard moves, it is asked again where its owner answers by then: for ``MOVE_SECONDS``, and after that
        once at each owner that was not asked yet, since a stopped process may take longer than that to refuse.

        Raises:
            UnreachableError: no owner has answered.
        """
        if self.owner is None:
            return self._asked(self.address, method, path, answer_type, parameters, body)
        until, all_asked = time.monotonic() + MOVE_SECONDS, {""}
        while True:
            asked = ""
            try:
                asked = self.owner.url()
                return self._asked(asked, method, path, answer_type, parameters, body)
            except UnreachableError as error:
                last = error
            except PlaneError as error:
                if error.code != WRONG_SHARD:
                    raise
                last = UnreachableError(
                    f"{self.service} at {asked} does not own shard {self.shard}, and no other process has published "
                    f"that it does: see whether all instances run (deepclean status), then try again"
                )
            all_asked.add(asked)
            self.owner.look_again()
            if time.monotonic() > until and self.owner.known_url() in all_asked:
                raise last

    def _asked(
        self, address: str, method: str, path: str, answer_type: type[T], parameters: Parameters | None, body: Any
    ) -> T:
        wanted = dict(parameters or {})
        if txn := self.answered_txn():
            wanted["after"] = f"{self.shard}:{txn}"
        url = f"{address}/v1/shards/{self.shard}{path}"
        sent: dict[str, Any] = (
            {} if body is None else {"content": to_json(body), "headers": {"content-type": "application/json"}}
        )
        try:
            response = self.http.request(method, url, params=wanted, **sent)
        except httpx.TimeoutException as error:
            raise UnreachableError(
                f"{self.service} at {address} did not answer within {READ_SECONDS:g} seconds: "
                f"see how it does (deepclean status), then try again"
            ) from error
        except httpx.HTTPError as error:
            raise UnreachableError(
                f"{self.service} at {address} cannot be reached ({error}): "
                f"see whether the plane runs (deepclean status)"
            ) from error
        if not response.is_success:
            raise self._refusal(address, response)
        try:
            answer: T = _adapter(cast(Hashable, answer_type)).validate_json(response.content)
        except ValidationError as error:
            raise UnreachableError(
                f"what answers at {response.url} is not {self.service} of this version: "
                f"see which program listens there ({error.error_count()} errors)"
            ) from error
        return answer

    def _refusal(self, address: str, response: httpx.Response) -> Exception:
        reason = reason_of(response)
        if reason is None:
            return UnreachableError(
                f"{self.service} at {address} answered {response.status_code} without a reason: read its log"
            )
        if response.status_code == UNAVAILABLE:
            return UnreachableError(f"{self.service} at {address} cannot answer now: {reason.message}")
        return reason

    def rows(
        self,
        path: str,
        page_type: type[list[R]],
        position_of: Callable[[R], str | int],
        parameters: Parameters,
        limit: int | None = None,
        page_rows: int | None = None,
    ) -> list[R]:
        """Return one page of at most ``limit`` rows of a listing, or all, in pages of ``page_rows``.

        ``position_of`` returns the position, ``start_after``, at which the listing continues after a row.
        """
        rows: list[R] = []
        size = (page_rows or MAX_PAGE_ROWS) if limit is None else limit
        while True:
            page = self.get(path, page_type, {**parameters, "limit": size})
            rows += page
            if limit is not None or len(page) < size:
                return rows
            parameters = {**parameters, "start_after": position_of(page[-1])}


def reason_of(response: httpx.Response) -> PlaneError | None:
    """Return the reason that a process gave for an error; None for none, as when it ends amid a request."""
    try:
        body = response.json()
        return PlaneError(str(body["code"]), str(body["message"]), str(body.get("next_snapshot", "")))
    except (ValueError, KeyError, TypeError):
        return None


def http_client(token: str = "", *, seconds: float = READ_SECONDS) -> httpx.Client:
    """Return an HTTP client for the processes of one plane. It ignores the proxy settings of the environment."""
    return httpx.Client(timeout=seconds, trust_env=False, headers=bearer(token))


def _of(volume: str, bucket: str, **others: str | int) -> Parameters:
    return {"volume": volume, "bucket": bucket, **others}


class HttpMetadataReads:
    """Reads of one shard's metadata; implements ``services.client.plane.MetadataReads``."""

    def __init__(self, shard: HttpShard) -> None:
        self._shard = shard

    def state(self) -> ShardState:
        """Return the shard's counters."""
        return self._shard.get("/state", ShardState)

    def kept(self) -> ShardKept:
        """Return what the shard keeps."""
        return self._shard.get("/kept", ShardKept)

    def volumes(self, *, user: str = "", start_after: str = "", limit: int | None = None) -> list[VolumeRow]:
        """Return the volumes by name, or those of a user."""
        parameters = {"user": user, "start_after": start_after}
        return self._shard.rows(
            "/volumes", list[VolumeRow], lambda row: row.volume, parameters, limit, paging.PAGE_ROWS
        )

    def acl(self, kind: AclObject, volume: str, bucket: str = "", path: str = "") -> list[Acl]:
        """Return the access list of an object."""
        return self._shard.get("/acl", list[Acl], _of(volume, bucket, object=kind, path=path))

    def tenants(self, *, start_after: str = "", limit: int | None = None) -> list[TenantRow]:
        """Return the tenants by name."""
        return self._shard.rows(
            "/tenants", list[TenantRow], lambda row: row.tenant, {"start_after": start_after}, limit, paging.PAGE_ROWS
        )

    def access_ids(
        self, tenant: str = "", user: str = "", *, start_after: str = "", limit: int | None = None
    ) -> list[AccessIdRow]:
        """Return all access ids, those of a tenant or those of a user."""
        asked = {"tenant": tenant, "user": user, "start_after": start_after}
        return self._shard.rows(
            "/access-ids", list[AccessIdRow], lambda row: row.access_id, asked, limit, paging.PAGE_ROWS
        )

    def delegation_tokens(
        self, owner: str = "", *, start_after: str = "", limit: int | None = None
    ) -> list[ListedToken]:
        """Return all delegation tokens, or those of an owner, without their secrets."""
        asked = {"owner": owner, "start_after": start_after}
        return self._shard.rows(
            "/delegation-tokens", list[ListedToken], lambda row: row.token_id, asked, limit, paging.PAGE_ROWS
        )

    def buckets(self, volume: str, *, start_after: str = "", limit: int | None = None) -> list[BucketRow]:
        """Return the buckets of a volume by name."""
        parameters = {"volume": volume, "start_after": start_after}
        return self._shard.rows(
            "/buckets", list[BucketRow], lambda row: row.bucket, parameters, limit, paging.PAGE_ROWS
        )

    def bucket(self, volume: str, bucket: str) -> BucketRow:
        """Return one bucket."""
        return self._shard.get("/bucket", BucketRow, _of(volume, bucket))

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
        parameters = _of(volume, bucket, snapshot_id=snapshot_id, prefix=prefix, start_after=start_after)
        return self._shard.rows(
            "/entries", list[ListedEntry], lambda entry: entry.path, parameters, limit, paging.PAGE_ROWS
        )

    def deleted(
        self, volume: str, bucket: str, *, start_after: str = "", limit: int | None = None
    ) -> list[ListedDeletion]:
        """Return the deletions that are not claimed yet, oldest death first."""
        parameters = _of(volume, bucket, start_after=start_after)
        return self._shard.rows(
            "/deleted", list[ListedDeletion], paging.deleted_position, parameters, limit, paging.PAGE_ROWS
        )

    def stat(
        self, volume: str, bucket: str, path: str, *, snapshot_id: str = "", version: int = 0
    ) -> KeyRow | DirectoryRow:
        """Return one key or directory, or one version of a key by its id."""
        parameters: Parameters = _of(volume, bucket, snapshot_id=snapshot_id, path=path)
        if version:
            parameters = {**parameters, "version": version}
        found = self._shard.get("/stat", StatAnswer, parameters)
        row = found.key or found.directory
        assert row is not None  # noqa: S101  metadata refuses a path without key and directory
        return row

    def versions(self, volume: str, bucket: str, key: str, *, snapshot_id: str = "") -> list[ListedVersion]:
        """Return the versions of a key, oldest first."""
        parameters = _of(volume, bucket, path=key, snapshot_id=snapshot_id, start_after=0)
        return self._shard.rows("/versions", list[ListedVersion], lambda one: one.version, parameters)

    def key_blocks(self, volume: str, bucket: str, path: str, *, snapshot_id: str = "") -> list[BlockRun]:
        """Return all runs of blocks of a key, in the order of its contents."""
        return self._shard.get("/key-blocks", list[BlockRun], _of(volume, bucket, snapshot_id=snapshot_id, path=path))

    def open_keys(
        self, volume: str, bucket: str, *, start_after: str = "", limit: int | None = None
    ) -> list[ListedOpenKey]:
        """Return the keys that clients are writing."""
        parameters = _of(volume, bucket, start_after=start_after)
        return self._shard.rows(
            "/open-keys", list[ListedOpenKey], paging.open_key_position, parameters, limit, paging.PAGE_ROWS
        )

    def uploads(self, volume: str, bucket: str, *, start_after: str = "", limit: int | None = None) -> list[UploadRow]:
        """Return the uploads of a bucket by key."""
        parameters = _of(volume, bucket, start_after=start_after)
        return self._shard.rows(
            "/uploads", list[UploadRow], paging.upload_position, parameters, limit, paging.PAGE_ROWS
        )

    def parts(self, volume: str, bucket: str, key: str, upload_id: str) -> list[PartRow]:
        """Return the parts of an upload by number."""
        parameters = _of(volume, bucket, path=key, upload_id=upload_id, start_after=0)
        return self._shard.rows("/parts", list[PartRow], lambda part: part.part_number, parameters)

    def space(self, volume: str, bucket: str, *, start_after: str = "", limit: int = 1_000) -> BucketSpace:
        """Return the space of a bucket with a page of its cells."""
        return self._shard.get("/space", BucketSpace, _of(volume, bucket, start_after=start_after, limit=limit))

    def collection(self, volume: str = "", bucket: str = "") -> list[CollectionStatus]:
        """Return the collection state of the shard, then that of one bucket or of all suspended buckets."""
        parameters: Parameters = _of(volume, bucket) if bucket else {}
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
        parameters = _of(volume, bucket, from_snapshot_id=from_snapshot_id, to_snapshot_id=to_snapshot_id)
        return self._shard.ask_for("POST", "/diffs", DiffJob, parameters)

    def diff_job(self, job_id: str, *, wait_seconds: int = 0) -> DiffJob:
        """Return the progress of a diff, at once or after a wait."""
        return self._shard.get("/diff", DiffJob, {"job_id": job_id, "wait_seconds": wait_seconds})

    def diff_jobs(self, volume: str, bucket: str) -> list[DiffJob]:
        """Return the stored diffs of a bucket, oldest first."""
        return self._shard.get("/diffs", list[DiffJob], _of(volume, bucket))

    def cancel_diff(self, job_id: str) -> DiffJob:
        """Stop a diff that has not ended."""
        return self._shard.ask_for("DELETE", "/diff", DiffJob, {"job_id": job_id})

    def diff_entries(self, job_id: str, *, start_after: int = 0, limit: int) -> list[DiffEntry]:
        """Return a page of a finished diff."""
        parameters: Parameters = {"job_id": job_id, "start_after": start_after, "limit": limit}
        return self._shard.get("/diff/entries", list[DiffEntry], parameters)


class HttpSnapshotReads:
    """Reads of one shard's snapshots; implements ``services.client.plane.SnapshotReads``."""

    def __init__(self, shard: HttpShard) -> None:
        self._shard = shard

    def snapshots(self, volume: str, bucket: str, *, with_deleted: bool = False) -> list[SnapshotInfo]:
        """Return the snapshots of a bucket in chain order."""
        parameters = _of(volume, bucket, with_deleted=with_deleted, start_after=0)
        return self._shard.rows("/snapshots", list[SnapshotInfo], lambda info: info.create_txn, parameters)

    def snapshot(self, volume: str, bucket: str, name: str) -> SnapshotInfo:
        """Return one snapshot."""
        return self._shard.get("/snapshot", SnapshotInfo, _of(volume, bucket, name=name))

    def retention(self, volume: str, bucket: str) -> RetentionRow:
        """Return the retention policy of a bucket and the state of its runs."""
        return self._shard.get("/retention", RetentionRow, _of(volume, bucket))

    def retention_preview(
        self, volume: str, bucket: str, *, policy: RetentionPolicy | None = None, now_ms: int | None = None
    ) -> RetentionPreview:
        """Return the effect of a retention run by the bucket's policy or another one, now or at another time."""
        by: Parameters = {} if policy is None else {name: getattr(policy, name) for name in _PREVIEWED}
        at: Parameters = {} if now_ms is None else {"now_ms": now_ms}
        return self._shard.get("/retention/preview", RetentionPreview, {**_of(volume, bucket), **by, **at})

    def tags(self, volume: str, bucket: str) -> list[SnapshotTag]:
        """Return the tags of a bucket, by name."""
        return self._shard.rows("/tags", list[SnapshotTag], lambda row: row.tag, _of(volume, bucket, start_after=""))

    def consumers(self, volume: str, bucket: str) -> list[SnapshotConsumer]:
        """Return the consumers of a bucket, by name."""
        parameters = _of(volume, bucket, start_after="")
        return self._shard.rows("/consumers", list[SnapshotConsumer], lambda row: row.consumer, parameters)

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
        after: Parameters = {} if start_after is None else {"start_after": start_after}
        parameters = {**_letters(service, topic, error, since_ms, with_resolved=with_resolved), **after}
        return self._shard.rows("/dead-letters", list[DeadLetterRow], lambda row: row.number, parameters, limit)

    def dead_letter_counts(
        self, *, service: str = "", topic: str = "", error: str = "", since_ms: int = 0, with_resolved: bool = False
    ) -> list[DeadLetterCount]:
        """Return the number of dead letters of each kind."""
        parameters = _letters(service, topic, error, since_ms, with_resolved=with_resolved)
        return self._shard.get("/dead-letters/counts", list[DeadLetterCount], parameters)

    def dead_letter(self, number: int) -> DeadLetterBytes:
        """Return one dead letter with its message."""
        return self._shard.get("/dead-letter", DeadLetterBytes, {"number": number})


class HttpScmReads:
    """Reads of one shard's storage container manager; implements ``services.client.plane.ScmReads``."""

    def __init__(self, shard: HttpShard) -> None:
        self._shard = shard

    def exist(self, runs: Sequence[BlockRun]) -> list[bool]:
        """Return for each run of blocks whether it is in the store."""
        existing: list[bool] = []
        for start in range(0, len(runs), MAX_PAGE_ROWS):
            asked = list(runs[start : start + MAX_PAGE_ROWS])
            existing += self._shard.ask_for("POST", "/exist", list[bool], body=asked)
        return existing

    def totals(self) -> ScmTotals:
        """Return the totals of the inventory."""
        return self._shard.get("/totals", ScmTotals)


def _letters(service: str, topic: str, error: str, since_ms: int, *, with_resolved: bool) -> Parameters:
    return {"service": service, "topic": topic, "error": error, "since_ms": since_ms, "with_resolved": with_resolved}
