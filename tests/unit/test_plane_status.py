"""How a plane does, as two scrapes of each process and its disk tell."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from prometheus_client import CollectorRegistry, Counter, Gauge, start_http_server
from prometheus_client.samples import Sample

from schemas.codec import codec
from schemas.records import (
    BucketLayout,
    CollectionState,
    CreateBucket,
    CreateVolume,
    MetadataCommand,
    SetCollection,
    StopClaims,
)
from schemas.topics import METADATA_COMMANDS
from services.cli.operate.status import MOST_SUSPENDED, collection_fields
from services.metadata.reads import http_api
from services.plane.in_memory.client import InMemoryClient
from services.plane.in_memory.plane import InMemoryPlane
from services.plane.machine.processes import ProcessIdentity, identify
from services.plane.stack.plane_file import PlaneProcess
from services.plane.upkeep.status import (
    Backlog,
    Reported,
    Scrape,
    Scrapes,
    SuspendedCollection,
    backlog,
    disk_use,
    process_status,
    reported,
    scrape,
    suspended_collections,
    throughput,
)
from services.wording.figures import time_text
from tests.contract.test_http_reads import serving


@pytest.fixture
def served() -> Iterator[str]:
    """A process that reports a little."""
    registry = CollectorRegistry()
    applied = Counter("deepclean_messages_applied_total", "…", ["service", "shard", "topic"], registry=registry)
    lag = Gauge("deepclean_input_lag_seconds", "…", ["service", "shard", "topic"], registry=registry)
    for shard, messages in enumerate((30, 12)):
        applied.labels("metadata", str(shard), "metadata.commands").inc(messages)
        lag.labels("metadata", str(shard), "metadata.commands").set(messages)
    server, thread = start_http_server(0, "127.0.0.1", registry)
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()
    thread.join()


def test_a_process_is_scraped_twice_and_one_that_has_ended_is_silent(served: str) -> None:
    urls = {"metadata": served, "snapshots": "http://127.0.0.1:1"}
    with httpx.Client() as http:
        before, now = ({name: {url: scrape(http, url)} for name, url in urls.items()} for _ in range(2))
    found = reported(before, now, urls)
    alive = PlaneProcess(identify(os.getpid()), served, "")
    metadata = process_status("metadata", alive, "", found["metadata"])
    assert (metadata.is_answering, metadata.lag_seconds, metadata.messages_per_second) == (True, 30.0, 0.0)
    assert found["metadata"].total("deepclean_messages_applied_total") == 42
    assert found["metadata"].total("deepclean_messages_applied_total", shard="1") == 12
    ended = PlaneProcess(ProcessIdentity(8, "never"), "", "", restarts=3, reason="it was killed")
    snapshots = process_status("snapshots", ended, "", found["snapshots"])
    assert (snapshots.is_answering, snapshots.lag_messages, snapshots.dead_letters) == (False, 0, 0)
    assert (snapshots.is_alive, snapshots.restarts, snapshots.reason) == (False, 3, "it was killed")


def scrapes(name: str, before: float, now: float, **labels: str) -> Reported:
    """A metric that went from one value to another within two seconds."""
    first, second = (Scrape(at, (Sample(name, labels, value),)) for at, value in ((10.0, before), (12.0, now)))
    return Reported(first, second)


def test_rates_are_per_second_and_a_restarted_process_has_none() -> None:
    found = {
        "metadata": scrapes("deepclean_messages_applied_total", 100, 300),
        "streaming": scrapes("deepclean_streaming_entries_judged_total", 50, 10),
        "mock_scm": scrapes("deepclean_mock_scm_groups_total", 0, 8, outcome="deleted"),
    }
    rates = throughput(found)
    assert (rates.commands_applied, rates.entries_judged, rates.groups_deleted) == (100.0, 0.0, 4.0)
    assert throughput({}).commands_applied == 0.0


def test_processes_of_a_name_on_other_hosts_count_too_and_a_silent_one_takes_nothing_away() -> None:
    def scraped(at: float, name: str, **urls: float) -> Scrapes:
        found = {url: Scrape(at, (Sample(name, {}, value),)) for url, value in urls.items()}
        return {"metadata": {"here": None, **found}}

    applied = "deepclean_messages_applied_total"
    urls = {"metadata": "one"}
    found = reported(scraped(10.0, applied, one=100, two=50), scraped(12.0, applied, one=110, two=90, three=70), urls)
    assert found["metadata"].rate(applied) == 5 + 20, "what was scraped once has no rate"
    assert found["metadata"].total(applied) == 270
    assert found["metadata"].largest(applied) == 110
    assert found["metadata"].alone.total(applied) == 110
    assert set(found["metadata"].others) == {"here", "two", "three"}
    found = reported({}, scraped(12.0, applied, two=90), urls)
    assert (found["metadata"].now, found["metadata"].total(applied), found["metadata"].rate(applied)) == (None, 90, 0)


def test_a_plane_without_metadata_still_has_a_backlog_by_age() -> None:
    waiting = backlog({"snapshots": scrapes("deepclean_input_lag_seconds", 1, 3.5)}, ["http://127.0.0.1:1"] * 2)
    assert waiting == Backlog(3.5, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0)


def test_the_disk_is_counted_by_what_it_holds(tmp_path: Path) -> None:
    (tmp_path / "broker" / "records").mkdir(parents=True)
    (tmp_path / "broker" / "records" / "log").write_bytes(b"x" * 100_000)
    with (tmp_path / "broker" / "records" / "index").open("wb") as index:
        index.truncate(50_000_000)  # a hole takes nothing
    use = disk_use({"metadata": scrapes("deepclean_checkpoints", 0, 3)}, tmp_path)
    assert use.log_bytes is not None
    assert 100_000 <= use.log_bytes < 1_000_000
    assert (use.checkpoints, use.spark_bytes) == (3, None), "the job's checkpoint is elsewhere"
    assert use.free_bytes > 0


def test_what_is_stopped_paused_or_tripped_is_said_and_why_and_what_ends_it() -> None:
    plane = InMemoryPlane(shards=2)
    client, encoder = InMemoryClient(plane), codec(MetadataCommand)
    client.answer(1, client.submit(1, CreateVolume("sales")))
    client.answer(1, client.submit(1, CreateBucket("sales", "reports", BucketLayout.OBJECT_STORE)))
    stop = MetadataCommand(0, "", 0, StopClaims("snapshots: two rows follow one"), "snapshots")
    stores = {shard: plane.processes["metadata", shard].store for shard in range(2)}
    with serving(http_api.routes(stores)) as address:
        assert suspended_collections([address] * 2) == ()
        paused = SetCollection("sales", "reports", CollectionState.PAUSED, "who deleted this?")
        assert client.answer(1, client.submit(1, paused)).error == ""
        plane.log.append(METADATA_COMMANDS.name, 0, encoder.encode_message(stop))
        while plane.step():
            pass
        found = suspended_collections([address] * 2)
        client.answer(0, client.submit(0, SetCollection("", "", CollectionState.RUNNING, "mended", ends_stop=True)))
        after = suspended_collections([address] * 2)
    assert found is not None
    assert found == (
        SuspendedCollection(0, "", "stopped", "snapshots: two rows follow one", found[0].since_ms),
        SuspendedCollection(1, "sales/reports", "paused", "who deleted this?", found[1].since_ms),
    )
    assert after == found[1:]
    assert all(one.since_ms > 0 for one in found)
    assert suspended_collections(["http://127.0.0.1:1"] * 2) is None
    end = "(once that is mended: deepclean gc resume --chain-is-mended)"
    assert collection_fields(found)[:2] == [
        ("all of shard 0", f"stopped since {time_text(found[0].since_ms)}: snapshots: two rows follow one {end}"),
        ("sales/reports", f"paused since {time_text(found[1].since_ms)}: who deleted this?"),
    ]


def test_collection_is_running_not_known_or_cut_after_so_many_lines() -> None:
    assert collection_fields(()) == [("running", "")]
    assert collection_fields(None) == [("not known", "metadata does not answer")]
    many = tuple(SuspendedCollection(0, f"sales/{number}", "tripped", "") for number in range(MOST_SUSPENDED + 3))
    fields = collection_fields(many)
    assert len(fields) == MOST_SUSPENDED + 1
    assert fields[-1] == ("and 3 more", "deepclean gc status: what waits, and how to resume")
