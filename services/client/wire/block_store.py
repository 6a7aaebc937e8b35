"""The block store of one shard over HTTP: what mock_scm knows of containers, and the datanodes themselves."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import httpx
from pydantic import TypeAdapter
from pydantic_core import to_json

from schemas.block_store import (
    MAX_CHUNK_BYTES,
    BlockContents,
    BlockStoreStatus,
    ContainerPlace,
    ListedTransaction,
)
from schemas.records import BlockRun
from services.client.errors import UnreachableError
from services.client.wire.http_reads import MAX_PAGE_ROWS, HttpShard, reason_of

_FLAGS = TypeAdapter(list[bool])


class HttpBlockStore:
    """The block store of one shard; implements ``services.client.plane.BlockStore``."""

    def __init__(self, shard: HttpShard) -> None:
        self._shard = shard

    def status(self) -> BlockStoreStatus:
        """Return the datanodes, the containers and the log of deleted blocks in figures."""
        return self._shard.get("/block-store", BlockStoreStatus)

    def place(self, container_id: int) -> ContainerPlace:
        """Return where the blocks of a container are."""
        return self._shard.get("/container", ContainerPlace, {"container_id": container_id})

    def transactions(self, *, is_parked: bool, start: int = 0, limit: int = 1_000) -> list[ListedTransaction]:
        """Return transactions of the deletedBlocks log that have not ended, from a delTxnId on."""
        parameters = {"start": start, "limit": limit, "is_parked": "true" if is_parked else "false"}
        return self._shard.get("/deleted-blocks", list[ListedTransaction], parameters)

    def retry(self, deletion_txns: Sequence[int] | None) -> int:
        """Send parked transactions to the datanodes again, some or all (None). Return their number."""
        path = "/deleted-blocks/retry"
        return self._shard.ask_for("POST", path, int, body=[] if deletion_txns is None else list(deletion_txns))

    def stored_runs(self) -> Iterator[BlockRun]:
        """Yield all runs of blocks whose bytes are on datanodes."""
        at = (0, 0)
        while True:
            parameters = {"container_id": at[0], "first_local_id": at[1], "limit": MAX_PAGE_ROWS}
            page = self._shard.get("/stored-runs", list[BlockRun], parameters)
            yield from page
            if len(page) < MAX_PAGE_ROWS:
                return
            at = (page[-1].container_id, page[-1].first_local_id + 1)

    def write_chunk(self, url: str, container_id: int, local_id: int, writer: str, offset: int, data: bytes) -> None:
        """Write a chunk of a block to one datanode."""
        assert len(data) <= MAX_CHUNK_BYTES  # noqa: S101  the caller cuts chunks
        path = f"{self._block(url, container_id, local_id)}/chunks"
        self._ask(url, "PUT", path, {"writer": writer, "offset": offset}, data)

    def put_block(self, url: str, container_id: int, local_id: int, writer: str, contents: BlockContents) -> None:
        """Make what was written the block, on one datanode, which compares it with the checksums."""
        self._ask(url, "PUT", self._block(url, container_id, local_id), {"writer": writer}, to_json(contents))

    def read(self, url: str, container_id: int, local_id: int, offset: int, length: int) -> bytes:
        """Return bytes of a block from one datanode, which has compared them with the checksums."""
        return self._ask(url, "GET", self._block(url, container_id, local_id), {"offset": offset, "length": length})

    def are_whole(self, url: str, container_id: int, local_ids: Sequence[int]) -> list[bool]:
        """Return for each block whether a datanode has it, and has not found it damaged."""
        path = f"{self._container(url, container_id)}/blocks/are-whole"
        return _FLAGS.validate_json(self._ask(url, "POST", path, {}, to_json(list(local_ids))))

    def _container(self, url: str, container_id: int) -> str:
        return f"{url}/v1/shards/{self._shard.shard}/containers/{container_id}"

    def _block(self, url: str, container_id: int, local_id: int) -> str:
        return f"{self._container(url, container_id)}/blocks/{local_id}"

    def _ask(self, url: str, method: str, path: str, parameters: dict[str, str | int], body: bytes = b"") -> bytes:
        try:
            response = self._shard.http.request(method, path, params=parameters, content=body)
        except httpx.HTTPError as error:
            raise UnreachableError(f"the datanode at {url} cannot be reached ({error})") from error
        if response.is_success:
            return response.content
        if reason := reason_of(response):
            raise reason
        raise UnreachableError(f"the datanode at {url} answered {response.status_code} without a reason: read its log")
