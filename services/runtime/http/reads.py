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
from inspect import signature
from typing import Annotated, Any, Generic, TypeVar

from pydantic import BaseModel, BeforeValidator, Field, TypeAdapter, ValidationError, create_model
from pydantic_core import PydanticCustomError
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
BODY = "body"

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
class Asked:
    """The shard that a request is for, and its database."""

    shard: int
    store: Store

    @contextmanager
    def rows(self) -> Iterator[TablesReader]:
        """Open the committed rows of one moment."""
        with closing_reader(self.store.reading()) as tables:
            yield tables


def _whole_number(text: object) -> int:
    if not (
        isinstance(text, str)
        and text.isascii()
        and text.isdigit()
        and len(text) <= MAX_DIGITS
        and int(text) <= MAX_NUMBER
    ):
        raise PydanticCustomError("number", "a whole number from 0 to 2^63-1 is allowed")
    return int(text)


def _flag(text: object) -> bool:
    if text not in ("true", "false"):
        raise PydanticCustomError("flag", "true and false are allowed")
    return text == "true"


Number = Annotated[int, Field(ge=0, le=MAX_NUMBER), BeforeValidator(_whole_number)]
"""A parameter that is a whole number."""
Limit = Annotated[int, Field(ge=1, le=MAX_LIMIT), BeforeValidator(_whole_number)]
"""The parameter with the most rows of one page."""
Flag = Annotated[bool, BeforeValidator(_flag)]
"""A parameter that is true or false."""


class Operation(Generic[T]):
    """One kind of read: the parameters and the body that a function takes, and the type that it returns.

    The first argument of the function is ``Asked``. ``body`` is the request's body; all others are parameters of the
    request, required unless they have a default.
    """

    def __init__(self, answer: Callable[..., T], *, waits: bool) -> None:
        declared = signature(answer, eval_str=True)
        taken = list(declared.parameters.values())[1:]
        fields: Any = {
            one.name: (one.annotation, ... if one.default is one.empty else one.default)
            for one in taken
            if one.name != BODY
        }
        self.answer = answer
        self.waits = waits
        """Whether ``after`` is a parameter."""
        self.parameters: type[BaseModel] = create_model(f"{answer.__name__}_parameters", **fields)
        self.body: TypeAdapter[Any] | None = next(
            (TypeAdapter(one.annotation) for one in taken if one.name == BODY), None
        )
        self.result: TypeAdapter[T] = TypeAdapter(declared.return_annotation)

    def answered(self, asked: Asked, parameters: Mapping[str, str], body: bytes) -> bytes:
        """Return the answer to a request as JSON.

        Raises:
            ReadError: INVALID_REQUEST, for a parameter or a body; or a refusal of the function.
        """
        try:
            taken = dict(self.parameters.model_validate(dict(parameters)))
            if self.body is not None:
                taken[BODY] = self.body.validate_json(body)
        except ValidationError as error:
            raise ReadError("INVALID_REQUEST", reason_of(error)) from error
        return self.result.dump_json(self.answer(asked, **taken))


def reason_of(error: ValidationError) -> str:
    """Return the first reason why a request is refused."""
    first = error.errors(include_url=False)[0]
    place = ".".join(map(str, first["loc"])) or "the body"
    if first["type"] == "missing":
        return f"{place} is missing"
    return f"{place} is {_beginning(repr(first['input']))}: {first['msg']}"


def _awaited_txn(shard: int, text: str) -> int:
    """Return the txn of this shard that must be applied, from ``after=<shard>:<txn>``; 0 for none."""
    if not text:
        return 0
    named, separator, txn = text.partition(":")
    if not separator:
        raise ReadError("INVALID_REQUEST", f"after is {_beginning(text)!r}; write after=<shard>:<txn>")
    if _number("the shard of after", named) != shard:
        raise ReadError("WRONG_SHARD", f"after names shard {named}, but the path names shard {shard}")
    return _number("the txn of after", txn)


def _number(name: str, text: str) -> int:
    try:
        return _whole_number(text)
    except PydanticCustomError as error:
        raise ReadError("INVALID_REQUEST", f"{name} is {_beginning(text)!r}: {error.message()}") from None


def _beginning(text: str) -> str:
    return text if len(text) <= QUOTED_CHARACTERS else f"{text[:QUOTED_CHARACTERS]}…"


