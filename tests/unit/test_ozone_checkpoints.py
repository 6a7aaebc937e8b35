"""Checkpoints of an Ozone Manager: what is put together from a tar file, and what is refused."""

from __future__ import annotations

import base64
import bz2
import errno
import gzip
import io
import lzma
import socket
import tarfile
from collections.abc import Callable
from pathlib import Path
from random import Random

import httpx
import pytest

from services.lens.ozone.layout import OzoneLocationError
from services.lens.ozone.location import COMPLETE
from streaming.lens.ozone import checkpoints
from streaming.lens.ozone.checkpoints import LINKS, fetched, unpacked


def archive(directory: Path, links: bytes, **files: bytes) -> Path:
    """A checkpoint as ``/v2/dbCheckpoint`` sends it."""
    path = directory / "checkpoint.tar"
    with tarfile.open(path, "w") as tar:
        for name, content in {COMPLETE: b"", LINKS: links, **files}.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return path


def test_links_may_be_named_twice_and_end_with_a_line_or_without(tmp_path: Path) -> None:
    links = b"om.db/CURRENT\tc\nom.db/CURRENT\tc\n\ndb.snapshots/one/1.sst\ts"
    found = unpacked(archive(tmp_path, links, c=b"MANIFEST", s=b"rows"), tmp_path)
    assert (found / "om.db" / "CURRENT").read_bytes() == b"MANIFEST"
    assert (found / "db.snapshots" / "one" / "1.sst").read_bytes() == b"rows"


@pytest.mark.parametrize(
    ("links", "sentence"),
    [
        (b"om.db/CURRENT\t../secret", r"names \.\./secret, which is outside of it: do not trust it"),
        (b"om.db/CURRENT\t%(secret)s", "which is outside of it: do not trust it"),
        (b"../om.db/CURRENT\tc", r"names \.\./om\.db/CURRENT, which is outside of it"),
        (b"%(secret)s\tc", "which is outside of it"),
        (b"om.db/CURRENT\tnothing", "has no nothing, which its hardLinkFile names: fetch it again"),
        (b"om.db/CURRENT", "has a damaged hardLinkFile: fetch it again"),
        (b"om.db/CURRENT\tc\tc", "has a damaged hardLinkFile"),
        (b"om.db/CURRENT\t\xff\xfe", "has a damaged hardLinkFile"),
    ],
)
def test_links_that_are_damaged_or_lead_elsewhere(tmp_path: Path, links: bytes, sentence: str) -> None:
    """The archive may come from anybody: neither does it read a file of this machine, nor write one."""
    secret, scratch = tmp_path / "secret", tmp_path / "scratch"
    secret.write_text("of this machine")
    scratch.mkdir()
    (scratch.parent / "scratch" / "secret").write_text("of this machine")
    made = archive(tmp_path, links.replace(b"%(secret)s", str(secret).encode()), c=b"MANIFEST")
    with pytest.raises(OzoneLocationError, match=sentence):
        unpacked(made, scratch)
    assert not (tmp_path / "om.db").exists()
    assert secret.read_text() == "of this machine"


@pytest.mark.parametrize("files", [{"om.db": b"no directory"}, {"c": b"", "db.snapshots": b"no directory"}])
def test_a_file_where_a_directory_has_to_be(tmp_path: Path, files: dict[str, bytes]) -> None:
    links = b"db.snapshots/one\tc" if "c" in files else b""
    with pytest.raises(OzoneLocationError, match=r"cannot be unpacked \(.*exists"):
        unpacked(archive(tmp_path, links, **files), tmp_path)


@pytest.mark.parametrize("name", [b"a\0b", b"n" * 300])
def test_names_that_no_file_can_have(tmp_path: Path, name: bytes) -> None:
    with pytest.raises(OzoneLocationError, match="fetch or copy it again"):
        unpacked(archive(tmp_path, name + b"\tc", c=b""), tmp_path)


def test_a_member_that_leads_outside(tmp_path: Path) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    with pytest.raises(OzoneLocationError, match=r"names \.\./\.\./x, which is outside of it: do not trust it"):
        unpacked(archive(tmp_path, b"", **{"../../x": b""}), scratch)


@pytest.mark.parametrize("compressed", [gzip.compress, bz2.compress, lzma.compress])
@pytest.mark.parametrize("is_cut", [True, False])
def test_a_damaged_archive(tmp_path: Path, compressed: Callable[[bytes], bytes], is_cut: bool) -> None:
    """Random letters are compressed, so that a wrong byte is noticed before the checksum at the end."""
    letters = base64.b64encode(Random(1).randbytes(300_000))
    whole = compressed(archive(tmp_path, b"", c=letters).read_bytes())
    half = len(whole) // 2
    damaged = tmp_path / "damaged.tar"
    damaged.write_bytes(whole[:half] if is_cut else whole[:half] + bytes(900) + whole[half + 900 :])
    with pytest.raises(OzoneLocationError, match="fetch or copy it again"):
        unpacked(damaged, tmp_path)


def test_a_full_disk_is_no_damaged_archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(tarfile.TarFile, "extractall", full)
    with pytest.raises(OzoneLocationError, match=r"\(No space left on device\): .* TMPDIR names another one"):
        unpacked(archive(tmp_path, b"", c=b""), tmp_path)


@pytest.mark.parametrize(
    ("status", "sentence"),
    [(403, "wants an administrator"), (503, "is not the leader"), (500, "look into its log"), (599, "answered 599")],
)
def test_an_answer_that_is_no_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, status: int, sentence: str
) -> None:
    client = httpx.Client(transport=httpx.MockTransport(lambda _: httpx.Response(status)))
    monkeypatch.setattr(httpx, "stream", client.stream)
    with pytest.raises(OzoneLocationError, match=sentence):
        fetched("http://om:9874", tmp_path)


def test_an_address_that_is_none(tmp_path: Path) -> None:
    with pytest.raises(OzoneLocationError, match="This is no address"):
        fetched("http://om:98x", tmp_path)


def test_a_manager_that_accepts_and_sends_nothing_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoints, "TIMEOUT_SECONDS", 0.05)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"http://127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(OzoneLocationError, match=r"sent nothing for 0\.05 seconds after it was asked"):
            fetched(address, tmp_path)
