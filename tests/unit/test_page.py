"""The page's server over a plane in memory: its answers are those of the commands, and it keeps strangers out."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families
from starlette.testclient import TestClient
from typer.testing import CliRunner

from schemas.answers import RetentionReason, SnapshotTag
from schemas.build_info import BUILD_INFO
from schemas.credentials import CredentialsError, write_secret
from schemas.http_token import bearer
from schemas.records import (
    BucketLayout,
    CollectionState,
    CreateBucket,
    CreateVolume,
    DeleteKey,
    DeleteSnapshot,
    UnsetRetention,
)
from schemas.space_answers import ExplainedDirectory
from services.cli.holders import MOST_SHOWN, print_holders
from services.cli.main import app
from services.cli.session import Session
from services.client.errors import PlaneTimeoutError
from services.client.plane import Plane
from services.client.tasks.space_pages import all_cells, space_pages
from services.domain.snapshot_diff import DiffEntry, DiffKind
from services.domain.table_keys import INDEX_BITS, TXN_BITS
from services.page.app import page_app
from services.page.assets import asset, asset_names, inlined
from services.page.bucket_list import BucketList, largest_buckets
from services.page.bucket_views import bucket_answer, drawn_cells
from services.page.diff_tree import counts_text, diff_tree, tree_rows
from services.page.door import Door, HomeDoor
from services.page.encoding import encoded
from services.page.guard import ACTS_HEADER, Rights
from services.page.history import History
from services.page.server import serving_page
from services.page.stations import stations
from services.page.troubles import troubles
from services.plane.broker.security import BrokerSecurity
from services.plane.stack.secrets import DIRECTORY_NAME
from services.plane.upkeep.status import LastAudit, ProcessStatus, SuspendedCollection
from services.runtime.http.metrics import NO_ROUTE, REQUESTS_METRIC
from services.runtime.http.server import ServerError
from services.wording.holders import Holder, until_text
from services.wording.space import directory_text
from tests.paged_plane import BUCKET, DAY_MS, KIB, NO_PLANE, VOLUME, PagedPlane, healthy

PLACE = {"volume": VOLUME, "bucket": BUCKET}
HOST = "http://127.0.0.1:9780"
LAYOUT = BucketLayout.FILE_SYSTEM_OPTIMIZED
ACTING = Rights(acts_token="t")  # noqa: S106


def caller(plane: PagedPlane, rights: Rights | None = None, **headers: str) -> TestClient:
    return TestClient(page_app(Door(plane.client), plane.watcher, rights or Rights()), base_url=HOST, headers=headers)


@pytest.fixture(scope="module")
def plane() -> PagedPlane:
    """A bucket in which every part of the page has something to show; tests only read it."""
    plane = PagedPlane()
    plane.fill_eventfully()
    plane.watcher.observe()
    return plane


@pytest.fixture
def page(plane: PagedPlane) -> Iterator[TestClient]:
    """Reads the page of that plane."""
    with caller(plane) as client:
        yield client


def of_command(plane: PagedPlane, home: Path, *words: str) -> Any:
    done = CliRunner().invoke(app, [*words, "--json"], obj=Session(home, plane.client))
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


def test_a_bucket_is_what_the_commands_say(plane: PagedPlane, page: TestClient, tmp_path: Path) -> None:
    command = of_command(plane, tmp_path, "space", f"{VOLUME}/{BUCKET}")
    answer = page.get("/api/bucket", params=PLACE).json()
    assert {one["state"]: int(one["bytes"]) for one in answer["amounts"]} == {
        state: command[f"{state}_bytes"] for state in ("live", "held", "pending", "claimed", "freed")
    }
    names = [one["name"] for one in command["snapshots"]]
    assert [name for group in answer["picture"]["groups"] for name in group["names"]] == names
    assert [one["name"] for one in page.get("/api/snapshots", params=PLACE).json()] == names
    assert sum(int(size) for _, size, _, _ in answer["picture"]["cells"]) == command["held_bytes"]
    (listed,) = page.get("/api/buckets").json()["buckets"]
    assert int(listed["states"]["held"]["bytes"]) == command["held_bytes"]


def test_what_if_and_plan_are_what_the_commands_say(plane: PagedPlane, page: TestClient, tmp_path: Path) -> None:
    names = ["day-0001", "day-0002", "day-0005"]
    freed = page.post("/api/what-if", json={**PLACE, "names": names}).json()
    command = of_command(plane, tmp_path, "space", "what-if", f"{VOLUME}/{BUCKET}", *names)
    assert int(freed["freed_bytes"]) == command["freed_bytes"] > 0
    planned = page.get("/api/plan", params={**PLACE, "size": "2MiB"}).json()
    command = of_command(plane, tmp_path, "space", "plan", f"{VOLUME}/{BUCKET}", "--free", "2MiB")
    assert (planned["names"], int(planned["freed_bytes"])) == (command["snapshots"], command["freed_bytes"])
    most = int(page.get("/api/plan/most", params=PLACE).json()["most_bytes"])
    beyond = page.get("/api/plan", params={**PLACE, "size": str(most + 1)}).json()
    assert int(beyond["freed_bytes"]) == most
    assert "cannot be freed" in beyond["notes"][0]


def test_the_cells_that_are_drawn_give_what_a_what_if_gives(plane: PagedPlane, page: TestClient) -> None:
    picture = page.get("/api/bucket", params=PLACE).json()["picture"]
    for chosen in ({0}, {0, 1, 2}, set(range(12))):
        within = [
            int(size)
            for runs, size, _, _ in picture["cells"]
            if all(place in chosen for first, last in runs for place in range(first, last + 1))
        ]
        names = [f"day-{place:04d}" for place in chosen]
        freed = page.post("/api/what-if", json={**PLACE, "names": names}).json()
        assert sum(within) == int(freed["freed_bytes"])


def test_a_snapshot_that_is_being_deleted_holds_nothing_in_the_picture(plane: PagedPlane) -> None:
    reads = plane.client.metadata(0)
    cells = reads.space(VOLUME, BUCKET, limit=10_000).cells
    infos = plane.client.snapshots(0).snapshots(VOLUME, BUCKET)
    drawn = drawn_cells(cells, infos[1:])
    alone = [one for one in cells if one.first_holder == one.last_holder == infos[0].create_txn]
    assert alone
    held = sum(one.bytes for one in cells if one.first_holder)
    assert sum(cell.bytes for cell in drawn.values()) == held - sum(one.bytes for one in alone)
    assert all(0 <= first <= last < len(infos) - 1 for ((first, last),) in drawn)


def test_a_path_is_explained_with_who_holds_it_until_when(plane: PagedPlane, page: TestClient, tmp_path: Path) -> None:
    path = "2025/03/sales.csv"
    answer = page.get("/api/explain", params={**PLACE, "path": path}).json()
    command = of_command(plane, tmp_path, "explain", f"{VOLUME}/{BUCKET}/{path}")
    assert [one["name"] for one in answer["holders"]] == command["held_by"]
    assert len(answer["versions"]) == len(command["versions"])
    by_name = {one["name"]: one for one in answer["holders"]}
    assert by_name["day-0003"] | {"created": ""} == {
        "name": "day-0003",
        "created": "",
        "why": "tagged audit-2025",
        "until": "a user deletes the tag audit-2025",
    }
    assert by_name["day-0000"]["until"] == "a user or a run of retention deletes it"
    assert page.get("/api/paths", params={**PLACE, "beginning": "2026/n"}).json() == ["2026/new.csv"]


def test_a_block_is_explained_as_the_command_does(plane: PagedPlane, page: TestClient, tmp_path: Path) -> None:
    reads = plane.client.metadata(0)
    tagged = next(one for one in plane.client.snapshots(0).snapshots(VOLUME, BUCKET) if one.name == "day-0003")
    (held,) = reads.key_blocks(VOLUME, BUCKET, "2025/03/sales.csv", snapshot_id=tagged.snapshot_id)
    for local_id in (held.first_local_id, held.first_local_id + 999):
        got = page.get("/api/explain/block", params={**PLACE, "local_id": str(local_id)}).json()
        command = ["explain", str(local_id), "--bucket", f"{VOLUME}/{BUCKET}"]
        printed = CliRunner().invoke(app, command, obj=Session(tmp_path, plane.client)).stdout
        fields, _, holders = printed.partition("\n\n")
        assert [line.split(maxsplit=1)[0] for line in fields.splitlines()] == [
            name.split()[0] for name, _ in got["fields"]
        ]
        assert [one["name"] for one in got["holders"]] == [line.split()[0] for line in holders.splitlines()[1:]]
        assert all(text in " ".join(printed.split()) for _, text in got["fields"])
        names = of_command(plane, tmp_path, *command)["held_by"]
        assert [one["name"] for one in got["holders"]] == names
        assert ("day-0003" in names) == (local_id == held.first_local_id)


def test_a_block_is_searched_page_by_page(plane: PagedPlane, page: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("services.metadata.reads.block_search.MAX_ROWS_PER_PAGE", 5)
    (run,) = plane.client.metadata(0).key_blocks(VOLUME, BUCKET, "2026/new.csv")
    asked = {**PLACE, "local_id": str(run.first_local_id + 999), "start": ""}
    pages = 1
    while start := page.get("/api/explain/block", params=asked).json()["next_start"]:
        asked["start"], pages = start, pages + 1
    assert pages > 3
    foreign = run.first_local_id + (1 << (TXN_BITS + INDEX_BITS))
    for wrong in ({"local_id": str(foreign)}, {"start": "?"}, {"local_id": "a path"}, {"local_id": str(2**63)}):
        answer = page.get("/api/explain/block", params=asked | wrong)
        assert (answer.status_code, answer.json()["code"]) == (400, "INVALID_REQUEST")


def test_a_reason_ends_when_it_is_known_to_end() -> None:
    tag = SnapshotTag("t", "s", "id", "", "", 0, 1_000 * DAY_MS, is_automatic=True)
    by_tag = RetentionReason("TAG", 0, ("t",), -1)
    by_age = RetentionReason("AGE", 0, (), DAY_MS)
    assert until_text([by_tag, by_age], {"t": tag}, has_policy=True) == "1972-09-27 00:00:00"
    assert until_text([by_age], {}, has_policy=True) == "1970-01-02 00:00:00"
    assert until_text([by_age, RetentionReason("MINIMUM", 4, (), -1)], {}, has_policy=True) == "not known"
    assert until_text([by_tag], {}, has_policy=True) == "not known", "a tag that is gone meanwhile says nothing"
    assert until_text([], {}, has_policy=True) == "a user or a run of retention deletes it"
    assert until_text([], {}, has_policy=False) == "a user deletes it"
    assert (
        until_text([by_tag], {"t": tag}, has_policy=False)
        == "a user deletes it, at 1972-09-27 00:00:00 at the earliest"
    )
    for_ever = {"t": replace(tag, expiry_time_ms=-1)}
    assert until_text([by_tag, by_age], for_ever, has_policy=True) == "a user deletes the tag t"
    assert until_text([by_tag], for_ever, has_policy=False) == "a user deletes the tag t, and then the snapshot"
    both = RetentionReason("TAG", 1, ("t", "u"), -1)
    assert until_text([both], {**for_ever, "u": for_ever["t"]}, has_policy=True) == "a user deletes the tags t, u"


def test_of_many_holders_the_oldest_and_the_newest_are_printed(capsys: pytest.CaptureFixture[str]) -> None:
    def printed(count: int) -> list[str]:
        print_holders([Holder(f"s{number}", "a day", "a tag", "a day") for number in range(count)])
        return [line.split()[0] for line in capsys.readouterr().out.splitlines() if line and "HOLDER" not in line]

    assert printed(0) == []
    assert printed(MOST_SHOWN) == [f"s{number}" for number in range(MOST_SHOWN)]
    half = MOST_SHOWN // 2
    of_more = [*(f"s{number}" for number in range(half)), "…", *(f"s{number + 1}" for number in range(half, 2 * half))]
    assert printed(MOST_SHOWN + 1) == of_more


def test_a_deleted_directory_goes_when_all_below_it_has_gone() -> None:
    live, dead = ExplainedDirectory(7, 3, 0, False, 0, 0), ExplainedDirectory(7, 3, 9, False, 4, 4)
    assert directory_text(live, []) == (
        "a directory, live; held by no snapshot; goes when it is deleted and everything below it is removed"
    )
    assert directory_text(dead, ["s1"]) == (
        "a directory, deleted at txn 9, not expanded yet; held by s1; "
        "goes when everything below it is removed, and s1 is deleted"
    )


def test_retention_is_previewed_by_the_policy_or_another_one(plane: PagedPlane, page: TestClient) -> None:
    now = page.get("/api/retention", params=PLACE).json()
    assert (now["has_policy"], now["is_changed"], now["policy"]["time_retained"]) == (True, False, "3d")
    assert now["expired"] == [f"day-{number:04d}" for number in (0, 1, 2, 4, 5, 6, 7)]
    other = page.get("/api/retention", params={**PLACE, "num_retained_min": "10", "time_retained": "1d"}).json()
    assert (other["is_changed"], other["expired"]) == (True, ["day-0000", "day-0001"])
    for wrong in ({"time_retained": "soon"}, {"num_retained_min": "few"}, {"num_retained_min": "0"}):
        refused = page.get("/api/retention", params={**PLACE, **wrong})
        assert refused.status_code in (400, 409)
        assert refused.json()["message"]


def test_a_bucket_without_a_policy_shows_what_the_default_would_do() -> None:
    plane = PagedPlane()
    plane.fill_eventfully()
    plane.request(UnsetRetention(VOLUME, BUCKET))
    with caller(plane) as page:
        answer = page.get("/api/retention", params=PLACE).json()
    assert (answer["has_policy"], answer["is_changed"], answer["policy"]["num_retained_min"]) == (False, True, 10)


def test_a_diff_is_a_tree(plane: PagedPlane, page: TestClient, tmp_path: Path) -> None:
    answer = page.post("/api/diff", json={**PLACE, "from": "day-0011", "to": "active"}).json()
    command = of_command(plane, tmp_path, "snapshot", "diff", f"{VOLUME}/{BUCKET}", "day-0011")
    marks = Counter(mark["kind"] for row in answer["rows"] for mark in row["marks"])
    assert marks == Counter(DiffKind(one["kind"]).name.lower() for one in command)
    again = page.get("/api/diff/job", params={**PLACE, "job_id": answer["job_id"]}).json()
    assert again == answer
    same = page.post("/api/diff", json={**PLACE, "from": "day-0011", "to": "day-0011"}).json()
    assert (same["summary"], same["rows"]) == ("no difference", [])
    gone = page.post("/api/diff", json={**PLACE, "from": "no-such", "to": "active"})
    assert (gone.status_code, gone.json()["code"]) == (404, "FILE_NOT_FOUND")


def test_a_directory_of_a_tree_counts_what_is_below_it() -> None:
    root = diff_tree(
        [
            DiffEntry(DiffKind.DELETED, "a/b/x"),
            DiffEntry(DiffKind.DELETED, "a/b"),
            DiffEntry(DiffKind.RENAMED, "a/c", "old/c"),
            DiffEntry(DiffKind.CREATED, "z"),
        ]
    )
    rows = [
        (row["depth"], row["name"], [tuple(mark.values()) for mark in row["marks"]], row["below"])
        for row in tree_rows(root)
    ]
    assert rows == [
        (0, "a", [], "2 deleted, 1 renamed"),
        (1, "b", [("deleted", "")], "1 deleted"),
        (2, "x", [("deleted", "")], ""),
        (1, "c", [("renamed", "old/c")], ""),
        (0, "z", [("created", "")], ""),
    ]
    assert counts_text(root.below) == "2 deleted, 1 renamed, 1 created"
    deep = diff_tree([DiffEntry(DiffKind.CREATED, "/".join("d" * 3_000))])
    assert encoded(tree_rows(deep)).count(b'"depth"') == 3_000


def test_a_history_covers_all_of_the_time_in_few_points() -> None:
    history = History(most_points=10)
    for moment in range(1_000):
        history.add(moment, {"live": moment})
        assert len(history.points) <= 10
        assert history.points[-1].values == {"live": moment}
        assert history.points[0].at_ms < max(1, moment // 4)
    times = [point.at_ms for point in history.points]
    assert times == sorted(set(times))


def test_bytes_are_texts_and_other_numbers_are_not() -> None:
    value = {"freed_bytes": 2**60, "rows": [{"bytes": 3, "versions": 4}], "is_bytes": None, "name": "\ud800"}
    assert json.loads(encoded(value)) == {
        "freed_bytes": str(2**60),
        "rows": [{"bytes": "3", "versions": 4}],
        "is_bytes": None,
        "name": "?",
    }


def process(
    name: str, *, alive: bool = True, answering: bool = True, lag: float = 0.0, here: bool = True
) -> ProcessStatus:
    return ProcessStatus(
        name, here, 1, alive, answering, "", 0.0, 5 if lag else 0, lag, 0, 0, "" if alive else "It was killed."
    )


@pytest.mark.parametrize(
    ("changed", "what", "command", "is_urgent"),
    [
        ({"processes": (process("snapshots", alive=False),)}, "snapshots does not run", "deepclean status", True),
        ({"processes": (process("snapshots", answering=False),)}, "does not answer", "deepclean status", True),
        (
            {"processes": (process("metadata"), process("streaming", answering=False, here=False))},
            "streaming on another host",
            "",
            True,
        ),
        ({"processes": (process("metadata", lag=90.0),)}, "90 s behind: 5 messages", "deepclean status", False),
        ({"state": "abandoned", "reason": "it was killed"}, "is abandoned: it was killed.", "deepclean status", True),
        ({"suspended_collections": None}, "metadata does not answer", "deepclean status", True),
        (
            {"suspended_collections": (SuspendedCollection(0, "", "stopped", "a hole in the chain"),)},
            "All claims of shard 0 are stopped: a hole in the chain.",
            "deepclean gc resume --chain-is-mended",
            True,
        ),
        (
            {"suspended_collections": (SuspendedCollection(0, "v/b", "tripped", ""),)},
            "The breaker of v/b has tripped.",
            "deepclean breaker reset v/b",
            True,
        ),
        (
            {"suspended_collections": (SuspendedCollection(1, "", "shadow", ""),)},
            "Collection of Shard 1 is shadow.",
            "deepclean gc resume",
            False,
        ),
        ({"dead_letters": 1}, "1 dead letter open", "deepclean dead-letters list", True),
        ({"audits": (LastAudit(0, 9, 0, {"LEAKED": 2}, 1),)}, "2 leaked, 1 figure", "deepclean audit", True),
        ({"newest_backup": ""}, "no backup", "deepclean backup", False),
        ({"newest_backup_age_seconds": 40 * 3_600.0}, "40 hours old", "deepclean backup", False),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said_with_what_to_do(
    changed: dict[str, Any], what: str, command: str, is_urgent: bool
) -> None:
    (found,) = troubles(healthy(**changed))
    assert what in found.what
    assert (found.command, found.is_urgent) == (command, is_urgent)


def test_nothing_is_wrong_with_a_healthy_plane_and_urgent_things_come_first() -> None:
    assert troubles(healthy()) == ()
    assert [one.is_urgent for one in troubles(healthy(newest_backup="", dead_letters=3))] == [True, False]


def test_a_host_without_databases_is_not_asked_for_a_backup() -> None:
    commands_only = (process("page"), process("metadata", here=False))
    assert troubles(healthy(newest_backup="", processes=commands_only)) == ()


def test_a_station_whose_process_is_silent_says_so() -> None:
    status = healthy()
    found = stations({}, status.backlog)
    assert [one.name for one in found] == ["deleted", "first judge", "directories", "second judge", "claim", "freed"]
    assert not any(one.is_answering for one in found)
    assert found[4].waits == "2.0 KiB in 2 versions"


def test_what_is_seen_is_told_with_its_history() -> None:
    plane = PagedPlane()
    plane.fill(2)
    moments = iter(range(100, 10_000, 100))
    plane.watcher.now_ms = lambda: next(moments)
    with caller(plane) as page:
        assert page.get("/api/plane").json() == {"may_act": False}
        plane.watcher.observe()
        plane.watcher.observe()
        plane.watcher.observe()
        seen = page.get("/api/plane").json()
        assert (seen["state"], seen["error"], len(seen["stations"])) == ("running", "", 6)
        points = page.get("/api/history", params=PLACE).json()
        assert len(points) == 2, "buckets are looked at every other time"
        live = plane.client.metadata(0).space(VOLUME, BUCKET, limit=1).live_bytes
        assert points[-1]["live_bytes"] == str(live)
        assert page.get("/api/history").json()[-1]["live_bytes"] == str(live)
        plane.sight.error = NO_PLANE
        plane.watcher.observe()
        assert "start one (deepclean up)" in page.get("/api/plane").json()["error"]


@pytest.mark.parametrize("error", [CredentialsError("the secrets are being written"), RuntimeError("a defect")])
def test_no_error_ends_the_watch(error: Exception) -> None:
    plane = PagedPlane()
    plane.create()
    with caller(plane) as page:
        plane.watcher.observe()
        plane.sight.error = error
        plane.watcher.observe()
        seen = page.get("/api/plane").json()
        assert seen["error"].startswith("The plane cannot be seen: ")
        assert str(error) in seen["error"]
        assert "state" not in seen
        plane.sight.error = None
        plane.watcher.observe()
        assert page.get("/api/plane").json()["error"] == ""


def test_an_old_observation_is_not_shown_as_the_present() -> None:
    plane = PagedPlane()
    moments = [0]
    plane.watcher.now_ms = lambda: moments[0]
    plane.watcher.observe()
    moments[0] = 60_000
    assert plane.watcher.seen()["state"] == "running"
    moments[0] = 61_000
    seen = plane.watcher.seen()
    assert "the last look at it is 61 s ago" in seen["error"]
    assert "state" not in seen


def test_secrets_that_cannot_be_read_are_no_defect_of_the_page(plane: PagedPlane) -> None:
    class Locked(Door):
        def plane(self) -> Plane:
            raise CredentialsError("http-token may be read by others: chmod 600")

    app = page_app(Locked(plane.client), plane.watcher, Rights())
    with TestClient(app, base_url=HOST, raise_server_exceptions=False) as page:
        refused = page.get("/api/bucket", params=PLACE)
    assert (refused.status_code, refused.json()["code"]) == (503, "UNREACHABLE")
    assert "chmod 600" in refused.json()["message"]


def test_a_connection_is_not_closed_while_calls_may_use_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Connection:
        is_closed = False

        def close(self) -> None:
            self.is_closed = True

    files, opened, moments = ["first"], [], [0.0]

    def connected(_: Path) -> Any:
        opened.append(Connection())
        return opened[-1]

    monkeypatch.setattr("services.page.door.running_plane", lambda _: files[0])
    monkeypatch.setattr("services.page.door._key_of", lambda plane: (plane,))
    monkeypatch.setattr("services.page.door.running_client", connected)
    door = HomeDoor(tmp_path, now_seconds=lambda: moments[0])
    assert door.plane() is door.plane()
    files[0] = "started anew"
    door.plane()
    assert [one.is_closed for one in opened] == [False, False], "a call may be under way"
    moments[0] = 1_000.0
    door.plane()
    assert [one.is_closed for one in opened] == [True, False]
    door.close()
    assert [one.is_closed for one in opened] == [True, True]


def test_what_is_not_there_is_refused(page: TestClient) -> None:
    for params, code, status in (
        ({"volume": "no", "bucket": "b"}, "VOLUME_NOT_FOUND", 404),
        ({"volume": VOLUME, "bucket": "no"}, "BUCKET_NOT_FOUND", 404),
        ({"volume": VOLUME}, "INVALID_REQUEST", 400),
    ):
        refused = page.get("/api/bucket", params=params)
        assert (refused.status_code, refused.json()["code"]) == (status, code)
    assert page.get("/api/plan", params={**PLACE, "size": "much"}).status_code == 400
    assert page.get("/static/no.js").status_code == 404
    assert page.get("/static/..%2fapp.py").status_code == 404


def test_hostile_questions_are_refused_and_break_nothing(page: TestClient) -> None:
    values: list[Any] = [None, 5, -1, 10**30, [], {}, ["day-0000", 5], "\ud800", "x" * 100_000, True]
    for value in values:
        for path, body in (
            ("what-if", {**PLACE, "names": value}),
            ("what-if", {"volume": value, "bucket": value, "names": []}),
            ("what-if", {"names": value}),
            ("diff", {**PLACE, "from": value, "to": value}),
        ):
            text = json.dumps(body)
            answer = page.post(f"/api/{path}", content=text, headers={"Content-Type": "application/json"})
            assert answer.status_code < 500, body
            assert answer.headers["content-type"] == "application/json"
        for name in ("size", "num_retained_min", "time_retained", "path", "job_id", "beginning"):
            for path in ("plan", "retention", "diff/job", "explain", "paths"):
                text = str(value).encode("utf-8", "replace").decode()
                assert page.get(f"/api/{path}", params={**PLACE, name: text[:1_000]}).status_code < 500, (path, value)


def test_what_a_reader_gets_wrong_is_named(page: TestClient) -> None:
    for body, sentence in (
        ({**PLACE, "names": "day-0000"}, "names is no list of texts"),
        ({**PLACE, "names": ["day-0000", 5]}, "names is no text"),
        ({"volume": VOLUME, "bucket": None, "names": []}, "bucket is no text"),
        ({"bucket": BUCKET}, "volume is missing"),
    ):
        refused = page.post("/api/what-if", content=json.dumps(body), headers={"Content-Type": "application/json"})
        assert (refused.status_code, refused.json()) == (400, {"code": "INVALID_REQUEST", "message": sentence})


def test_a_defect_of_the_server_is_not_told_as_a_mistake_of_the_reader(
    plane: PagedPlane, page: TestClient, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for broken in (lambda _: float("nan"), lambda _: int("no number")):
        monkeypatch.setattr("services.page.app.bucket_answer", broken)
        failed = page.get("/api/bucket", params=PLACE)
        assert (failed.status_code, failed.json()["code"]) == (500, "INTERNAL_ERROR")
    assert [one.levelname for one in caplog.records if one.name == "services.page.app"] == ["ERROR", "ERROR"]
    assert "no number" in caplog.text


def test_a_small_bucket_is_watched_once_somebody_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    plane = PagedPlane()
    plane.fill(1)
    monkeypatch.setattr("services.page.bucket_list.MOST_READ", 0)
    with caller(plane) as page:
        plane.watcher.observe()
        assert page.get("/api/history", params=PLACE).json() == []
        plane.watcher.observe()
        plane.watcher.observe()
        (point,) = page.get("/api/history", params=PLACE).json()
        assert int(point["live_bytes"]) > 0
        assert "live_bytes" not in page.get("/api/history").json()[-1], "it is not one of the largest"
        answer = page.get("/api/buckets").json()
    assert answer == {"buckets": [], "note": "The plane has further buckets: only the first 0 were compared."}


@pytest.mark.parametrize("volumes", [0, 1, 3, 6])
def test_a_list_compares_a_bounded_number_of_volumes_and_says_so(monkeypatch: pytest.MonkeyPatch, volumes: int) -> None:
    plane = PagedPlane()
    plane.execute(*(CreateVolume(f"vol{number}") for number in range(volumes)))
    monkeypatch.setattr("services.page.bucket_list.MOST_READ", 3)
    found = largest_buckets(plane.client)
    assert (found.count, found.are_all, found.reads) == (0, volumes <= 3, 1 + min(volumes, 3))


def test_a_list_says_whether_all_buckets_of_a_volume_were_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    plane = PagedPlane()
    plane.execute(CreateVolume(VOLUME), *(CreateBucket(VOLUME, f"bucket{number}", LAYOUT) for number in range(3)))
    for most, are_all in ((3, False), (4, True)):
        monkeypatch.setattr("services.page.bucket_list.MOST_READ", most)
        assert (largest_buckets(plane.client).count, largest_buckets(plane.client).are_all) == (most - 1, are_all)


def test_the_largest_buckets_are_found_the_less_often_the_more_reads_it_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    plane = PagedPlane()
    plane.execute(*(CreateVolume(f"vol{number}") for number in range(7)))
    monkeypatch.setattr("services.page.bucket_list.READS_A_TURN", 4)
    listed = BucketList()
    assert listed.read(plane.client, {})[0]["buckets"] == []
    plane.create()
    assert [len(listed.read(plane.client, {})[0]["buckets"]) for _ in range(4)] == [0, 0, 1, 1]


def test_all_who_look_are_answered_from_one_list() -> None:
    plane = PagedPlane()
    plane.fill(1)
    watcher = plane.watcher
    calls: list[None] = []
    watcher.plane = lambda: calls.append(None) or plane.client  # type: ignore[func-returns-value]
    with caller(plane) as page:
        first = page.get("/api/buckets").json()
        assert [one["bucket"] for one in first["buckets"]] == [BUCKET], "it is read when the watch has seen nothing yet"
        watcher.observe()
        for _ in range(3):
            assert page.get("/api/buckets").json() == first
        assert len(calls) == 2
        plane.sight.error = NO_PLANE
        watcher.observe()
        page.get("/api/buckets")
        assert len(calls) == 3, "the list of before is not that of the present"


def test_a_page_of_a_home_without_a_plane_says_so(tmp_path: Path) -> None:
    with serving_page(tmp_path, 0) as served, httpx.Client(base_url=served.url, trust_env=False) as http:
        refused = http.get("/api/buckets")
        assert (refused.status_code, refused.json()["code"]) == (503, "UNREACHABLE")
        assert "start one (deepclean up)" in refused.json()["message"]
        assert http.get("/").status_code == http.get("/readyz").status_code == 200
        assert served.address == f"{served.url}/"
        port = int(served.url.rpartition(":")[2])
        with pytest.raises(ServerError, match=f"port {port} on .* set another --port"), serving_page(tmp_path, port):
            pass
    with serving_page(tmp_path, 0, may_act=True) as served:
        assert served.address == f"{served.url}/#act={served.acts_token}"
        assert len(served.acts_token) >= 32


def test_the_command_refuses_what_cannot_be_served(tmp_path: Path) -> None:
    none = CliRunner().invoke(app, ["--home", str(tmp_path), "page"])
    assert (none.exit_code, none.stderr.startswith("No plane runs on")) == (1, True)
    both = CliRunner().invoke(app, ["--home", str(tmp_path), "page", "--allow-acts", "--open"])
    assert both.exit_code == 2
    assert "--open" in both.stderr


# Strangers


def test_only_the_pages_own_names_are_answered(plane: PagedPlane) -> None:
    with caller(plane) as page:
        for host in ("localhost:9780", "127.0.0.1:9780", "[::1]:9780", "LOCALHOST"):
            assert page.get("/api/plane", headers={"Host": host}).status_code == 200
        for host in ("evil.example", "evil.example:9780", "127.0.0.1.evil.example:9780", ""):
            assert page.get("/api/plane", headers={"Host": host}).status_code == 421
            assert page.get("/", headers={"Host": host}).status_code == 421


def test_another_page_can_neither_ask_nor_act(plane: PagedPlane) -> None:
    body = {**PLACE, "names": ["day-0001"]}
    with caller(plane, ACTING) as page:
        assert page.post("/api/what-if", json=body, headers={"Origin": HOST}).status_code == 200
        for origin in ("http://evil.example", "null", "http://127.0.0.1:1"):
            assert page.post("/api/what-if", json=body, headers={"Origin": origin}).status_code == 403
        for site, status in (("same-origin", 200), ("none", 200), ("cross-site", 403), ("same-site", 403)):
            for path in ("plane", "plan/most", "history"):
                asked = page.get(f"/api/{path}", params=PLACE, headers={"Sec-Fetch-Site": site})
                assert asked.status_code == status
        states = {**PLACE, "from": "day-0001", "to": "active"}
        assert page.get("/api/diff", params=states).status_code == 405, "a picture's address starts no work"
        text = {"Content-Type": "text/plain"}
        assert page.post("/api/what-if", content=json.dumps(body), headers=text).status_code == 415
        assert (
            page.post("/api/what-if", content=b"[1]", headers={"Content-Type": "application/json"}).status_code == 400
        )


def test_every_answer_forbids_foreign_code_and_frames(page: TestClient) -> None:
    for path in ("/", "/static/app.js", "/api/plane", "/api/bucket", "/no/such"):
        headers = page.get(path).headers
        policy = dict(one.strip().split(" ", 1) for one in headers["content-security-policy"].split(";"))
        assert policy["default-src"] == policy["frame-ancestors"] == policy["base-uri"] == "'none'"
        assert policy["script-src"] == policy["connect-src"] == "'self'"
        assert headers["x-content-type-options"] == "nosniff"


def test_a_secured_plane_needs_its_token(plane: PagedPlane) -> None:
    with caller(plane, Rights(lambda: "the-token-of-it")) as page:
        assert page.get("/").status_code == page.get("/static/app.js").status_code == 200, "they hold no data"
        assert page.get("/healthz").status_code == 200
        for path in ("/api/plane", "/api/buckets", "/metrics"):
            assert page.get(path).status_code == 401
            assert page.get(path, headers={"Authorization": "Bearer another"}).status_code == 401
            assert page.get(path, headers={"Authorization": "Bearer the-token-of-it"}).status_code == 200


def test_a_home_that_is_secured_while_its_page_runs_needs_its_token_from_then_on(tmp_path: Path) -> None:
    with serving_page(tmp_path, 0) as served, httpx.Client(base_url=served.url, trust_env=False) as http:
        assert http.get("/api/plane").status_code == 200
        file = BrokerSecurity(tmp_path / DIRECTORY_NAME).token_file
        for token in ("the-first-token-of-it", "another-token-of-it"):
            file.parent.mkdir(exist_ok=True)
            write_secret(file, token)
            assert http.get("/api/plane").status_code == 401
            assert http.get("/api/plane", headers=bearer(token)).status_code == 200
        file.chmod(0o644)
        refused = http.get("/api/plane", headers=bearer(token))
        assert (refused.status_code, refused.json()["code"]) == (503, "UNREACHABLE")
        file.unlink()
        file.parent.rmdir()
        assert http.get("/api/plane").status_code == 401, "what was seen of a secured plane stays secured"


def test_the_page_reports_its_program_as_each_process_does(page: TestClient) -> None:
    names = {family.name for family in text_string_to_metric_families(page.get("/metrics").text)}
    assert BUILD_INFO in names


def test_the_page_counts_its_requests_by_route_and_status(plane: PagedPlane) -> None:
    with caller(plane) as page:
        page.get("/api/plane")
        page.get("/api/bucket", params={"volume": VOLUME, "bucket": "none"})
        page.get("/api/plane", headers={"Host": "elsewhere"})
        page.get("/no/such/file")
        families = text_string_to_metric_families(page.get("/metrics").text)
        counts = {
            (sample.labels["route"], sample.labels["status"]): sample.value
            for family in families
            for sample in family.samples
            if sample.name == f"{REQUESTS_METRIC}_count" and sample.value
        }
    assert counts == {("/api/plane", "200"): 1, ("/api/bucket", "404"): 1, (NO_ROUTE, "421"): 1, (NO_ROUTE, "404"): 1}


class Reads:
    """Reads of a service, each of which is noted by its name."""

    def __init__(self, reads: object, noted: Counter[str]) -> None:
        self._reads = reads
        self._noted = noted

    def __getattr__(self, name: str) -> Any:
        self._noted[name] += 1
        return getattr(self._reads, name)


def test_the_figures_of_a_bucket_take_one_read_each(plane: PagedPlane, monkeypatch: pytest.MonkeyPatch) -> None:
    view, noted = Door(plane.client).view(VOLUME, BUCKET), Counter[str]()
    for service in ("metadata", "snapshots"):
        reads = Reads(getattr(plane.client, service)(0), noted)
        monkeypatch.setattr(plane.client, service, lambda _, reads=reads: reads)
    bucket_answer(view)
    assert noted == dict.fromkeys(("bucket", "space", "collection", "snapshots", "retention_preview"), 1)


@pytest.mark.parametrize("cells", [0, 1, 2, 3, 4, 5])
def test_a_matrix_of_several_pages_is_read_whole(monkeypatch: pytest.MonkeyPatch, cells: int) -> None:
    own = PagedPlane()
    own.create()
    for number in range(cells):  # each overwritten key is held by one snapshot, and by no other
        own.put({f"{number}": KIB})
        own.snapshot(f"number-{number}")
        own.execute(DeleteKey(VOLUME, BUCKET, f"{number}"))
    monkeypatch.setattr("services.client.tasks.space_pages.PAGE_ROWS", 2)
    reads = own.client.metadata(0)
    expected = reads.space(VOLUME, BUCKET, limit=100)
    assert len(expected.cells) == cells
    assert tuple(all_cells(reads, VOLUME, BUCKET)) == expected.cells
    assert {page.held_bytes for page in space_pages(reads, VOLUME, BUCKET)} == {cells * KIB}


def test_the_page_acts_only_with_the_token_that_was_printed(plane: PagedPlane) -> None:
    body = {**PLACE, "names": ["day-0000"], "confirmed_bytes": "1"}
    for rights, headers in (
        (Rights(), {ACTS_HEADER: ""}),
        (Rights(), {ACTS_HEADER: "t"}),
        (ACTING, {}),
        (ACTING, {ACTS_HEADER: "another"}),
    ):
        with caller(plane, rights) as page:
            for act in ("delete-snapshots", "run-retention", "collection"):
                refused = page.post(f"/api/acts/{act}", json=body, headers=headers)
                assert (refused.status_code, refused.json()["code"]) == (403, "PERMISSION_DENIED")


# Acts


@pytest.fixture
def own() -> PagedPlane:
    """A plane of the test's own."""
    plane = PagedPlane()
    plane.fill_eventfully()
    return plane


