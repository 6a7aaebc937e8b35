"""No listing ends silently: reads without a limit are whole, and a command that stops at its limit says so."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import httpx
import pytest
from typer.testing import CliRunner, Result

from schemas.answers import DiffJob, DiffStatus
from schemas.records import BucketLayout, CreateBucket, CreateVolume, DeleteKeys, PutKey, VolumeRow
from services.cli.main import app
from services.cli.session import Session
from services.client.errors import PlaneError
from services.client.plane import NamespaceCommand
from services.client.tasks.diffs import diff
from services.client.wire import http_reads, http_space_reads, paging
from services.client.wire.http_reads import HttpMetadataReads, HttpShard, HttpSnapshotReads
from services.client.wire.http_space_reads import HttpSpaceReads
from services.plane.in_memory.client import InMemoryClient
from services.plane.in_memory.plane import InMemoryPlane

KEYS = 1_203
"""More than the thousand that a page has, when nobody says how many."""


@pytest.fixture(scope="module")
def client() -> InMemoryClient:
    """A plane with many keys in directories of their own, and as many that were deleted."""
    client = InMemoryClient(InMemoryPlane(undo_window_ms=10**9))
    commands: list[NamespaceCommand] = [CreateVolume("vol")]
    commands.append(CreateBucket("vol", "tree", BucketLayout.FILE_SYSTEM_OPTIMIZED))
    commands += [PutKey("vol", "tree", f"d{number:04}/key", 1) for number in range(KEYS)]
    commands += [PutKey("vol", "tree", f"deleted-{number:04}", 1) for number in range(KEYS)]
    gone = [f"deleted-{number:04}" for number in range(KEYS)]
    numbers = [client.submit(0, command) for command in commands]
    numbers += [client.submit(0, DeleteKeys("vol", "tree", tuple(gone[start : start + 1_000]))) for start in (0, 1_000)]
    assert {client.answer(0, number).error for number in numbers} == {""}
    return client


def run(client: InMemoryClient, *words: str) -> Result:
    result = CliRunner().invoke(app, list(words), obj=Session(Path("nowhere"), client))
    assert result.exit_code == 0, result.output
    return result


@pytest.mark.parametrize("words", [("key", "list"), ("dir", "list"), ("deleted", "list")])
@pytest.mark.parametrize("as_json", [False, True])
def test_a_command_says_that_there_is_more_and_how_to_go_on(
    words: tuple[str, str], as_json: bool, client: InMemoryClient
) -> None:
    flags = ("--json",) if as_json else ()

    def rows(result: Result) -> int:
        return len(json.loads(result.stdout)) if as_json else len(result.stdout.splitlines()) - 1

    first = run(client, *words, "vol/tree", *flags)
    assert rows(first) == 1_000
    assert first.stderr.startswith("There are more entries: --start-after ")
    assert first.stderr.endswith("--all lists everything.\n")
    rest = run(client, *words, "vol/tree", "--start-after", first.stderr.split()[5], *flags)
    assert (rows(rest), rest.stderr) == (KEYS - 1_000, "")
    whole = run(client, *words, "vol/tree", "--all", *flags)
    assert (rows(whole), whole.stderr) == (KEYS, "")
    exactly = run(client, *words, "vol/tree", "--limit", str(KEYS), *flags)
    assert (rows(exactly), exactly.stderr) == (KEYS, "")
    assert run(client, *words, "vol/tree", "--limit", str(KEYS - 1), *flags).stderr.startswith("There are more")


def test_reads_without_a_limit_are_whole(client: InMemoryClient) -> None:
    reads = client.metadata(0)
    assert len(reads.entries("vol", "tree")) == 2 * KEYS
    assert len(reads.deleted("vol", "tree")) == KEYS
    assert len(reads.entries("vol", "tree", limit=7)) == 7


def served(answers: Iterator[Any]) -> tuple[HttpShard, list[dict[str, str]]]:
    """A shard that gives these answers in turn, and what it was asked."""
    asked: list[dict[str, str]] = []

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append(dict(request.url.params))
        return httpx.Response(200, json=next(answers))

    http = httpx.Client(transport=httpx.MockTransport(answer))
    return HttpShard(http, "metadata", "http://somewhere", 0), asked


def test_reads_over_http_go_on_to_the_last_page(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paging, "PAGE_ROWS", 2)
    monkeypatch.setattr(http_reads, "MAX_PAGE_ROWS", 2)
    volumes = [asdict(VolumeRow(1, name, "", 0, 1)) for name in "abc"]
    shard, asked = served(iter([volumes[:2], volumes[2:]]))
    assert [row.volume for row in HttpMetadataReads(shard).volumes()] == ["a", "b", "c"]
    assert [(one["start_after"], one["limit"]) for one in asked] == [("", "2"), ("b", "2")]
    shard, asked = served(iter([[], []]))
    assert HttpSnapshotReads(shard).dead_letters() == []
    assert HttpMetadataReads(shard).volumes(limit=5) == []
    assert [one["limit"] for one in asked] == ["2", "5"]


def _spaces(txn: int, *txns: int) -> dict[str, Any]:
    space = dict.fromkeys(
        (
            "creation_time_ms", "referenced_bytes", "held_bytes", "exclusive_bytes", "exclusive_versions",
            "shared_with_previous_bytes", "shared_with_next_bytes", "oldest_sharer", "newest_sharer",
        ),
        0,
    )  # fmt: skip
    flags = dict.fromkeys(("is_referenced_exact", "is_exclusive_exact", "is_shared_with_next_exact"), True)
    rows = [{"snapshot_id": str(one), "txn": one, **space, **flags} for one in txns]
    return {"txn": txn, "chain_version": 1, "snapshots": rows}


def test_sizes_of_many_snapshots_are_of_one_txn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_space_reads, "MAX_PAGE_ROWS", 2)
    changed = [_spaces(9, 1, 2), _spaces(10, 3)]
    shard, asked = served(iter([*changed, _spaces(10, 1, 2), _spaces(10, 3)]))
    spaces = HttpSpaceReads(shard).snapshot_spaces("vol", "tree")
    assert (spaces.txn, [one.txn for one in spaces.snapshots]) == (10, [1, 2, 3])
    assert [one["start_after"] for one in asked] == ["0", "2"] * 2
    shard, _ = served(iter(changed * http_space_reads.MAX_ATTEMPTS))
    with pytest.raises(PlaneError, match="has more than 2 snapshots"):
        HttpSpaceReads(shard).snapshot_spaces("vol", "tree")


def test_a_diff_that_ends_too_soon_is_an_error(client: InMemoryClient, monkeypatch: pytest.MonkeyPatch) -> None:
    reads = client.metadata(0)
    done = DiffJob("job", "vol", "tree", "", "", DiffStatus.DONE, 0, entry_count=3)
    monkeypatch.setattr(type(reads), "ask_for_diff", lambda *_args, **_names: done)
    monkeypatch.setattr(type(reads), "diff_entries", lambda *_args, **_names: [])
    with pytest.raises(PlaneError, match="0 entries of the 3"):
        diff(reads, "vol", "tree")


@pytest.mark.parametrize(
    "words",
    [
        ("explain", "vol/tree/a", "--bucket", "vol/tree"),
        ("ledger", "list", "vol/tree", "--shard", "0"),
        ("ledger", "list", "vol/tree", "--bucket-id", "7"),
        ("audit", "--repair-rows", "10"),
        ("audit", "--bucket", "vol/tree", "--shard", "0"),
    ],
)
def test_an_option_that_would_be_ignored_is_refused(words: tuple[str, ...], client: InMemoryClient) -> None:
    result = CliRunner().invoke(app, list(words), obj=Session(Path("nowhere"), client))
    assert result.exit_code == 2, result.output
