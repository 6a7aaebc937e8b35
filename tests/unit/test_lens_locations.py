"""Wrong locations of ``deepclean lens ozone`` and ``deepclean lens git``: one sentence each, before Spark starts."""

from __future__ import annotations

import gzip
import http.server
import os
import shutil
import socket
import tarfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from typer.testing import CliRunner

from services.cli.main import app
from services.lens.ozone import location as locations
from services.lens.ozone.layout import OzoneLocationError, directories_at
from services.lens.ozone.location import check_location
from tests.git_builder import git
from tests.ozone_databases import OzoneDatabase, key_info


def refused(*words: object) -> str:
    result = CliRunner().invoke(app, ["lens", *map(str, words), "space"])
    assert result.exit_code == 1, result.output
    assert "starting Spark" not in result.stderr
    return result.stderr


def database(directory: Path, *, has_snapshot: bool = True) -> Path:
    made = OzoneDatabase(directory)
    bucket = made.bucket("b", 2)
    made.live(bucket, key_info(bucket, "k", 3, [(1, 5)]))
    if has_snapshot:
        made.snapshot(bucket, "s1", 4, 1)
    return made.close()


def archive_of(directory: Path, file: Path) -> Path:
    with tarfile.open(file, "w") as tar:
        tar.add(directory, "copy")
    return file


@contextmanager
def answering(status: int) -> Iterator[str]:
    """The address of a server that answers every request with this status."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_HEAD(self) -> None:
            self.send_response(status)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with http.server.HTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def test_a_database_its_copy_without_snapshots_and_its_archive_are_accepted(tmp_path: Path) -> None:
    whole = database(tmp_path / "om")
    check_location(str(whole))
    check_location(str(whole / "om.db"))
    archive = archive_of(whole, tmp_path / "om.tar")
    check_location(str(archive))
    packed = tmp_path / "om.tar.gz"
    packed.write_bytes(gzip.compress(archive.read_bytes()))
    check_location(str(packed))
    check_location(str(database(tmp_path / "none", has_snapshot=False)))
    with answering(404) as address:
        check_location(address)


def test_a_place_without_a_database(tmp_path: Path) -> None:
    assert f"{tmp_path / 'nowhere'} is missing: name the directory that holds om.db" in refused(
        "ozone", tmp_path / "nowhere"
    )
    assert "has no database of an Ozone Manager: name the directory" in refused("ozone", tmp_path)
    assert "s3://lake/om is in a store that is not known here: copy" in refused("ozone", "s3://key:secret@lake/om")


def test_a_copy_without_the_snapshots_that_its_table_names(tmp_path: Path) -> None:
    whole = database(tmp_path / "om")
    before = sorted((whole / "om.db").iterdir())
    shutil.rmtree(whole / "db.snapshots")
    assert f"{whole / 'db.snapshots' / 'checkpointState'} is missing" in refused("ozone", whole)
    with pytest.raises(OzoneLocationError, match=r"copy db\.snapshots as well"):
        directories_at(whole / "om.db")
    assert sorted((whole / "om.db").iterdir()) == before, "nothing is written beside what is read"


def test_a_directory_without_rights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Root may read everything, so the system's refusal is made here."""
    whole = database(tmp_path / "om")
    listdir = os.listdir

    def refusing(path: Path) -> list[str]:
        if path == whole / "db.snapshots" / "checkpointState":
            raise PermissionError(13, "Permission denied", str(path))
        return listdir(path)

    monkeypatch.setattr(os, "listdir", refusing)
    assert "checkpointState cannot be read: run as a user who may read Ozone's metadata" in refused("ozone", whole)


@pytest.mark.parametrize("is_packed", [False, True])
def test_an_archive_that_is_cut_short(tmp_path: Path, is_packed: bool) -> None:
    archive = archive_of(database(tmp_path / "om"), tmp_path / "om.tar")
    content = gzip.compress(archive.read_bytes()) if is_packed else archive.read_bytes()
    archive.write_bytes(content[: len(content) // 2])
    assert "om.tar is cut short or no tar file" in refused("ozone", archive)


def test_a_large_packed_archive_is_left_to_the_reader(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """To notice what it lacks takes as long as to unpack it. One that is not packed is looked through all the same."""
    monkeypatch.setattr(locations, "SMALL_BYTES", 1)
    archive = archive_of(database(tmp_path / "om"), tmp_path / "om.tar")
    packed = gzip.compress(archive.read_bytes())
    archive.write_bytes(archive.read_bytes()[:-30_000])
    with pytest.raises(OzoneLocationError, match="cut short"):
        check_location(str(archive))
    archive.write_bytes(packed[:-100])
    check_location(str(archive))


def test_an_archive_of_something_else_and_a_file_that_is_none(tmp_path: Path) -> None:
    (tmp_path / "notes").write_text("of yesterday")
    archive = archive_of(tmp_path / "notes", tmp_path / "notes.tar")
    assert "has only a part of a checkpoint, without OZONE_RATIS_SNAPSHOT_COMPLETE" in refused("ozone", archive)
    assert refused("ozone", tmp_path / "notes") == (
        f"{tmp_path / 'notes'} is cut short or no tar file (file could not be opened successfully): fetch or copy it "
        f"again.\n"
    )


def test_an_address_where_nobody_answers() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    shown = refused("ozone", f"http://user:secret@127.0.0.1:{port}/")
    assert f"http://127.0.0.1:{port} did not send a checkpoint (" in shown
    assert "is it the port of an Ozone Manager (9874)?" in shown
    assert "secret" not in shown
    assert "This is no address: name one as http://HOST:9874." in refused("ozone", "http://om:98x")


def test_a_manager_that_says_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(locations, "ANSWER_SECONDS", 0.05)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        assert "did not send a checkpoint (timed out)" in refused(
            "ozone", f"http://127.0.0.1:{silent.getsockname()[1]}"
        )


@pytest.mark.parametrize(("status", "sentence"), [(401, "it asks for Kerberos"), (403, "it wants an administrator")])
def test_a_manager_that_refuses(status: int, sentence: str) -> None:
    with answering(status) as address:
        assert f"{address} answered {status}: {sentence}: copy the database instead." in refused("ozone", address)


def test_a_directory_that_is_no_repository_and_one_without_a_commit(tmp_path: Path) -> None:
    assert "There is no directory" in refused("git", tmp_path / "nowhere")
    assert f"{tmp_path} is no git repository: name the root of a clone" in refused("git", tmp_path)
    git(tmp_path, "init", "-q")
    assert f"{tmp_path} has no commit: commit something" in refused("git", tmp_path)
    (tmp_path / "below").mkdir()
    assert "below is no git repository" in refused("git", tmp_path / "below")