def acting(plane: PagedPlane) -> TestClient:
    return caller(plane, ACTING, **{ACTS_HEADER: "t"})


def names_of(plane: PagedPlane) -> list[str]:
    return [info.name for info in plane.client.snapshots(0).snapshots(VOLUME, BUCKET)]


def test_snapshots_are_deleted_if_they_free_what_was_confirmed(own: PagedPlane) -> None:
    names = ["day-0000", "day-0001"]
    with acting(own) as page:
        freed = page.post("/api/what-if", json={**PLACE, "names": names}).json()["freed_bytes"]
        own.request(DeleteSnapshot(VOLUME, BUCKET, "day-0002"))
        refused = page.post("/api/acts/delete-snapshots", json={**PLACE, "names": names, "confirmed_bytes": freed})
        assert (refused.status_code, refused.json()["code"]) == (409, "CHANGED")
        assert set(names) <= set(names_of(own)), "nothing was deleted"
        freed = page.post("/api/what-if", json={**PLACE, "names": names}).json()["freed_bytes"]
        done = page.post("/api/acts/delete-snapshots", json={**PLACE, "names": names, "confirmed_bytes": freed})
        assert done.json() == {"message": "2 snapshots deleted.", "refused": []}
        assert not set(names) & set(names_of(own))
        empty = page.post("/api/acts/delete-snapshots", json={**PLACE, "names": [], "confirmed_bytes": "0"})
        assert empty.status_code == 400


