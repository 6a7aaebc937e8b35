"""Copies of a running service's databases for backups: requested over HTTP, made by the writer between two batches.

``POST /v1/shards/{shard}/copies/{name}`` returns the path of the copy once it is on disk. The copy is beside the
database and shares its files. The client copies it to another place and removes it with ``DELETE``; else it is removed
when it is too old. No request can name a path.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from concurrent.futures import TimeoutError as FutureTimeoutError

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from services.runtime.http.reads import ReadError, refusal
from services.runtime.process.hosted_shard import HostedShard
from services.storage.store import StoreError

COPY_SECONDS = 60.0
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,99}")


def copy_route(shards: Callable[[], Sequence[HostedShard]]) -> Route:
    """Return the route that makes the writer of a shard copy its database, and removes the copy."""

    def answer(request: Request) -> Response:
        by_number = {shard.shard: shard for shard in shards() if shard.is_running}  # a standby makes no copies
        shard, name = by_number.get(request.path_params["shard"]), request.path_params["name"]
        if shard is None:
            return refusal("WRONG_SHARD", f"the shards {sorted(by_number)} are served here: ask another process")
        if shard.store is None:
            return refusal("UNAVAILABLE", f"shard {shard.shard} has no database yet: see /readyz")
        if not _NAME.fullmatch(name):
            return refusal("INVALID_REQUEST", "a copy's name has letters, digits, - and _: choose another")
        if request.method == "DELETE":
            return JSONResponse(shard.copies.kept.remove(name))
        return _made(shard, name)

    return Route("/v1/shards/{shard:int}/copies/{name}", answer, methods=["POST", "DELETE"])


def _made(shard: HostedShard, name: str) -> Response:
    try:
        directory = shard.copies.ask(name, COPY_SECONDS)
    except FutureTimeoutError:
        return refusal("UNAVAILABLE", f"the writer made no copy within {COPY_SECONDS:g} seconds: see /readyz")
    except ReadError as error:
        return refusal(error.code, str(error))
    except StoreError as error:
        return refusal("UNAVAILABLE", str(error))
    return JSONResponse({"directory": str(directory)})
