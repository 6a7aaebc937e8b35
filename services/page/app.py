"""The application: the files of the page, and an answer for each of its parts.

Every answer is what a command would print, from the same functions; the browser only shows it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, ProcessCollector, generate_latest
from pydantic import TypeAdapter, ValidationError
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.middleware import Middleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from schemas.build_info import report_build
from schemas.credentials import CredentialsError
from schemas.records import CollectionState
from services.client.errors import PlaneTimeoutError, UnreachableError
from services.client.plane import Plane
from services.client.tasks.space_view import BucketView
from services.domain.errors import DeepcleanError
from services.page.acts import delete_snapshots, run_retention, set_collection
from services.page.asked import INVALID_REQUEST, choice_of, number_of, text_of, texts_of
from services.page.assets import MEDIA_TYPES, asset, asset_names, packed
from services.page.bucket_views import bucket_answer, most_planned, snapshot_rows
from services.page.diffing import await_diff, start_diff
from services.page.encoding import encoded
from services.page.explaining import block_answer, path_answer, paths_with
from services.page.guard import Guard, Rights
from services.page.retention_views import retention_answer
from services.page.watcher import Watcher
from services.plane.machine.errors import StackError
from services.runtime.http.metrics import HttpMetrics, Measured
from services.runtime.http.reads import body_of, status_of
from services.wording.amounts import AmountError, parse_size
from services.wording.figures import bytes_text
from services.wording.space import NO_MORE, freed_text

INDEX = "index.html"
SMALLEST_PACKED = 500
"""Answers of fewer bytes are not compressed."""
PACKING_LEVEL = 6
"""The highest level makes the answer about a thousand snapshots 6 % smaller, and takes three times as long."""
logger = logging.getLogger(__name__)
_BODY: TypeAdapter[dict[str, Any]] = TypeAdapter(dict[str, Any])


class Doorway(Protocol):
    """Gives the plane, and views of its buckets."""

    def plane(self) -> Plane:
        """Return the plane."""
        ...

    def view(self, volume: str, bucket: str) -> BucketView:
        """Return the view of a bucket, or of that to which a link of this name leads."""
        ...


def page_app(door: Doorway, watcher: Watcher, rights: Rights) -> Starlette:
    """Return the application of the page of one plane."""
    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    report_build(registry)
    pack = Middleware(GZipMiddleware, minimum_size=SMALLEST_PACKED, compresslevel=PACKING_LEVEL)
    answers = Answers(door, watcher, may_act=bool(rights.acts_token))
    routes = [
        *(Route(f"/api/{name}", _get(answer)) for name, answer in answers.reads().items()),
        *(Route(f"/api/{name}", _post(answer), methods=["POST"]) for name, answer in answers.posts().items()),
    ]
    metrics = HttpMetrics(registry, sorted(route.path for route in routes))
    return Starlette(
        routes=[
            Route("/", _file),
            Route("/static/{name}", _file),
            *(Route(path, _alive) for path in ("/healthz", "/readyz")),
            Route("/metrics", lambda _: Response(generate_latest(registry), media_type=CONTENT_TYPE_LATEST)),
            *routes,
        ],
        middleware=[Middleware(Measured, metrics=metrics), Middleware(Guard, rights=rights), pack],
    )


def _alive(_: Request) -> Response:
    return Response('{"ok":true}', media_type="application/json")


async def _file(request: Request) -> Response:
    # A coroutine, since it waits for nothing: a browser asks for all files at once, before it can ask anything else.
    name = request.path_params.get("name", INDEX)
    if name not in asset_names():
        return _refused("FILE_NOT_FOUND", "the page has no such file", 404)
    media_type = MEDIA_TYPES[name.rpartition(".")[2]]
    if "gzip" not in request.headers.get("accept-encoding", ""):
        return Response(asset(name), media_type=media_type)
    headers = {"Content-Encoding": "gzip", "Vary": "Accept-Encoding"}
    return Response(packed(name), media_type=media_type, headers=headers)


class Answers:
    """The answers to the browser, by their paths below ``/api``."""

    def __init__(self, door: Doorway, watcher: Watcher, *, may_act: bool) -> None:
        self._door = door
        self._watcher = watcher
        self._may_act = may_act

    def reads(self) -> dict[str, Callable[[Mapping[str, str]], Any]]:
        """Return what is asked by parameters."""
        return {
            "plane": self._plane,
            "buckets": lambda _: self._watcher.buckets(),
            "bucket": lambda asked: bucket_answer(self._view(asked)),
            "snapshots": lambda asked: snapshot_rows(self._view(asked)),
            "plan/most": lambda asked: most_planned(self._view(asked)),
            "history": self._history,
            "plan": self._plan,
            "paths": lambda asked: paths_with(self._view(asked), text_of(asked, "beginning", "")),
            "explain": lambda asked: path_answer(self._view(asked), text_of(asked, "path")),
            "explain/block": lambda asked: block_answer(
                self._view(asked), number_of(asked, "local_id"), text_of(asked, "start", "")
            ),
            "retention": lambda asked: retention_answer(self._view(asked), asked),
            "diff/job": lambda asked: await_diff(self._view(asked), text_of(asked, "job_id")),
        }

    def posts(self) -> dict[str, Callable[[dict[str, Any]], Any]]:
        """Return what is asked by a body: questions that name many snapshots or start work, and acts."""
        return {
            "what-if": self._what_if,
            "diff": lambda body: start_diff(self._view(body), text_of(body, "from"), text_of(body, "to")),
            "acts/delete-snapshots": lambda body: delete_snapshots(
                self._view(body), texts_of(body, "names"), number_of(body, "confirmed_bytes")
            ),
            "acts/run-retention": lambda body: run_retention(
                self._view(body), texts_of(body, "names"), number_of(body, "confirmed_bytes")
            ),
            "acts/collection": lambda body: set_collection(
                self._view(body), choice_of(body, "state", CollectionState), text_of(body, "reason", "")
            ),
        }

    def _view(self, asked: Mapping[str, Any]) -> BucketView:
        return self._door.view(text_of(asked, "volume"), text_of(asked, "bucket"))

    def _plane(self, _: Mapping[str, str]) -> dict[str, Any]:
        return {"may_act": self._may_act, **self._watcher.seen()}

    def _history(self, asked: Mapping[str, str]) -> Any:
        if "bucket" not in asked:
            return self._watcher.history()
        view = self._view(asked)
        self._watcher.watch(view.shard, view.volume, view.bucket)
        return self._watcher.history(view.volume, view.bucket)

    def _what_if(self, body: dict[str, Any]) -> dict[str, Any]:
        view = self._view(body)
        freed = view.what_if(view.snapshots(), texts_of(body, "names"))
        sizes = (freed.freed_bytes, freed.freed_replicated_bytes, freed.freed_versions)
        return {"freed_bytes": freed.freed_bytes, "text": freed_text(*sizes, is_exact=freed.is_exact)}

    def _plan(self, asked: Mapping[str, str]) -> dict[str, Any]:
        view, wanted_bytes = self._view(asked), parse_size(text_of(asked, "size"))
        snapshots = view.snapshots()
        found = view.plan(snapshots, wanted_bytes)
        sizes = (found.freed_bytes, found.freed_replicated_bytes, found.freed_versions)
        notes = []
        if not found.is_enough:
            notes.append(f"{bytes_text(wanted_bytes)} cannot be freed: {NO_MORE}.")
        elif not found.is_smallest:
            notes.append("A smaller set may be enough.")
        return {
            "names": snapshots.names_of(found.snapshot_ids),
            "wanted_bytes": wanted_bytes,
            "freed_bytes": found.freed_bytes,
            "text": freed_text(*sizes, is_exact=found.is_exact),
            "notes": notes,
        }


def _get(answer: Callable[[Mapping[str, str]], Any]) -> Callable[[Request], Response]:
    # Not a coroutine, so that it runs in a thread of its own: a read of the plane delays no other one.
    return lambda request: _answered(answer, request.query_params)


def _post(answer: Callable[[dict[str, Any]], Any]) -> Callable[[Request], Any]:
    async def endpoint(request: Request) -> Response:
        try:
            body = _BODY.validate_json(await body_of(request) or b"")
        except ValidationError:
            return _refused(INVALID_REQUEST, "the body is not a JSON object, or is too large", 400)
        return await run_in_threadpool(_answered, answer, body)

    return endpoint


def _answered(answer: Callable[[Any], Any], asked: Any) -> Response:
    try:
        return Response(encoded(answer(asked)), media_type="application/json")
    except AmountError as error:
        return _refused(INVALID_REQUEST, str(error), 400)
    except (UnreachableError, PlaneTimeoutError, StackError, CredentialsError) as error:
        return _refused("UNREACHABLE", str(error), 503)
    except DeepcleanError as error:
        code = str(getattr(error, "code", "INTERNAL_ERROR"))
        return _refused(code, str(error), status_of(code))
    except Exception:
        logger.exception("a question could not be answered")
        return _refused("INTERNAL_ERROR", "the page's server has failed: its log says why", 500)


def _refused(code: str, message: str, status: int) -> Response:
    return Response(encoded({"code": code, "message": message}), status_code=status, media_type="application/json")
