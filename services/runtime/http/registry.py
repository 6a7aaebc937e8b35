"""Released schemas over HTTP, in the form in which clients of Confluent's schema registry ask for them.

So kcat, Kafka Connect and other stock consumers and producers use a plane's topics with the plane as their registry.
Schemas come with releases of deepclean: a schema that is not released cannot be registered.
"""

from __future__ import annotations

import json
import threading
import time
from functools import cache, partial
from typing import Any

from fastavro.schema import to_parsing_canonical_form
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from schemas import published
from schemas.schema_files import JsonSchema
from schemas.topics import TOPICS
from services.domain.errors import RetryableError
from services.log.schema_topic import SubjectVersion, subject_of, versions_of
from services.runtime.http.reads import body_of

MEDIA_TYPE = "application/vnd.schemaregistry.v1+json"
READ_SECONDS = 1.0
"""The topic of schemas is read for an unknown id at most once in this time, since anybody may ask for any id."""
_NO_SUBJECT = (40401, "there is no such subject: a topic's schemas have <topic>-value")
_NO_VERSION = (40402, "the subject has no such version")
_NO_SCHEMA = (40403, "there is no such schema")
_UNAVAILABLE = (50301, "the topic of schemas cannot be read now: ask again")
_NOT_RELEASED = (42205, "schemas come with releases of deepclean: none can be registered")
"""The registry's own codes, whose first three digits are the status."""


@cache
def subjects() -> dict[str, list[SubjectVersion]]:
    """Return the versions of each topic's schema, by subject."""
    return {subject_of(topic): versions_of(topic) for topic in TOPICS}


def routes() -> list[Route]:
    """Return the routes of the registry."""
    return [
        Route("/subjects", lambda _: _answer(sorted(subjects()))),
        Route("/subjects/{subject}", partial(_find, otherwise=_NO_SCHEMA), methods=["POST"]),
        Route("/subjects/{subject}/versions", _versions),
        Route("/subjects/{subject}/versions", partial(_find, otherwise=_NOT_RELEASED), methods=["POST"]),
        Route("/subjects/{subject}/versions/{version}", _version),
        Route("/schemas/ids/{schema_id:int}", _schema),
    ]


def _answer(content: Any) -> JSONResponse:
    return JSONResponse(content, media_type=MEDIA_TYPE)


def _refusal(reason: tuple[int, str]) -> JSONResponse:
    code, message = reason
    return JSONResponse({"error_code": code, "message": message}, code // 100, media_type=MEDIA_TYPE)


def _versions(request: Request) -> JSONResponse:
    found = subjects().get(request.path_params["subject"])
    return _refusal(_NO_SUBJECT) if found is None else _answer([one.version for one in found])


def _version(request: Request) -> JSONResponse:
    found, version = subjects().get(request.path_params["subject"]), request.path_params["version"]
    if found is None:
        return _refusal(_NO_SUBJECT)
    named = [one for one in found if version in (str(one.version), "latest")]
    return _answer(named[-1].described()) if named else _refusal(_NO_VERSION)


async def _find(request: Request, otherwise: tuple[int, str]) -> JSONResponse:
    """Look a schema up, which a producer asks for before its first message."""
    found = subjects().get(request.path_params["subject"])
    if found is None:
        return _refusal(_NO_SUBJECT)
    try:
        wanted = _canonical(json.loads(json.loads(await body_of(request) or b"")["schema"]))
    except Exception:  # fastavro raises many kinds for what is no schema
        return _refusal(otherwise)
    named = [one for one in found if _canonical(one.schema) == wanted]
    return _answer(named[-1].described()) if named else _refusal(otherwise)


def _canonical(schema: JsonSchema) -> str:
    """Return what of a schema decides how bytes are read: clients leave out the rest, or write it in another way."""
    return to_parsing_canonical_form(schema)


async def _schema(request: Request) -> JSONResponse:
    schema_id = request.path_params["schema_id"]
    try:
        schema = await run_in_threadpool(_by_id, schema_id)
    except RetryableError:
        return _refusal(_UNAVAILABLE)
    return _refusal(_NO_SCHEMA) if schema is None else _answer({"schema": json.dumps(schema)})


def _by_id(schema_id: int) -> JsonSchema | None:
    """Return a released schema of a topic, or one that a newer program has published."""
    known = (one.schema for versions in subjects().values() for one in versions if one.schema_id == schema_id)
    found = next(known, None) or published.known().get(schema_id)
    return found or (published.schema_of(schema_id) if _reads.is_due() else None)


class _Reads:
    """Limits how often the topic of schemas is read."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._next_time = 0.0

    def is_due(self) -> bool:
        """Return whether the topic may be read now, and count that as a read."""
        with self._lock:
            now = time.monotonic()
            if now < self._next_time:
                return False
            self._next_time = now + READ_SECONDS
            return True


_reads = _Reads()
