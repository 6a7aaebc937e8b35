"""Whatever is asked over HTTP is answered or refused, never a failure; and a place on the disk cannot be asked for."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from starlette.routing import Route

from schemas.codec import codec
from schemas.records import (
    BucketLayout,
    CaptureSnapshot,
    CreateBucket,
    CreateSnapshot,
    CreateVolume,
    MetadataCommand,
    PutKey,
)
from schemas.topics import METADATA_COMMANDS
from services.client.plane import NamespaceCommand
from services.domain.names import is_snapshot_id
from services.log.clock import VirtualClock
from services.log.memory import MemoryLog
from services.metadata.diffs import api as diff_api
from services.metadata.reads import http_api as metadata_api
from services.metadata.service import MetadataService
from services.metadata.state.tables import CHECKPOINTED, TABLES
from services.mock_scm import http_api as scm_api
from services.mock_scm.service import MockScmService
from services.mock_scm.settings import MockScmSwitches
from services.plane.in_memory.client import InMemoryClient
from services.plane.in_memory.plane import InMemoryPlane
from services.runtime.http import reads
from services.runtime.loop.runner import RUNTIME_TABLES, Runner
from services.snapshots.reads import http_api as snapshots_api
from services.storage.rocks import RocksStore
from tests.contract.test_http_reads import serving
from tests.hostile_values import HOSTILE_NAMES, KNOWN_NAMES

pytestmark = pytest.mark.long

ANSWERED = frozenset({200, 400, 404, 405, 409, 410})
PARAMETERS = (
    *("volume", "bucket", "path", "snapshot_id", "prefix", "start_after", "limit", "after", "name", "with_deleted"),
    *("now_ms", "local_id", "start", "job_id", "number", "since_ms", "service", "from_snapshot_id", "error", "topic"),
    *("to_snapshot_id", "with_resolved"),
    *("num_retained_min", "num_retained_max", "time_retained_ms", "expire_limit", "consumer_expiration_ms"),
)
FIGURES = ("0", "1", "-1", "1e9", "nan", "²", "٣", "9" * 19, "9" * 30, "9" * 5_000, str(2**63 - 1), str(2**63))
TEXTS = (
    *KNOWN_NAMES,
    *(name for name in HOSTILE_NAMES if len(name) < 6_000),
    *FIGURES,
    "0:1",
    "0:" + "9" * 5_000,
    "x:y",
)
BODIES = (
    b"",
    b"[]",
    b"{}",
    b"null",
    b"\xff",
    b"[" * 100_000,
    b'{"snapshot_ids":["\\ud800"]}',
    b'{"snapshot_ids":["x"],"free_bytes":1e400}',
    b'{"free_bytes":99999999999999999999999}',
    b'[{"container_id":-1,"first_local_id":-9,"block_count":1,"block_size_bytes":1,"size_bytes":1}]',
    b'[{"container_id":0,"first_local_id":99999999999999999999,"block_count":1,"block_size_bytes":1,"size_bytes":1}]',
    b'{"delay_ms":"x"}',
)
SHARDS = st.sampled_from(["0", "0", "0", "0", "1", "-1", "x", "9" * 5_000, "%2e%2e", "²"])


class Asked:
    """All reads of a plane in memory."""

    http: httpx.Client

    def __init__(self) -> None:
        plane = InMemoryPlane()
        client = InMemoryClient(plane)
        commands: list[NamespaceCommand] = [
            CreateVolume("vol1", "owner"),
            CreateBucket("vol1", "tree", BucketLayout.FILE_SYSTEM_OPTIMIZED),
            PutKey("vol1", "tree", "dir/k", 10),
        ]
        for command in commands:
            assert not client.answer(0, client.submit(0, command)).error
        assert not client.request(0, CreateSnapshot("vol1", "tree", "snap1")).error
        block_store = plane.processes["mock_scm", 0].runner.service
        assert isinstance(block_store, MockScmService)
        stores = {name: {0: plane.processes[name, 0].store} for name in ("metadata", "snapshots", "mock_scm")}
        self.routes: list[Route] = [
            *metadata_api.routes(stores["metadata"]),
            *diff_api.diff_routes(stores["metadata"], diff_api.DiffJobsOfShards()),
            *snapshots_api.routes(stores["snapshots"]),
            *scm_api.routes(stores["mock_scm"], MockScmSwitches(), {0: block_store}),
        ]


@pytest.fixture(scope="module")
def asked() -> Iterator[Asked]:
    after_seconds, reads.AFTER_SECONDS = reads.AFTER_SECONDS, 0.001
    found = Asked()
    with serving(found.routes) as address, httpx.Client(trust_env=False, base_url=address) as found.http:
        yield found
    reads.AFTER_SECONDS = after_seconds


@settings(max_examples=80, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    st.integers(0, 10_000),
    SHARDS,
    st.dictionaries(st.sampled_from(PARAMETERS), st.sampled_from(TEXTS), max_size=6),
    st.booleans(),
    st.sampled_from(BODIES),
)
def test_every_request_is_answered_or_refused(
    asked: Asked, route_number: int, shard: str, parameters: dict[str, str], has_bucket: bool, body: bytes
) -> None:
    route = asked.routes[route_number % len(asked.routes)]
    wanted = {"volume": "vol1", "bucket": "tree"} | parameters if has_bucket else parameters
    path = route.path.replace("{shard}", shard)
    for method in sorted(route.methods or ()):
        response = asked.http.request(method, path, params=wanted, content=body)
        assert response.status_code in ANSWERED, (method, path, wanted, response.text)
        if response.status_code >= 400 and method != "HEAD":
            assert response.status_code in (404, 405) or response.json()["code"], response.text
            assert len(response.content) < 40_000


def test_a_body_beyond_its_limit_is_not_read_to_the_end(asked: Asked, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reads, "MAX_BODY_BYTES", 1_000)
    sent = 0

    def parts() -> Iterator[bytes]:
        nonlocal sent
        for _ in range(100):
            sent += 500
            yield b" " * 500

    response = asked.http.post("/v1/shards/0/exist", content=parts())
    assert (response.status_code, response.json()["code"]) == (400, "INVALID_REQUEST")
    assert asked.http.post("/v1/shards/0/exist", content=b"[]").json() == []


@pytest.mark.parametrize("snapshot_id", ["../../db", "..", ".", "/etc", "a\0b", "%2e%2e", "x" * 5_000, "é" * 200, "\n"])
def test_a_snapshot_id_is_no_way_to_another_place(tmp_path: Path, snapshot_id: str) -> None:
    """Neither for who reads nor for who takes: on a real disk."""
    store = RocksStore(tmp_path / "db", (*TABLES, *RUNTIME_TABLES), CHECKPOINTED)
    log = MemoryLog(VirtualClock())
    runner = Runner(MetadataService(), 0, store, log, VirtualClock())
    encoder = codec(MetadataCommand)
    bodies = (
        CreateVolume("vol1", "me"),
        CreateBucket("vol1", "tree", BucketLayout.OBJECT_STORE),
        CaptureSnapshot("vol1", "tree", snapshot_id),
    )
    for body in (*bodies, PutKey("vol1", "tree", "k", 1)):
        sender = "snapshots" if isinstance(body, CaptureSnapshot) else ""
        command = MetadataCommand(0, "", 0, body, sender, wants_reply=False)
        log.append(METADATA_COMMANDS.name, 0, encoder.encode_message(command))
    before = {path for path in tmp_path.parent.rglob("*") if tmp_path not in path.parents and path != tmp_path}
    assert sum(iter(runner.step, 0)) == 4
    assert before == {path for path in tmp_path.parent.rglob("*") if tmp_path not in path.parents and path != tmp_path}
    assert {path.name for path in tmp_path.iterdir()} <= {"db", "checkpoints"}
    parameters = {"volume": "vol1", "bucket": "tree", "path": "k"}
    with serving(metadata_api.routes({0: store})) as address, httpx.Client(trust_env=False, base_url=address) as http:
        assert http.get("/v1/shards/0/stat", params=parameters).status_code == 200
        taken = http.get("/v1/shards/0/entries", params={**parameters, "snapshot_id": snapshot_id})
    is_an_id = is_snapshot_id(snapshot_id)  # odd, and a directory of its own like any other
    assert (taken.status_code, len(store.checkpoints())) == ((200, 1) if is_an_id else (404, 0))
    store.close()
