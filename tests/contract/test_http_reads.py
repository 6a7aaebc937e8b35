"""Reads over HTTP answer what the tables say, back in the same records, and refuse with the same codes."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

import httpx
import pytest
import uvicorn
from starlette.applications import Starlette
from starlette.routing import Route

from schemas.answers import DiffStatus
from schemas.records import (
    BlockRun,
    BucketLayout,
    CollectionState,
    CommitKey,
    Committed,
    CreateBucket,
    CreateSnapshot,
    CreateVolume,
    DeleteKey,
    InitiateUpload,
    KeyRow,
    OpenKey,
    PutKey,
    SetCollection,
    SyncKey,
)
from schemas.space_answers import PlanSpace, WhatIf
from services.client.errors import PlaneError, UnreachableError
from services.client.plane import NamespaceCommand
from services.client.tasks import space_pages
from services.client.tasks.diffs import diff
from services.client.wire import http_reads, paging
from services.client.wire.http_reads import HttpMetadataReads, HttpScmReads, HttpShard, HttpSnapshotReads
from services.client.wire.http_space_reads import HttpSpaceReads
from services.domain.snapshot_diff import DiffEntry, DiffKind
from services.domain.table_keys import local_id
from services.metadata.diffs import api as diff_api
from services.metadata.reads import http_api as metadata_api
from services.mock_scm import http_api as scm_api
from services.mock_scm.settings import MockScmSwitches
from services.plane.in_memory.client import InMemoryClient
from services.plane.in_memory.plane import InMemoryPlane
from services.runtime.http import reads
from services.snapshots.reads import http_api as snapshots_api


@dataclass
class Reads:
    """One plane, read directly and over HTTP."""

    client: InMemoryClient
    http: httpx.Client
    address: str
    switches: MockScmSwitches

    def metadata(self, answered_txn: int = 0) -> HttpMetadataReads:
        return HttpMetadataReads(HttpShard(self.http, "metadata", self.address, 0, lambda: answered_txn))

    def space(self, answered_txn: int = 0) -> HttpSpaceReads:
        return HttpSpaceReads(HttpShard(self.http, "metadata", self.address, 0, lambda: answered_txn))

    def snapshots(self) -> HttpSnapshotReads:
        return HttpSnapshotReads(HttpShard(self.http, "snapshots", self.address, 0))

    def scm(self) -> HttpScmReads:
        return HttpScmReads(HttpShard(self.http, "mock_scm", self.address, 0))


@contextmanager
def serving(routes: list[Route]) -> Iterator[str]:
    """A real HTTP server; says its address."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()  # so that who comes before the server is up waits instead of being refused
        server = uvicorn.Server(uvicorn.Config(Starlette(routes=routes), log_config=None, lifespan="off"))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join()


@contextmanager
def reads_of_a_plane() -> Iterator[Reads]:
    """A plane in memory with a bucket and a snapshot, served over HTTP."""
    plane = InMemoryPlane()
    client = InMemoryClient(plane)
    switches = MockScmSwitches()
    routes = [
        *metadata_api.routes({0: plane.processes["metadata", 0].store}),
        *diff_api.diff_routes({0: plane.processes["metadata", 0].store}, diff_api.DiffJobsOfShards()),
        *snapshots_api.routes({0: plane.processes["snapshots", 0].store}),
        *scm_api.routes({0: plane.processes["mock_scm", 0].store}, switches),
    ]
    commands: list[NamespaceCommand] = [
        CreateVolume("vol1"),
        CreateBucket("vol1", "tree", BucketLayout.FILE_SYSTEM_OPTIMIZED),
        *(PutKey("vol1", "tree", f"dir/ключ {number}&=%", 1000, f"v{number}") for number in range(3)),
    ]
    for command in commands:
        assert not client.answer(0, client.submit(0, command)).error
    assert not client.request(0, CreateSnapshot("vol1", "tree", "snap1")).error
    assert not client.answer(0, client.submit(0, DeleteKey("vol1", "tree", "dir/ключ 1&=%"))).error
    with serving(routes) as address, httpx.Client(trust_env=False, base_url=address) as http:
        yield Reads(client, http, address, switches)


@pytest.fixture
def served() -> Iterator[Reads]:
    with reads_of_a_plane() as reads:
        yield reads


