"""Reads of a service over HTTP: one route per kind of request, answered from committed rows in threads of their own.

A process serves several shards, so every path names one: ``/v1/shards/{shard}/…``. A refusal is a JSON object with
``code`` (Ozone's) and ``message``; that for a dropped snapshot has ``next_snapshot``, too.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

from pydantic import TypeAdapter
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from services.domain.errors import DeepcleanError
from services.storage.store import Reader, Store, StoreError
from services.storage.tables import TablesReader

DEFAULT_LIMIT = 1_000
MAX_LIMIT = 10_000
"""Rows of one page of an HTTP read."""
AFTER_SECONDS = 10.0
AFTER_POLL_SECONDS = 0.005
MAX_BODY_BYTES = 16 * 1024 * 1024
"""Largest body of an HTTP request. Ten thousand block runs or snapshot names are some megabytes."""
MAX_NUMBER = 2**63 - 1
MAX_DIGITS = 19
QUOTED_CHARACTERS = 100

T = TypeVar("T")
Stores = Mapping[int, Store]
"""The databases of the shards that this process serves, by shard."""
AppliedTxn = Callable[[TablesReader], int]
"""Returns the txn of its shard up to which a service's tables are complete."""


class ReadError(DeepcleanError):
    """A read that is refused."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


@dataclass(frozen=True, slots=True)
class Question:
    """One request to one shard."""

    shard: int
    store: Store
    parameters: Mapping[str, str]
    body: bytes = b""

    def text(self, name: str, default: str | None = None) -> str:
        """Return a parameter; it is required when there is no default."""
        value = self.parameters.get(name, default)
        if value is None:
            raise ReadError("INVALID_REQUEST", f"parameter {name} is missing")
        return value

    def whole_number(self, name: str, default: int) -> int:
        """Return a parameter that is a whole number."""
        value = self.parameters.get(name)
        return default if value is None else _number(name, value)

    def limit(self) -> int:
        """Return the most rows of one page."""
        limit = self.whole_number("limit", DEFAULT_LIMIT)
        if not 1 <= limit <= MAX_LIMIT:
            raise ReadError("INVALID_REQUEST", f"limit is {limit}; 1 to {MAX_LIMIT} are allowed")
        return limit

    def flag(self, name: str) -> bool:
        """Return a parameter that is true or false; False when it is missing."""
        value = self.parameters.get(name, "false")
        if value not in ("true", "false"):
            raise ReadError("INVALID_REQUEST", f"{name} is {value!r}; true and false are allowed")
        return value == "true"

    def after_txn(self) -> int:
        """Return the txn of this shard that must be applied, from ``after=<shard>:<txn>``; 0 for none."""
        text = self.parameters.get("after", "")
        if not text:
            return 0
        shard, separator, txn = text.partition(":")
        if not separator:
            raise ReadError("INVALID_REQUEST", f"after is {_beginning(text)!r}; write after=<shard>:<txn>")
        if _number("the shard of after", shard) != self.shard:
            raise ReadError("WRONG_SHARD", f"after names shard {shard}, but the path names shard {self.shard}")
        return _number("the txn of after", txn)


def _number(name: str, text: str) -> int:
    """Return the whole number in a parameter: ASCII digits, at most 2^63-1."""
    if not (text.isascii() and text.isdigit() and len(text) <= MAX_DIGITS and int(text) <= MAX_NUMBER):
        raise ReadError(
            "INVALID_REQUEST", f"{name} is {_beginning(text)!r}, which is not a whole number from 0 to 2^63-1"
        )
    return int(text)


def _beginning(text: str) -> str:
    return text if len(text) <= QUOTED_CHARACTERS else f"{text[:QUOTED_CHARACTERS]}…"


class ServedStores(dict[int, Store]):
    """Databases of the shards that a process serves; each is added when its shard is ready."""

    def __init__(self, shards: Iterable[int]) -> None:
        super().__init__()
        self.shards = frozenset(shards)


@contextmanager
def closing_reader(reader: Reader) -> Iterator[TablesReader]:
    """Yield the committed rows of a view, and close the view afterwards."""
    try:
        yield TablesReader(reader)
    finally:
        reader.close()


def read_route(
    path: str,
    stores: Stores,
    answer: Callable[[Question], T],
    answer_type: Any,
    *,
    applied_txn: AppliedTxn | None = None,
    method: str = "GET",
) -> Route:
    """Return a route below ``/v1/shards/{shard}`` that answers with the JSON of ``answer_type``."""
    adapter: TypeAdapter[T] = TypeAdapter(answer_type)

    def ask(shard_name: str, parameters: Mapping[str, str], body: bytes) -> Response:
        try:
            shard = _number("the shard", shard_name)
            question = Question(shard, _store_of(shard, stores), parameters, body)
            if applied_txn is not None:
                _await_txn(question, applied_txn)
            return Response(adapter.dump_json(answer(question)), media_type="application/json")
        except StoreError as error:
            return refusal("UNAVAILABLE", str(error))
        except DeepcleanError as error:
            return refusal(
                str(getattr(error, "code", "INTERNAL_ERROR")), str(error), getattr(error, "next_snapshot", None)
            )

    if method == "GET":
        # Not a coroutine: so a read of the disk runs in a thread of its own, and delays no other request.
        def endpoint(request: Request) -> Response:
            return ask(request.path_params["shard"], request.query_params, b"")

        return Route(f"/v1/shards/{{shard}}{path}", endpoint, methods=["GET"])

    async def endpoint_with_body(request: Request) -> Response:
        body = await body_of(request)
        if body is None:
            return refusal("INVALID_REQUEST", f"the body has more than {MAX_BODY_BYTES} bytes: ask in several pages")
        return await run_in_threadpool(ask, request.path_params["shard"], request.query_params, body)

    return Route(f"/v1/shards/{{shard}}{path}", endpoint_with_body, methods=[method])


async def body_of(request: Request) -> bytes | None:
    """Return the body of a request; None when it is too large, without reading the rest."""
    body = bytearray()
    async for part in request.stream():
        body += part
        if len(body) > MAX_BODY_BYTES:
            return None
    return bytes(body)


def status_of(code: str) -> int:
    """Return the HTTP status for a code."""
    if code.endswith("_NOT_FOUND") or code == "WRONG_SHARD":
        return 404
    if code.startswith("INVALID_"):
        return 400
    return {"SNAPSHOT_EXPIRED": 410, "INTERNAL_ERROR": 500, "UNAVAILABLE": 503}.get(code, 409)


def _store_of(shard: int, stores: Stores) -> Store:
    store = stores.get(shard)
    if store is None:
        if isinstance(stores, ServedStores) and shard in stores.shards:
            raise ReadError("UNAVAILABLE", f"shard {shard} is not ready: see /readyz, and ask again")
        served = ", ".join(map(str, sorted(stores))) or "none"
        raise ReadError("WRONG_SHARD", f"shard {shard} is not served here (served: {served})")
    return store


def _await_txn(question: Question, applied_txn: AppliedTxn) -> None:
    """Wait until a txn is applied. Commands are answered after the write, so this hardly ever waits."""
    wanted = question.after_txn()
    if not wanted:
        return
    tables = TablesReader(question.store)
    deadline = time.monotonic() + AFTER_SECONDS
    pause = threading.Event()
    while (applied := applied_txn(tables)) < wanted:
        if time.monotonic() > deadline:
            raise ReadError(
                "NOT_YET_APPLIED",
                f"shard {question.shard} has applied txn {applied}, not yet {wanted}: ask again later",
            )
        pause.wait(AFTER_POLL_SECONDS)


def refusal(code: str, message: str, next_snapshot: str | None = None) -> Response:
    """Return the answer to a refused request. The reader of a dropped snapshot continues at ``next_snapshot``."""
    facts = {"code": code, "message": message}
    if next_snapshot is not None:
        facts["next_snapshot"] = next_snapshot
    return Response(json.dumps(facts), status_code=status_of(code), media_type="application/json")
