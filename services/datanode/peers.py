"""Other processes as a datanode sees them: the blocks of other datanodes, and mock_scm, over HTTP."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

import httpx
from pydantic import TypeAdapter, ValidationError
from pydantic_core import to_json

from schemas.block_store import MAX_CHUNK_BYTES, BlockEntry, Heartbeat, NodeOrders
from schemas.http_token import bearer
from services.datanode.errors import BlockError
from services.domain.errors import DeepcleanError

PAGE_BLOCKS = 1_000
PEER_SECONDS = 30.0
_BLOCKS = TypeAdapter(list[BlockEntry])
_ORDERS = TypeAdapter(NodeOrders)


class UnreachableError(DeepcleanError):
    """Another process does not answer: the same request may succeed later."""


class Peers(Protocol):
    """Reads of the blocks of other datanodes."""

    def blocks(self, url: str, shard: int, container_id: int) -> Iterator[BlockEntry]:
        """Yield the blocks of a copy. Raise UnreachableError, or BlockError when the datanode has none."""
        ...

    def block(self, url: str, shard: int, container_id: int, entry: BlockEntry) -> Iterator[bytes]:
        """Yield the bytes of a block. Raise UnreachableError, or BlockError when it is missing or damaged there."""
        ...


class HttpPeers:
    """The processes of one plane. Safe to use from several threads."""

    def __init__(self, token: str, *, seconds: float = PEER_SECONDS) -> None:
        self._http = httpx.Client(timeout=seconds, trust_env=False, headers=bearer(token))

    def blocks(self, url: str, shard: int, container_id: int) -> Iterator[BlockEntry]:
        """Yield the blocks of a copy, in order."""
        after = -1
        while True:
            path = f"{url}/v1/shards/{shard}/containers/{container_id}/blocks"
            answer = self._answer("GET", path, {"after": after, "limit": PAGE_BLOCKS})
            page = _BLOCKS.validate_json(answer)
            yield from page
            if len(page) < PAGE_BLOCKS:
                return
            after = page[-1].local_id

    def block(self, url: str, shard: int, container_id: int, entry: BlockEntry) -> Iterator[bytes]:
        """Yield the bytes of a block, chunk by chunk."""
        path = f"{url}/v1/shards/{shard}/containers/{container_id}/blocks/{entry.local_id}"
        for offset_bytes in range(0, entry.size_bytes, MAX_CHUNK_BYTES):
            yield self._answer("GET", path, {"offset": offset_bytes, "length": MAX_CHUNK_BYTES})

    def heartbeat(self, scm_url: str, shard: int, heartbeat: Heartbeat) -> NodeOrders:
        """Send a heartbeat to mock_scm and return what it wants done."""
        answer = self._answer("POST", f"{scm_url}/v1/shards/{shard}/heartbeat", {}, to_json(heartbeat))
        try:
            return _ORDERS.validate_json(answer)
        except ValidationError as error:
            raise UnreachableError(f"what answers at {scm_url} is not mock_scm of this version") from error

    def _answer(self, method: str, url: str, parameters: dict[str, int], body: bytes | None = None) -> bytes:
        try:
            response = self._http.request(method, url, params=parameters, content=body)
        except httpx.HTTPError as error:
            raise UnreachableError(f"{url} cannot be reached ({error})") from error
        if response.is_success:
            return response.content
        try:
            code, message = str(response.json()["code"]), str(response.json()["message"])
        except (ValueError, KeyError, TypeError):
            raise UnreachableError(f"{url} answered {response.status_code} without a reason: read its log") from None
        if response.status_code in (401, 500, 503):
            raise UnreachableError(f"{url} cannot answer now: {message}")
        raise BlockError(code, message)

    def close(self) -> None:
        """Close the connections."""
        self._http.close()
