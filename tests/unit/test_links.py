"""Snapshots, tags and questions about space through a link: they are those of the bucket."""

from __future__ import annotations

from pathlib import Path

import pytest

from schemas.records import CreateBucketLink, CreateVolume
from services.client.errors import PlaneError
from services.client.tasks.links import bucket_of_link
from services.plane.in_memory.client import InMemoryClient
from services.plane.in_memory.plane import InMemoryPlane
from tests.unit.test_command_line import CommandLine

LINK, BUCKET = "vol2/link", "vol1/tree"


@pytest.fixture
def linked(tmp_path: Path) -> CommandLine:
    """A plane with a bucket and a link to it in another volume of the same shard."""
    line = CommandLine(tmp_path, 1)
    for volume in ("vol1", "vol2"):
        line.run("volume", "create", volume)
    line.run("bucket", "create", BUCKET)
    line.run("key", "put", f"{BUCKET}/k", "--size", "1000")
    line.run("snapshot", "create", BUCKET, "before")
    line.run("bucket", "link", LINK, BUCKET)
    return line


def test_snapshots_through_a_link_are_those_of_the_bucket(linked: CommandLine) -> None:
    linked.run("snapshot", "create", LINK, "through")
    linked.run("key", "put", f"{LINK}/k", "--size", "2000")
    assert linked.run("snapshot", "create", BUCKET, "through", status=1).startswith("FILE_ALREADY_EXISTS: ")
    names = [row["name"] for row in linked.json("snapshot", "list", LINK)]
    assert names == ["before", "through"] == [row["name"] for row in linked.json("snapshot", "list", BUCKET)]
    info = linked.json("snapshot", "info", LINK, "through")
    assert (info["volume"], info["bucket"]) == ("vol1", "tree")
    assert linked.json("snapshot", "diff", LINK, "through", "active") == linked.json(
        "snapshot", "diff", BUCKET, "through", "active"
    )
    linked.run("snapshot", "delete", "--yes", LINK, "through")
    assert [row["name"] for row in linked.json("snapshot", "list", BUCKET)] == ["before"]


def test_a_snapshot_that_is_older_than_the_link_is_read_through_it(linked: CommandLine) -> None:
    linked.run("key", "delete", f"{LINK}/k")
    (listed,) = linked.json("key", "list", LINK, "--snapshot", "before")
    assert (listed["path"], listed["size_bytes"]) == ("k", 1000)
    assert linked.json("key", "stat", f"{LINK}/k", "--snapshot", "before")["size_bytes"] == 1000
    linked.run("restore", f"{LINK}/k", "--from", "before")
    assert [row["path"] for row in linked.json("key", "list", BUCKET)] == ["k"]


def test_tags_consumers_and_policies_of_a_link_are_those_of_the_bucket(linked: CommandLine) -> None:
    linked.run("tag", "create", LINK, "before", "audit")
    linked.run("consumer", "set", LINK, "reader", "--next", "before")
    linked.run("retention", "set", LINK, "--num-retained-min", "1")
    for place in (LINK, BUCKET):
        assert [row["tag"] for row in linked.json("tag", "list", place)] == ["audit"]
        assert [row["consumer"] for row in linked.json("consumer", "list", place)] == ["reader"]
        assert linked.json("retention", "show", place)["policy"]["num_retained_min"] == 1
        assert linked.json("retention", "preview", place)["expired"] == []


def test_space_and_explanations_of_a_link_are_those_of_the_bucket(linked: CommandLine) -> None:
    linked.run("key", "delete", f"{LINK}/k")
    for command in (("space", "what-if", "{}", "before"), ("space", "plan", "{}", "--free", "1"), ("explain", "{}/k")):
        through, direct = (linked.json(*(part.format(place) for part in command)) for place in (LINK, BUCKET))
        assert through == direct
    assert linked.json("space", "what-if", LINK, "before")["freed_bytes"] == 1000


def test_a_missing_bucket_keeps_its_names_and_a_loop_is_refused() -> None:
    plane = InMemoryClient(InMemoryPlane())
    for command in (
        CreateVolume("vol"),
        CreateBucketLink("vol", "one", "vol", "two"),
        CreateBucketLink("vol", "two", "vol", "one"),
    ):
        assert not plane.answer(0, plane.submit(0, command)).error
    assert bucket_of_link(plane, 0, "vol", "none") == ("vol", "none")
    assert bucket_of_link(plane, 0, "none", "none") == ("none", "none")
    with pytest.raises(PlaneError, match="round in a circle") as caught:
        bucket_of_link(plane, 0, "vol", "one")
    assert caught.value.code == "DETECTED_LOOP_IN_BUCKET_LINKS"