def test_a_tagged_snapshot_stays_and_is_named(own: PagedPlane) -> None:
    names = ["day-0000", "day-0003"]
    with acting(own) as page:
        freed = page.post("/api/what-if", json={**PLACE, "names": names}).json()["freed_bytes"]
        done = page.post("/api/acts/delete-snapshots", json={**PLACE, "names": names, "confirmed_bytes": freed}).json()
    assert done["message"] == "1 snapshot deleted."
    (refused,) = done["refused"]
    assert refused.startswith("day-0003: ")
    assert "day-0003" in names_of(own)


def test_a_deletion_that_is_not_answered_hides_nothing_that_was_done(
    own: PagedPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = ["day-0000", "day-0001", "day-0002", "day-0004"]
    with acting(own) as page:
        freed = page.post("/api/what-if", json={**PLACE, "names": names}).json()["freed_bytes"]
        request = own.client.request

        def lossy(shard: int, asked: Any) -> Any:
            if asked.snapshot == "day-0001":
                raise PlaneTimeoutError("no answer in time")
            return request(shard, asked)

        monkeypatch.setattr(own.client, "request", lossy)
        answer = page.post("/api/acts/delete-snapshots", json={**PLACE, "names": names, "confirmed_bytes": freed})
    assert answer.status_code == 200
    assert answer.json() == {
        "message": "1 snapshot deleted.",
        "refused": [
            "day-0001: whether it is deleted is not known (no answer in time). Look again.",
            "Not tried: day-0002, day-0004.",
        ],
    }
    assert {*names[2:]} <= set(names_of(own)), "after an error nothing more is deleted"


def test_retention_runs_if_it_still_expires_what_was_confirmed(own: PagedPlane) -> None:
    with acting(own) as page:
        shown = page.get("/api/retention", params=PLACE).json()
        body = {**PLACE, "names": shown["expired"], "confirmed_bytes": shown["freed_bytes"]}
        for wrong in ({"names": shown["expired"][1:]}, {"confirmed_bytes": "1"}):
            assert page.post("/api/acts/run-retention", json={**body, **wrong}).json()["code"] == "CHANGED"
        done = page.post("/api/acts/run-retention", json=body).json()
    assert done["message"] == f"{len(shown['expired'])} snapshots expired."
    assert not set(shown["expired"]) & set(names_of(own))


def test_collection_is_paused_and_resumed_and_nothing_else(own: PagedPlane) -> None:
    def state() -> CollectionState:
        return own.client.metadata(0).collection(VOLUME, BUCKET)[1].state

    with acting(own) as page:
        for wanted in (CollectionState.PAUSED, CollectionState.RUNNING):
            body = {**PLACE, "state": wanted, "reason": "a test"}
            assert page.post("/api/acts/collection", json=body).status_code == 200
            assert state() is wanted
        for other in ("STOPPED", "no such state"):
            assert page.post("/api/acts/collection", json={**PLACE, "state": other}).status_code == 400
        for wrong in ("1.5", "-1", "9" * 5_000, 7):
            asked: dict[str, Any] = {**PLACE, "names": ["day-0000"], "confirmed_bytes": wrong}
            assert page.post("/api/acts/delete-snapshots", json=asked).status_code == 400


# Files


def test_every_file_of_the_page_is_used_and_none_is_from_elsewhere() -> None:
    texts = {name: asset(name) for name in asset_names()}
    everything = "".join(texts.values()) + "picture.js lens.js"
    for name, text in texts.items():
        assert name == "index.html" or name in everything.replace(text, "", 1) or name == "lens.js", name
        assert "http://" not in text.replace("http://www.w3.org/2000/svg", ""), name
        assert "https://" not in text, name
    page = texts["index.html"]
    modules = {name for name in texts if name.endswith(".js")} - {"lens.js", "app.js"}
    assert modules == {name for name in modules if f'modulepreload" href="/static/{name}"' in page}


def test_inlined_scripts_import_and_export_nothing() -> None:
    text = inlined("elements.js", "matrix.js", "picture.js", "lens.js")
    assert "export " not in text
    assert "\nimport " not in text
    assert "class Picture" in text
