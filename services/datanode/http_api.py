"""A datanode over HTTP: clients and other datanodes write and read blocks, chunk by chunk.

    PUT  …/blocks/{localID}/chunks?writer=W&offset=N   a chunk of a block that a client is writing
    PUT  …/blocks/{localID}?writer=W                   all chunks are written; the body has size and checksums
    GET  …/blocks/{localID}?offset=N&length=N          bytes, compared with their checksums
    GET  …/blocks?after=N&limit=N                      the blocks of a container
    POST …/blocks/are-whole                            for each of some blocks, whether it is here and not damaged

The paths begin with ``/v1/shards/{shard}/containers/{container}``. A refusal has ``code`` and ``message``.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from pydantic import TypeAdapter, ValidationError
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from schemas.block_store import MAX_CHUNK_BYTES, BlockContents, BlockEntry
from services.datanode.errors import BlockError, DiskError
from services.datanode.metrics import DatanodeMetrics
from services.datanode.node import DataNode
from services.runtime.http.reads import MAX_LIMIT, body_of, refusal

_CONTAINER = "/v1/shards/{shard:int}/containers/{container:int}"
_BLOCK = _CONTAINER + "/blocks/{block:int}"
MAX_ID = (1 << 63) - 1
MAX_BLOCK_BYTES = 1 << 40
"""Offsets in a block end here, so that no file system refuses one: that would count as a failure of the disk."""
_WRITER = re.compile(r"[0-9a-f]{1,32}")
_CONTENTS = TypeAdapter(BlockContents)
_IDS = TypeAdapter(list[int])
_BLOCKS = TypeAdapter(list[BlockEntry])
_FLAGS = TypeAdapter(list[bool])
JSON = "application/json"

Answer = Callable[[Request, tuple[int, int], bytes], Response]


def routes(node: DataNode, metrics: DatanodeMetrics) -> list[Route]:
    """Return the routes of one datanode."""

    def write_chunk(request: Request, place: tuple[int, int], body: bytes) -> Response:
        if len(body) > MAX_CHUNK_BYTES:
            raise BlockError("INVALID_REQUEST", f"a chunk has at most {MAX_CHUNK_BYTES} bytes")
        writer, offset = _writer(request), _number(request, "offset", most=MAX_BLOCK_BYTES)
        node.write_chunk(*place, request.path_params["block"], writer, offset, body)
        metrics.written_bytes.inc(len(body))
        return Response(status_code=204)

    def put_block(request: Request, place: tuple[int, int], body: bytes) -> Response:
        node.put_block(*place, request.path_params["block"], _writer(request), _CONTENTS.validate_json(body))
        return Response(status_code=204)

    def read(request: Request, place: tuple[int, int], _: bytes) -> Response:
        length = min(_number(request, "length"), MAX_CHUNK_BYTES)
        data = node.read(*place, request.path_params["block"], _number(request, "offset", most=MAX_BLOCK_BYTES), length)
        metrics.read_bytes.inc(len(data))
        return Response(data, media_type="application/octet-stream")

    def blocks(request: Request, place: tuple[int, int], _: bytes) -> Response:
        limit = min(_number(request, "limit"), MAX_LIMIT)
        return Response(_BLOCKS.dump_json(node.blocks(*place, _number(request, "after", -1), limit)), media_type=JSON)

    def are_whole(_: Request, place: tuple[int, int], body: bytes) -> Response:
        return Response(_FLAGS.dump_json(node.are_whole(*place, _IDS.validate_json(body))), media_type=JSON)

    return [
        _route(f"{_BLOCK}/chunks", "PUT", write_chunk),
        _route(f"{_CONTAINER}/blocks/are-whole", "POST", are_whole),
        _route(_BLOCK, "PUT", put_block),
        _route(_BLOCK, "GET", read),
        _route(f"{_CONTAINER}/blocks", "GET", blocks),
    ]


def _route(path: str, method: str, answer: Answer) -> Route:
    """Return a route whose answer is made in a thread of its own: it reads or writes the disk."""

    def ask(request: Request, body: bytes) -> Response:
        try:
            if request.path_params.get("block", 0) > MAX_ID:
                raise BlockError("INVALID_REQUEST", f"a local id is at most {MAX_ID}")
            return answer(request, (request.path_params["shard"], request.path_params["container"]), body)
        except BlockError as error:
            return refusal(error.code, str(error))
        except (ValidationError, ValueError) as error:
            return refusal("INVALID_REQUEST", f"the request cannot be read: {error}")
        except DiskError as error:
            return refusal("UNAVAILABLE", str(error))

    async def endpoint(request: Request) -> Response:
        body = await body_of(request)
        if body is None:
            return refusal("INVALID_REQUEST", f"the body is too large: a chunk has at most {MAX_CHUNK_BYTES} bytes")
        return await run_in_threadpool(ask, request, body)

    return Route(path, endpoint, methods=[method])


def _writer(request: Request) -> str:
    writer: Any = request.query_params.get("writer", "")
    if not _WRITER.fullmatch(writer):
        raise BlockError("INVALID_REQUEST", "writer is up to 32 hex digits, the same for all chunks of a block")
    return str(writer)


def _number(request: Request, name: str, least: int = 0, most: int = MAX_ID) -> int:
    number = int(request.query_params.get(name, ""))
    if not least <= number <= most:
        raise BlockError("INVALID_REQUEST", f"{name} is {number}: it is from {least} to {most}")
    return number