def test_a_shard_that_is_not_ready_yet_is_no_wrong_shard() -> None:
    plane, stores = InMemoryPlane(), reads.ServedStores([0])
    with serving(metadata_api.routes(stores)) as address, httpx.Client(trust_env=False) as http:
        shards = [HttpMetadataReads(HttpShard(http, "metadata", address, shard)) for shard in (0, 1)]
        with pytest.raises(UnreachableError, match="cannot answer now: shard 0 is not ready"):
            shards[0].volumes()
        with pytest.raises(PlaneError, match="shard 1 is not served here") as caught:
            shards[1].volumes()
        assert caught.value.code == "WRONG_SHARD"
        stores[0] = plane.processes["metadata", 0].store
        assert shards[0].volumes() == []


def test_every_read_of_the_namespace_comes_back_as_it_was(served: Reads) -> None:
    direct, over_http = served.client.metadata(0), served.metadata()
    snapshot_id = served.client.snapshots(0).snapshot("vol1", "tree", "snap1").snapshot_id
    assert over_http.volumes() == direct.volumes()
    assert over_http.buckets("vol1") == direct.buckets("vol1")
    assert over_http.bucket("vol1", "tree") == direct.bucket("vol1", "tree")
    assert over_http.entries("vol1", "tree") == direct.entries("vol1", "tree")
    held = over_http.entries("vol1", "tree", snapshot_id=snapshot_id, prefix="dir/", start_after="dir/ключ 0&=%")
    assert [entry.path for entry in held] == ["dir/ключ 1&=%", "dir/ключ 2&=%"]
    assert over_http.entries("vol1", "tree", limit=1) == direct.entries("vol1", "tree", limit=1)
    assert isinstance(over_http.stat("vol1", "tree", "dir/ключ 0&=%"), KeyRow)
    for path in ("dir", "dir/ключ 1&=%"):
        row = over_http.stat("vol1", "tree", path, snapshot_id=snapshot_id)
        assert row == direct.stat("vol1", "tree", path, snapshot_id=snapshot_id)
    (deleted,) = over_http.deleted("vol1", "tree")
    assert [deleted] == direct.deleted("vol1", "tree")
    assert (deleted.path, deleted.is_held, deleted.returning) == ("dir/ключ 1&=%", True, "ITSELF")
    assert not over_http.deleted("vol1", "tree", start_after=f"{deleted.death}:{deleted.object_id}")
    assert not over_http.deleted("vol1", "tree", start_after=f"{deleted.death}:-1")  # negative ids come last
    assert over_http.space("vol1", "tree") == direct.space("vol1", "tree")
    assert over_http.space("vol1", "tree").held_bytes == 1000


def test_reads_of_what_is_being_written_come_back_as_they_were(served: Reads, monkeypatch: pytest.MonkeyPatch) -> None:
    client, place = served.client, ("vol1", "tree")
    direct, over_http = client.metadata(0), served.metadata()

    def done(command: NamespaceCommand) -> Committed:
        reply = client.answer(0, client.submit(0, command))
        assert reply.committed, reply
        return reply.committed

    opened = [done(OpenKey(*place, f"dir/ключ {number}&=%", 10, f"o{number}")).session for number in (0, 1, 1)]
    opened += [done(OpenKey(*place, "root", 10)).session]
    done(SyncKey(*place, "root", opened[3], 10))
    done(DeleteKey(*place, "root"))
    ids = [done(InitiateUpload(*place, f"dir/up/{number}&")).upload_id for number in (0, 1, 1)]
    for number in (1, 2, 10_000):
        part = done(OpenKey(*place, "dir/up/1&", 5, upload_id=ids[2], part_number=number))
        done(CommitKey(*place, "dir/up/1&", part.session, 5))
    for rows in (1, 2, 1_000):
        monkeypatch.setattr(paging, "PAGE_ROWS", rows)
        monkeypatch.setattr(http_reads, "MAX_PAGE_ROWS", rows)
        assert over_http.open_keys(*place) == direct.open_keys(*place)
        assert over_http.uploads(*place) == direct.uploads(*place)
        assert over_http.parts(*place, "dir/up/1&", ids[2]) == direct.parts(*place, "dir/up/1&", ids[2])
    assert {(one.row.session, one.is_taken_away) for one in direct.open_keys(*place)} == {
        *((session, False) for session in opened[:3]),
        (opened[3], True),
    }
    assert [one.upload_id for one in over_http.uploads(*place)] == ids
    assert [one.part_number for one in over_http.parts(*place, "dir/up/1&", ids[2])] == [1, 2, 10_000]
    assert over_http.parts(*place, "dir/up/1&", ids[1]) == []
    for reads_of in (direct, over_http):
        with pytest.raises(PlaneError) as caught:
            reads_of.parts(*place, "dir/up/1&", ids[0])
        assert caught.value.code == "NO_SUCH_MULTIPART_UPLOAD_ERROR"


