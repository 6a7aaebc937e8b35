"""The job's files in Spark's checkpoint, on this machine and at an address of another Hadoop file system."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from schemas.formats import FILE, FormatError
from services.domain.errors import InvariantError, RetryableError
from streaming.reclaiming.checkpoint import Checkpoint, HadoopCheckpoint, check_format, local_checkpoint
from streaming.reclaiming.outcome import Stretch
from streaming.reclaiming.position import finished_ends
from streaming.reclaiming.waiting import Waiting, saved
from tests.spark_session import SPARK_MARKS, started_session

pytestmark = [*SPARK_MARKS, pytest.mark.timeout(180)]

MANAGER = "spark.sql.streaming.checkpointFileManagerClass"
"""Its default is the one that the job has with an address elsewhere; a session of tests has that of a local one."""
Made = Callable[[Path], Checkpoint]


@pytest.fixture(scope="module")
def session() -> Iterator[SparkSession]:
    with started_session() as started:
        yield started


@pytest.fixture(params=["path", "file", "viewfs"])
def made(request: pytest.FixtureRequest, session: SparkSession) -> Made:
    """Makes the checkpoint of a directory, by one of the ways to name it."""

    def local(address: str) -> Checkpoint:
        found = local_checkpoint(address)
        assert found is not None
        return found

    def mounted(directory: Path) -> Checkpoint:
        session.conf.set(MANAGER, "org.apache.spark.sql.execution.streaming.FileContextBasedCheckpointFileManager")
        table = "".join(filter(str.isalnum, directory.parent.name))  # the name of a host
        session.conf.set(f"fs.viewfs.mounttable.{table}.link./up", directory.parent.as_uri())
        address = f"viewfs://{table}/up/{directory.name}"
        assert local_checkpoint(address) is None
        return HadoopCheckpoint(session, address)

    ways: dict[str, Made] = {
        "path": lambda at: local(str(at)),
        "file": lambda at: local(at.as_uri()),
        "viewfs": mounted,
    }
    return ways[request.param]


def test_a_file_is_there_once_it_was_written_and_is_replaced_as_a_whole(made: Made, tmp_path: Path) -> None:
    directory = tmp_path / "a place"
    checkpoint = made(directory)
    assert (checkpoint.read("waiting.json"), checkpoint.is_empty()) == (None, True)
    checkpoint.replace("waiting.json", "one, é")
    assert (checkpoint.read("waiting.json"), checkpoint.is_empty()) == ("one, é", False)
    checkpoint.replace("waiting.json", "2")
    assert made(directory).read("waiting.json") == "2"
    assert (directory / "waiting.json").read_text("utf-8") == "2"


def test_it_tells_where_sparks_last_batch_ended(made: Made, tmp_path: Path) -> None:
    checkpoint = made(tmp_path / "kept")
    assert finished_ends(checkpoint) == {}
    for name, text in (("commits/3", ""), ("offsets/3", 'v1\n{}\n{"gc.deleted-entries": {"0": 50, "1": 60}}')):
        (tmp_path / "kept" / name).parent.mkdir(parents=True)
        (tmp_path / "kept" / name).write_text(text)
    assert checkpoint.names("commits") == ["3"]
    assert finished_ends(checkpoint) == {0: 50, 1: 60}


def test_what_waits_outlives_the_process_at_any_address(made: Made, tmp_path: Path) -> None:
    waiting = Waiting()
    waiting.add([Stretch(1, 10, 20)], (), 1.5)
    waiting.save(made(tmp_path / "place"))
    assert saved(made(tmp_path / "place")) == waiting


def test_the_format_is_checked_at_any_address(made: Made, tmp_path: Path) -> None:
    directory = tmp_path / "place"
    check_format(made(directory))
    assert (directory / FILE).read_text("ascii") == "1\n"
    check_format(made(directory))
    made(directory).replace(FILE, "2\n")
    with pytest.raises(FormatError, match="has format 2, this program reads up to 1"):
        check_format(made(directory))
    (tmp_path / "older" / "offsets").mkdir(parents=True)
    with pytest.raises(FormatError, match=r"before 0\.2\.0"):
        check_format(made(tmp_path / "older"))


def test_a_file_system_that_nobody_knows_or_that_refuses_is_named(session: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(InvariantError, match=r"nowhere://a/b cannot be used .*--conf spark.hadoop"):
        HadoopCheckpoint(session, "nowhere://a/b")
    session.conf.set("fs.viewfs.mounttable.refusing.link./up", tmp_path.as_uri())
    (tmp_path / "file").write_text("no directory")
    with pytest.raises(RetryableError, match="viewfs://refusing/up/file/below did not answer"):
        HadoopCheckpoint(session, "viewfs://refusing/up/file/below").replace("name", "text")