class ServedStores(dict[int, Store]):
    """Databases of the shards that a process serves; each is added when its shard is ready."""

    def __init__(self, shards: Iterable[int]) -> None:
        super().__init__()
        self.shards = set(shards)
        """Those that this process runs, ready or not."""


@contextmanager
def closing_reader(reader: Reader) -> Iterator[TablesReader]:
    """Yield the committed rows of a view, and close the view afterwards."""
    try:
        yield TablesReader(reader)
    finally:
        reader.close()


class ReadRoute(Route):
    """A route below ``/v1/shards/{shard}`` that answers with JSON."""

    def __init__(
        self,
        path: str,
        stores: Stores,
        answer: Callable[..., Any],
        *,
        applied_txn: AppliedTxn | None = None,
        method: str = "GET",
    ) -> None:
        """``answer`` is described at ``Operation``. With ``applied_txn`` a request can wait for a txn (``after``)."""
        operation = Operation(answer, waits=applied_txn is not None)

        def ask(request: Request, body: bytes) -> Response:
            try:
                shard = _number("the shard", request.path_params["shard"])
                asked = Asked(shard, _store_of(shard, stores))
                if applied_txn is not None:
                    _await_txn(asked, _awaited_txn(shard, request.query_params.get("after", "")), applied_txn)
                return Response(operation.answered(asked, request.query_params, body), media_type="application/json")
            except StoreError as error:
                return refusal("UNAVAILABLE", str(error))
            except DeepcleanError as error:
                code, following = getattr(error, "code", "INTERNAL_ERROR"), getattr(error, "next_snapshot", None)
                return refusal(str(code), str(error), following)

        # Not a coroutine: so a read of the disk runs in a thread of its own, and delays no other request.
        def endpoint(request: Request) -> Response:
            return ask(request, b"")

        async def endpoint_with_body(request: Request) -> Response:
            body = await body_of(request)
            if body is None:
                return refusal(
                    "INVALID_REQUEST", f"the body has more than {MAX_BODY_BYTES} bytes: ask in several pages"
                )
            return await run_in_threadpool(ask, request, body)

        super().__init__(
            f"/v1/shards/{{shard}}{path}", endpoint if method == "GET" else endpoint_with_body, methods=[method]
        )
        self.operation = operation
        self.method = method


async def body_of(request: Request) -> bytes | None:
    """Return the body of a request; None when it is too large, without reading the rest."""
    body = bytearray()
    async for part in request.stream():
        body += part
        if len(body) > MAX_BODY_BYTES:
            return None
    return bytes(body)


_STATUSES = {
    "NO_SUCH_MULTIPART_UPLOAD_ERROR": 404,
    "SNAPSHOT_EXPIRED": 410,
    "INTERNAL_ERROR": 500,
    "UNAVAILABLE": 503,
}


def status_of(code: str) -> int:
    """Return the HTTP status for a code."""
    if code.endswith("_NOT_FOUND") or code == "WRONG_SHARD":
        return 404
    if code.startswith("INVALID_"):
        return 400
    return _STATUSES.get(code, 409)


def _store_of(shard: int, stores: Stores) -> Store:
    store = stores.get(shard)
    if store is None:
        if isinstance(stores, ServedStores) and shard in stores.shards:
            raise ReadError("UNAVAILABLE", f"shard {shard} is not ready: see /readyz, and ask again")
        served = ", ".join(map(str, sorted(stores))) or "none"
        raise ReadError("WRONG_SHARD", f"shard {shard} is not served here (served: {served})")
    return store


def _await_txn(asked: Asked, wanted: int, applied_txn: AppliedTxn) -> None:
    """Wait until a txn is applied. Commands are answered after the write, so this hardly ever waits."""
    if not wanted:
        return
    tables = TablesReader(asked.store)
    deadline = time.monotonic() + AFTER_SECONDS
    pause = threading.Event()
    while (applied := applied_txn(tables)) < wanted:
        if time.monotonic() > deadline:
            raise ReadError(
                "NOT_YET_APPLIED", f"shard {asked.shard} has applied txn {applied}, not yet {wanted}: ask again later"
            )
        pause.wait(AFTER_POLL_SECONDS)


def refusal(code: str, message: str, next_snapshot: str | None = None) -> Response:
    """Return the answer to a refused request. The reader of a dropped snapshot continues at ``next_snapshot``."""
    facts = {"code": code, "message": message}
    if next_snapshot is not None:
        facts["next_snapshot"] = next_snapshot
    return Response(json.dumps(facts), status_code=status_of(code), media_type="application/json")