def test_reads_of_snapshots_and_blocks_come_back_as_they_were(served: Reads) -> None:
    assert served.snapshots().snapshots("vol1", "tree") == served.client.snapshots(0).snapshots("vol1", "tree")
    assert served.snapshots().snapshot("vol1", "tree", "snap1").referenced_bytes == 3000
    assert served.snapshots().snapshots("vol1", "none") == []
    row = served.client.metadata(0).stat("vol1", "tree", "dir/ключ 0&=%")
    assert isinstance(row, KeyRow)
    assert row.blocks is not None
    nowhere = BlockRun(0, 1, 1, 1, 1)
    runs = [nowhere if number % 2 else row.blocks for number in range(25_000)]
    assert served.client.plane.run_until(lambda: served.scm().totals().inventory_blocks == 3)
    assert served.scm().exist(runs) == [not number % 2 for number in range(25_000)]
    assert served.scm().totals() == served.client.scm(0).totals()


def test_the_cells_of_a_bucket_come_in_pages_and_all_of_them(served: Reads, monkeypatch: pytest.MonkeyPatch) -> None:
    client, over_http, place = served.client, served.metadata(), ("vol1", "tree")
    for number in range(2):
        client.submit(0, PutKey(*place, f"later-{number}", 10, ""))
        client.request(0, CreateSnapshot(*place, f"later-{number}"))
        assert not client.answer(0, client.submit(0, DeleteKey(*place, f"later-{number}"))).error
    whole = over_http.space(*place)
    assert len(whole.cells) > 2
    first = over_http.space(*place, limit=1)
    assert replace(first, cells=whole.cells) == whole
    assert first.cells == whole.cells[:1]
    last = whole.cells[-1]
    assert over_http.space(*place, start_after=f"{last.first_holder}:{last.last_holder}").cells == ()
    for rows in (1, 2, len(whole.cells)):
        monkeypatch.setattr(space_pages, "PAGE_ROWS", rows)
        assert tuple(space_pages.all_cells(over_http, *place)) == whole.cells
    for malformed in ("7", "7:", ":7", "a:b", "1:2:3", "-1:2", "1:2 ", "1" * 20 + ":1"):
        with pytest.raises(PlaneError, match="start_after") as refused:
            over_http.space(*place, start_after=malformed)
        assert refused.value.code == "INVALID_REQUEST"


def test_suspended_buckets_come_in_pages(served: Reads, monkeypatch: pytest.MonkeyPatch) -> None:
    client = served.client
    for number in range(5):
        client.submit(0, CreateBucket("vol1", f"held-{number}", BucketLayout.OBJECT_STORE))
        pause = SetCollection("vol1", f"held-{number}", CollectionState.PAUSED, "a test")
        assert not client.answer(0, client.submit(0, pause)).error
    whole = client.metadata(0).collection()
    assert [line.bucket for line in whole] == ["", *(f"held-{number}" for number in range(5))]
    for rows in (1, 2, 5, 6):
        monkeypatch.setattr(http_reads, "MAX_PAGE_ROWS", rows)
        assert served.metadata().collection() == whole


def test_reads_about_space_come_back_as_they_were(served: Reads) -> None:
    direct, over_http = served.client.space(0), served.space()
    place = ("vol1", "tree")
    (snapshot,) = over_http.snapshot_spaces(*place).snapshots
    assert over_http.snapshot_spaces(*place) == direct.snapshot_spaces(*place)
    assert over_http.snapshot_spaces(*place, start_after=snapshot.txn).snapshots == ()
    assert (snapshot.referenced_bytes, snapshot.exclusive_bytes, snapshot.shared_with_next_bytes) == (3000, 1000, 2000)
    asked = WhatIf((snapshot.snapshot_id,))
    assert over_http.what_if(*place, asked) == direct.what_if(*place, asked)
    assert over_http.what_if(*place, asked).freed_bytes == 1000
    assert over_http.what_if(*place, WhatIf((), (snapshot.snapshot_id,))).freed_bytes == 0
    assert over_http.plan(*place, PlanSpace(1)) == direct.plan(*place, PlanSpace(1))
    assert over_http.plan(*place, PlanSpace(1)).snapshot_ids == (snapshot.snapshot_id,)
    kept = over_http.plan(*place, PlanSpace(1, protected_snapshot_ids=(snapshot.snapshot_id,)))
    assert (kept.snapshot_ids, kept.is_enough) == ((), False)
    path = "dir/ключ 1&=%"
    explained = over_http.explain_path(*place, path)
    assert explained == direct.explain_path(*place, path)
    assert [(version.stage, version.first_holder) for version in explained.versions] == [("HELD", snapshot.txn)]
    block = local_id(0, explained.versions[0].birth, 0)
    assert over_http.explain_block(block) == direct.explain_block(block)
    named = over_http.explain_block(block, volume="vol1", bucket="tree")
    assert (named.path, named.version) == (path, explained.versions[0])
    assert served.space(named.txn).what_if(*place, asked).txn == named.txn


