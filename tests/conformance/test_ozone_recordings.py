"""What a real Ozone 2.2.0 freed after snapshots were dropped is what the lens foretells, block by block.

Each recording is an Ozone Manager's database before the drop, and what Ozone's services then had deleted because of
it, and what they would have deleted anyway.
"""

from __future__ import annotations

import json
import lzma
import tarfile
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from typing import Any, ClassVar

import pytest

from services.lens.ozone.layout import OzoneLocationError
from streaming.lens.ozone.checkpoints import fetched, unpacked
from tests.ozone_reading import Read

RECORDINGS = Path(__file__).parents[1] / "lens_samples" / "recordings"
NAMES = sorted(file.name.removesuffix(".expected.json") for file in RECORDINGS.glob("*.expected.json"))
CHECKPOINTS = ("g003-dbCheckpoint.tar.xz", "g003-v2-dbCheckpoint.tar.xz")


def foretold(found: Read, bucket: str, dropped: list[str]) -> tuple[dict[str, int], dict[str, int]]:
    """The blocks with their lengths that go because of a drop, and those that go anyway."""
    plan = found.bucket(bucket)
    snapshots = [plan.stores[number].snapshot for number in plan.held_places]
    places = {place for place, snapshot in enumerate(snapshots) if snapshot is not None and snapshot.name in dropped}
    blocks = found.blocks(bucket)
    because = {name: size for name, (size, held) in blocks.items() if held and held <= places}
    return because, {name: size for name, (size, held) in blocks.items() if not held}


def expected(name: str) -> dict[str, Any]:
    said: dict[str, Any] = json.loads((RECORDINGS / f"{name}.expected.json").read_text("utf-8"))
    return said


def check(found: Read, said: dict[str, Any]) -> int:
    """Compare all buckets; the number of blocks that went because of the drop."""
    count = 0
    for bucket, one in said["buckets"].items():
        because, anyway = foretold(found, bucket, one["dropped"])
        assert set(because) == {block for block, _, _ in one["freed_blocks_because_of_drop"]}, bucket
        assert set(anyway) == {block for block, _, _ in one["freed_without_drop_blocks"]}, bucket
        # The sizes that Ozone hands on: a block that was allocated and never written has one, too.
        assert sum(because.values()) == one["told_scm_bytes_because_of_drop"], bucket
        assert sum(anyway.values()) == one["told_scm_bytes_without_drop"], bucket
        count += len(because)
    return count


def test_there_are_a_dozen_recordings() -> None:
    assert len(NAMES) >= 12
    assert sum(len(one["dropped"]) for name in NAMES for one in expected(name)["buckets"].values()) > 12


@pytest.mark.long
@pytest.mark.parametrize("name", NAMES)
def test_what_a_real_ozone_freed_was_foretold(name: str, tmp_path: Path) -> None:
    with tarfile.open(RECORDINGS / f"{name}.tar.xz") as archive:
        archive.extractall(tmp_path / "om", filter="data")
    check(Read(tmp_path / "om", tmp_path / "scratch"), expected(name))


@pytest.mark.parametrize("name", CHECKPOINTS)
def test_a_checkpoint_is_put_together(name: str, tmp_path: Path) -> None:
    """The bodies that the two endpoints of a running Ozone Manager sent."""
    directory = unpacked(RECORDINGS / name, tmp_path)
    assert check(Read(directory, tmp_path / "scratch"), expected("g003")) > 0


class OzoneManager(BaseHTTPRequestHandler):
    """Answers as a running Ozone Manager does; a release before 2.2 has one of the two endpoints."""

    bodies: ClassVar[dict[str, bytes]] = {}
    status = 200

    def do_GET(self) -> None:
        path, _, query = self.path.partition("?")
        body = self.bodies.get(path) if "includeSnapshotData=true" in query else None
        self.send_response(404 if body is None else self.status)
        self.end_headers()
        self.wfile.write(body or b"")

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture
def ozone_manager() -> Iterator[str]:
    OzoneManager.bodies, OzoneManager.status = {}, 200
    with HTTPServer(("127.0.0.1", 0), OzoneManager) as server:
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()
        thread.join()


class TestARunningOzoneManager:
    @pytest.mark.parametrize("endpoint", ["/v2/dbCheckpoint", "/dbCheckpoint"])
    def test_its_checkpoint_is_fetched(self, ozone_manager: str, endpoint: str, tmp_path: Path) -> None:
        OzoneManager.bodies[endpoint] = lzma.decompress(
            (RECORDINGS / CHECKPOINTS[endpoint.startswith("/v2")]).read_bytes()
        )
        archive = fetched(ozone_manager, tmp_path)
        assert archive.read_bytes() == OzoneManager.bodies[endpoint]
        assert (unpacked(archive, tmp_path) / "om.db" / "CURRENT").is_file()

    @pytest.mark.parametrize(
        ("status", "said"), [(403, "wants an administrator"), (503, "not the leader"), (500, "log")]
    )
    def test_a_refusal_is_explained(self, ozone_manager: str, status: int, said: str, tmp_path: Path) -> None:
        OzoneManager.bodies["/v2/dbCheckpoint"], OzoneManager.status = b"no", status
        with pytest.raises(OzoneLocationError, match=said):
            fetched(ozone_manager, tmp_path)

    def test_another_server_is_no_ozone_manager(self, ozone_manager: str, tmp_path: Path) -> None:
        with pytest.raises(OzoneLocationError, match="has no /v2/dbCheckpoint and no /dbCheckpoint"):
            fetched(ozone_manager, tmp_path)
        with pytest.raises(OzoneLocationError, match="did not send a checkpoint"):
            fetched("http://127.0.0.1:1", tmp_path)


@pytest.mark.parametrize("name", CHECKPOINTS)
def test_a_checkpoint_that_is_cut_short_or_not_complete_is_refused(name: str, tmp_path: Path) -> None:
    content = (RECORDINGS / name).read_bytes()
    cut = tmp_path / "cut.tar.xz"
    cut.write_bytes(content[: len(content) // 2])
    with pytest.raises(OzoneLocationError, match=r"cut\.tar\.xz is cut short"):
        unpacked(cut, tmp_path)
    part = tmp_path / "part.tar"
    with tarfile.open(RECORDINGS / name) as whole, tarfile.open(part, "w") as target:
        for member in whole:
            if member.name != "OZONE_RATIS_SNAPSHOT_COMPLETE":
                target.addfile(member, whole.extractfile(member))
    (tmp_path / "other").mkdir()
    with pytest.raises(OzoneLocationError, match="only a part of a checkpoint"):
        unpacked(part, tmp_path / "other")
