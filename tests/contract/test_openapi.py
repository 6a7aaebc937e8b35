"""The OpenAPI document describes each read as it is: its parameters, its body, its answer."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry
from starlette.routing import Route
from starlette.testclient import TestClient

from schemas.answers import AuditCopy
from services.metadata.diffs.api import DiffJobsOfShards, diff_routes
from services.metadata.reads import http_api as metadata
from services.mock_scm import http_api as mock_scm
from services.mock_scm.settings import MockScmSwitches
from services.runtime.copies.audit_copies import audit_routes
from services.runtime.http.reads import MAX_LIMIT, ReadRoute
from services.runtime.http.server import http_app
from services.snapshots.reads import http_api as snapshots

DOCUMENTED = Path(__file__).parents[2] / "docs" / "http-api.md"


def routes() -> list[Route]:
    audits = audit_routes({}, lambda store, directory: AuditCopy(str(directory), 0))
    scm = mock_scm.routes({}, MockScmSwitches())
    return [*metadata.routes({}), *diff_routes({}, DiffJobsOfShards()), *audits, *snapshots.routes({}), *scm[:2]]


@pytest.fixture(scope="module")
def document() -> Any:
    app = http_app(CollectorRegistry(), list, list, routes(), token="")
    return TestClient(app).get("/openapi.json").json()


def referred(node: Any) -> Iterator[str]:
    if isinstance(node, dict):
        if "$ref" in node:
            yield node["$ref"]
        for below in node.values():
            yield from referred(below)
    elif isinstance(node, list):
        for below in node:
            yield from referred(below)


def test_each_read_is_described(document: Any) -> None:
    described = {(path, method) for path, methods in document["paths"].items() for method in methods}
    assert described == {(one.path, one.method.lower()) for one in routes() if isinstance(one, ReadRoute)}
    assert len(described) == 43
    operations = [one for methods in document["paths"].values() for one in methods.values()]
    assert len({one["operationId"] for one in operations}) == len(operations)
    assert all(one["summary"].endswith(".") for one in operations)


def test_what_a_description_refers_to_is_there(document: Any) -> None:
    found = set(referred(document))
    assert "#/components/schemas/SnapshotInfo" in found
    assert found <= {f"#/components/schemas/{name}" for name in document["components"]["schemas"]}


def test_parameters_say_their_type_their_bounds_and_whether_they_are_required(document: Any) -> None:
    parameters = {one["name"]: one for one in document["paths"]["/v1/shards/{shard}/snapshots"]["get"]["parameters"]}
    assert list(parameters) == ["shard", "volume", "bucket", "start_after", "with_deleted", "limit", "after"]
    assert [name for name, one in parameters.items() if one.get("required")] == ["shard", "volume", "bucket"]
    limit = parameters["limit"]["schema"]
    assert (limit["type"], limit["minimum"], limit["maximum"], limit["default"]) == ("integer", 1, MAX_LIMIT, 1_000)
    assert parameters["with_deleted"]["schema"]["type"] == "boolean"
    body = document["paths"]["/v1/shards/{shard}/space/plan"]["post"]["requestBody"]["content"]["application/json"]
    assert body["schema"] == {"$ref": "#/components/schemas/PlanSpaceBody"}


def test_the_documentation_names_each_path_and_parameter(document: Any) -> None:
    text = DOCUMENTED.read_text("utf-8")
    for path, methods in document["paths"].items():
        assert f"`{path.removeprefix('/v1/shards/{shard}')}`" in text or f"{path}`" in text, path
        for operation in methods.values():
            missing = {one["name"] for one in operation["parameters"] if f"`{one['name']}`" not in text}
            assert missing <= {"shard"}, json.dumps(sorted(missing))