@pytest.mark.parametrize(
    ("path", "body", "code"),
    [
        ("what-if", b"[", "INVALID_REQUEST"),
        ("what-if", b"{}", "INVALID_REQUEST"),
        ("what-if", b'{"snapshot_ids": [], "more": 1}', "INVALID_REQUEST"),
        ("what-if", b'{"snapshot_ids": ["none"]}', "FILE_NOT_FOUND"),
        ("plan", b'{"free_bytes": -1}', "INVALID_REQUEST"),
        ("plan", b'{"free_bytes": 1, "leaving_snapshot_ids": ["none"]}', ""),
    ],
)
def test_a_bad_question_about_space_says_what_is_wrong(served: Reads, path: str, body: bytes, code: str) -> None:
    answer = served.http.post(f"/v1/shards/0/space/{path}?volume=vol1&bucket=tree", content=body)
    assert answer.json().get("code", "") == code


def test_a_diff_comes_back_as_it_was(served: Reads) -> None:
    direct, over_http = served.client.metadata(0), served.metadata()
    snapshot_id = served.client.snapshots(0).snapshot("vol1", "tree", "snap1").snapshot_id
    entries = diff(over_http, "vol1", "tree", from_snapshot_id=snapshot_id)
    assert entries == diff(direct, "vol1", "tree", from_snapshot_id=snapshot_id)
    assert entries == [DiffEntry(DiffKind.DELETED, "dir/ключ 1&=%")]
    (job,) = over_http.diff_jobs("vol1", "tree")
    assert (job.status, job.entry_count, job.from_snapshot_id) == (DiffStatus.DONE, 1, snapshot_id)
    assert over_http.diff_job(job.job_id) == job
    assert over_http.diff_entries(job.job_id, start_after=1, limit=10) == []
    with pytest.raises(PlaneError, match="nothing to cancel") as caught:
        over_http.cancel_diff(job.job_id)
    assert caught.value.code == "DIFF_NOT_DONE"


def test_refusals_come_back_with_their_code(served: Reads) -> None:
    refusals: list[tuple[str, Callable[[], object]]] = [
        ("VOLUME_NOT_FOUND", lambda: served.metadata().buckets("none")),
        ("VOLUME_NOT_FOUND", lambda: served.metadata().bucket("none", "tree")),
        ("BUCKET_NOT_FOUND", lambda: served.metadata().bucket("vol1", "")),
        ("KEY_NOT_FOUND", lambda: served.metadata().stat("vol1", "tree", "none")),
        ("FILE_NOT_FOUND", lambda: served.metadata().entries("vol1", "tree", snapshot_id="../none")),
        ("INVALID_REQUEST", lambda: served.metadata().entries("vol1", "tree", limit=10_001)),
        ("FILE_NOT_FOUND", lambda: served.snapshots().snapshot("vol1", "tree", "none")),
        ("FILE_NOT_FOUND", lambda: diff(served.metadata(), "vol1", "tree", from_snapshot_id="none")),
        ("BUCKET_NOT_FOUND", lambda: served.metadata().diff_jobs("vol1", "none")),
        ("DIFF_NOT_FOUND", lambda: served.metadata().diff_job("none")),
    ]
    for code, refused in refusals:
        with pytest.raises(PlaneError) as caught:
            refused()
        assert caught.value.code == code


