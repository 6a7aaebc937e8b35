"""The OpenAPI document of a process: made from the functions that answer its reads (``GET /openapi.json``)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from importlib.metadata import version
from inspect import getdoc
from typing import Any

from pydantic import TypeAdapter
from starlette.routing import BaseRoute

from services.runtime.http.reads import Operation, ReadRoute

_SCHEMAS = "#/components/schemas/{model}"
_SHARD = {"name": "shard", "in": "path", "required": True, "schema": {"type": "integer", "minimum": 0}}
_AFTER = {
    "name": "after",
    "in": "query",
    "description": "Answer only when this txn of the shard is applied, as <shard>:<txn>.",
    "schema": {"type": "string"},
}
_REFUSAL = {
    "type": "object",
    "required": ["code", "message"],
    "properties": {
        "code": {"type": "string", "description": "Ozone's name of the error."},
        "message": {"type": "string"},
        "next_snapshot": {"type": "string", "description": "Where the reader of a dropped snapshot goes on."},
    },
}


def document(routes: Iterable[BaseRoute]) -> dict[str, Any]:
    """Return the document of the reads among some routes of a process."""
    reads = [route for route in routes if isinstance(route, ReadRoute)]
    made, definitions = TypeAdapter.json_schemas(
        [(route.operation, "serialization", route.operation.result) for route in reads]
        + [(route.operation, "validation", route.operation.body) for route in reads if route.operation.body],
        ref_template=_SCHEMAS,
    )
    paths: dict[str, dict[str, Any]] = {}
    for route in reads:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route, made)
    return {
        "openapi": "3.1.0",
        "info": {"title": "deepclean", "version": version("deepclean")},
        "paths": paths,
        "components": {"schemas": {"Refusal": _REFUSAL, **definitions.get("$defs", {})}},
    }


def _operation(route: ReadRoute, made: Mapping[tuple[Operation[Any], Any], Any]) -> dict[str, Any]:
    operation = route.operation
    described = {
        "operationId": f"{route.method.lower()}{route.path.removeprefix('/v1/shards/{shard}').replace('/', '_')}",
        "summary": (getdoc(operation.answer) or "").partition("\n")[0],
        "parameters": [_SHARD, *_parameters(operation), *([_AFTER] if operation.waits else [])],
        "responses": {
            "200": {"description": "The answer.", "content": _json(made[operation, "serialization"])},
            "default": {"description": "A refusal.", "content": _json({"$ref": _SCHEMAS.format(model="Refusal")})},
        },
    }
    if operation.body is not None:
        described["requestBody"] = {"required": True, "content": _json(made[operation, "validation"])}
    return described


def _parameters(operation: Operation[Any]) -> Iterable[dict[str, Any]]:
    schema = operation.parameters.model_json_schema()
    for name, described in schema.get("properties", {}).items():
        is_required = name in schema.get("required", ())
        yield {"name": name, "in": "query", "required": is_required, "schema": described}


def _json(schema: Any) -> dict[str, Any]:
    return {"application/json": {"schema": schema}}
