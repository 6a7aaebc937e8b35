"""What retention answers over HTTP is what it answers within the process; a snapshot that has gone is told apart."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from schemas.records import (
    CreateSnapshot,
    CreateTag,
    DeleteSnapshot,
    ExpireSnapshots,
    RetentionPolicy,
    SetConsumer,
    SetRetention,
)
from services.client.errors import PlaneError
from tests.contract.test_http_reads import Reads, reads_of_a_plane

PLACE = ("vol1", "tree")
OLD = RetentionPolicy(num_retained_min=1, time_retained_ms=0)
NOW_MS = 10**12


@pytest.fixture
def served() -> Iterator[Reads]:
    with reads_of_a_plane() as reads:
        for name in ("snap2", "snap3", "snap4"):
            assert not reads.client.request(0, CreateSnapshot(*PLACE, name, at_ms=5)).error
        for request in (
            CreateTag(*PLACE, "snap3", "audit", "ann", "year end"),
            CreateTag(*PLACE, "snap3", "build", time_to_live_ms=10**9),
            SetConsumer(*PLACE, "reader", "snap4", is_behind=True),
            SetRetention(*PLACE, RetentionPolicy()),
        ):
            assert not reads.client.request(0, request).error
        yield reads


def test_reads_of_retention_come_back_as_they_were(served: Reads) -> None:
    direct, over_http = served.client.snapshots(0), served.snapshots()
    assert over_http.retention(*PLACE) == direct.retention(*PLACE)
    assert over_http.tags(*PLACE) == direct.tags(*PLACE)
    assert [tag.tag for tag in over_http.tags(*PLACE)] == ["audit", "build"]
    assert over_http.consumers(*PLACE) == direct.consumers(*PLACE)
    assert over_http.consumers(*PLACE)[0].next_snapshot == ""
    assert over_http.tags("vol1", "none") == []
    assert over_http.retention_preview(*PLACE, now_ms=NOW_MS) == direct.retention_preview(*PLACE, now_ms=NOW_MS)
    tried = over_http.retention_preview(*PLACE, policy=OLD, now_ms=2 * NOW_MS)
    assert tried == direct.retention_preview(*PLACE, policy=OLD, now_ms=2 * NOW_MS)
    assert [one.snapshot for one in tried.expired] == ["snap1", "snap2"]
    assert (tried.kept[0].reasons[0].names, tried.dropped_tags) == (("audit",), ("build",))


def test_a_preview_is_of_now_unless_a_time_is_given(served: Reads) -> None:
    assert served.snapshots().retention_preview(*PLACE).now_ms > NOW_MS


def test_pages_of_tags(served: Reads) -> None:
    page = served.http.get("/v1/shards/0/tags?volume=vol1&bucket=tree&limit=1").json()
    assert [tag["tag"] for tag in page] == ["audit"]
    page = served.http.get("/v1/shards/0/tags?volume=vol1&bucket=tree&start_after=audit").json()
    assert [tag["tag"] for tag in page] == ["build"]
    page = served.http.get("/v1/shards/0/consumers?volume=vol1&bucket=tree&start_after=reader").json()
    assert page == []


def test_refusals_of_retention_come_back_with_their_code(served: Reads) -> None:
    for reads in (served.client.snapshots(0), served.snapshots()):
        for code, policy in (("RETENTION_NOT_FOUND", None), ("INVALID_REQUEST", replace(OLD, expire_limit=0))):
            with pytest.raises(PlaneError) as caught:
                reads.retention_preview("vol1", "none", policy=policy)
            assert caught.value.code == code
        with pytest.raises(PlaneError) as caught:
            reads.retention("vol1", "none")
        assert caught.value.code == "RETENTION_NOT_FOUND"
    refused = served.http.get("/v1/shards/0/retention?volume=vol1&bucket=none")
    assert refused.status_code == 404


def test_a_reader_of_an_expired_snapshot_learns_where_to_go_on(served: Reads) -> None:
    """By name from snapshots and by id from metadata: both are told apart from what never was."""
    names = {row.name: row.snapshot_id for row in served.client.snapshots(0).snapshots(*PLACE)}
    reply = served.client.request(0, ExpireSnapshots(*PLACE, OLD, 2 * NOW_MS))
    assert reply.expired is not None
    assert reply.expired.snapshots == ("snap1", "snap2")
    for reads in (served.client.snapshots(0), served.snapshots()):
        with pytest.raises(PlaneError) as caught:
            reads.snapshot(*PLACE, "snap1")
        assert (caught.value.code, caught.value.next_snapshot) == ("SNAPSHOT_EXPIRED", "snap3")
    for metadata in (served.client.metadata(0), served.metadata()):
        with pytest.raises(PlaneError) as caught:
            metadata.entries(*PLACE, snapshot_id=names["snap2"])
        assert (caught.value.code, caught.value.next_snapshot) == ("SNAPSHOT_EXPIRED", names["snap3"])
        with pytest.raises(PlaneError) as caught:
            metadata.stat(*PLACE, "dir", snapshot_id="never")
        assert caught.value.code == "FILE_NOT_FOUND"
        assert metadata.entries(*PLACE, snapshot_id=names["snap3"])
    answer = served.http.get("/v1/shards/0/snapshot?volume=vol1&bucket=tree&name=snap1")
    assert answer.status_code == 410
    assert answer.json()["next_snapshot"] == "snap3"


def test_when_no_later_one_is_there_the_answer_says_so(served: Reads) -> None:
    assert not served.client.request(0, DeleteSnapshot(*PLACE, "snap4")).error
    assert served.client.plane.run_until(lambda: len(_names(served)) == 3)
    with pytest.raises(PlaneError, match="no later snapshot exists") as caught:
        served.snapshots().snapshot(*PLACE, "snap4")
    assert (caught.value.code, caught.value.next_snapshot) == ("SNAPSHOT_EXPIRED", "")


def _names(served: Reads) -> list[str]:
    return [row.name for row in served.client.snapshots(0).snapshots(*PLACE, with_deleted=True)]