@pytest.mark.parametrize(
    ("path", "status", "code"),
    [
        ("/v1/shards/7/volumes", 404, "WRONG_SHARD"),
        ("/v1/shards/0/buckets", 400, "INVALID_REQUEST"),
        ("/v1/shards/0/volumes?limit=0", 400, "INVALID_REQUEST"),
        ("/v1/shards/0/volumes?limit=many", 400, "INVALID_REQUEST"),
        ("/v1/shards/0/volumes?after=1", 400, "INVALID_REQUEST"),
        ("/v1/shards/0/volumes?after=1:2", 404, "WRONG_SHARD"),
        ("/v1/shards/0/bucket?volume=vol1&bucket=none", 404, "BUCKET_NOT_FOUND"),
        ("/v1/shards/0/deleted?volume=vol1&bucket=none", 404, "BUCKET_NOT_FOUND"),
        ("/v1/shards/0/deleted?volume=vol1&bucket=tree&start_after=dir", 400, "INVALID_REQUEST"),
        ("/v1/shards/0/deleted?volume=vol1&bucket=tree&start_after=1:", 400, "INVALID_REQUEST"),
        ("/v1/shards/0/deleted?volume=vol1&bucket=tree&start_after=-1:2", 400, "INVALID_REQUEST"),
        ("/v1/shards/0/snapshots?volume=vol1&bucket=tree&with_deleted=yes", 400, "INVALID_REQUEST"),
        ("/v1/shards/0/open-keys?volume=vol1&bucket=none", 404, "BUCKET_NOT_FOUND"),
        ("/v1/shards/0/uploads?volume=vol1&bucket=none", 404, "BUCKET_NOT_FOUND"),
        ("/v1/shards/0/parts?volume=vol1&bucket=tree&path=p&upload_id=0-9", 404, "NO_SUCH_MULTIPART_UPLOAD_ERROR"),
        ("/v1/shards/0/parts?volume=vol1&bucket=tree&path=p", 400, "INVALID_REQUEST"),
        ("/v1/shards/0/diff?job_id=none&wait_seconds=11", 400, "INVALID_REQUEST"),
    ],
)
def test_a_bad_request_says_what_is_wrong_with_it(served: Reads, path: str, status: int, code: str) -> None:
    answer = served.http.get(path)
    assert (answer.status_code, answer.json()["code"]) == (status, code)
    assert answer.json()["message"]


def test_a_read_waits_for_what_was_answered_and_gives_up_in_the_end(
    served: Reads, monkeypatch: pytest.MonkeyPatch
) -> None:
    txn = served.client.metadata(0).space("vol1", "tree").txn
    assert len(served.metadata(txn).volumes()) == 1
    monkeypatch.setattr(reads, "AFTER_SECONDS", 0.05)
    with pytest.raises(PlaneError, match=f"has applied txn {txn}, not yet {txn + 1}") as caught:
        served.metadata(txn + 1).volumes()
    assert caught.value.code == "NOT_YET_APPLIED"


def test_switches_are_set_and_shown(served: Reads) -> None:
    assert served.http.get("/v1/switches").json()["fail_share"] == 0
    wanted = {"delay_ms": 5, "fail_share": 0.5, "failing_buckets": [3], "is_failing": False, "answers_twice": True}
    assert served.http.put("/v1/switches", json=wanted).json() == wanted
    assert served.switches == MockScmSwitches(5, 0.5, frozenset({3}), False, True)
    mistakes: list[object] = [{"fail_share": 2}, {"delay": 5}, [], {"delay_ms": "soon"}]
    for wrong in mistakes:
        assert served.http.put("/v1/switches", json=wrong).json()["code"] == "INVALID_REQUEST"
    assert served.http.post("/v1/shards/0/exist", content=b"[1").json()["code"] == "INVALID_REQUEST"
    assert served.switches.delay_ms == 5
    assert served.http.put("/v1/switches", json={}).is_success
    assert served.switches == MockScmSwitches()


def test_a_service_that_is_not_there_is_one_sentence() -> None:
    with httpx.Client(trust_env=False) as http:
        shard = HttpShard(http, "metadata", "http://127.0.0.1:1", 0)
        with pytest.raises(UnreachableError, match=r"^metadata at http://127.0.0.1:1 cannot be reached .*status\)$"):
            HttpMetadataReads(shard).volumes()


def test_something_else_that_answers_is_not_taken_for_the_service() -> None:
    def answer(request: httpx.Request) -> httpx.Response:
        return httpx.Response(200 if "volumes" in request.url.path else 502, text="<html>")

    with httpx.Client(transport=httpx.MockTransport(answer)) as http:
        metadata = HttpMetadataReads(HttpShard(http, "metadata", "http://somewhere", 0))
        with pytest.raises(UnreachableError, match="is not metadata of this version"):
            metadata.volumes()
        with pytest.raises(UnreachableError, match="answered 502 without a reason"):
            metadata.buckets("vol1")
