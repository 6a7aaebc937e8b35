"""``deepclean.toml``: read, checked, and given to the processes."""

from __future__ import annotations

from pathlib import Path

import pytest

from services.plane.machine.errors import StackError
from services.plane.machine.java import JavaRuntime
from services.plane.stack.description import PlaneDescription, read_description
from services.plane.stack.process_names import HTTP_PROCESSES, STREAMING
from services.plane.stack.settings import PlaneSettings, child_command, child_environment
from services.runtime.process.settings import read_limits, read_settings
from services.snapshots.settings import SnapshotsSettings

TEXT = """
shards = 4
[kafka]
bootstrap_servers = "k1:9092,k2:9092"
replication_factor = 3
[host]
processes = ["streaming", "metadata"]
shards = [1, 3]
[spark]
master = "spark://there:7077"
conf = { "spark.executor.memory" = "2g" }
[elsewhere]
snapshots = "there:9702"
[settings.all]
log_level = "warning"
[settings.snapshots]
is_rename_allowed = true
max_copies = 2
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    file = tmp_path / "deepclean.toml"
    file.write_text(TEXT)
    return file


def environment_of(name: str, described: PlaneDescription, home: Path) -> dict[str, str]:
    plane = PlaneSettings(home, "k1:9092", 4, JavaRuntime(Path("java"), 17), described=described)
    return child_environment(name, plane, 1)


def test_the_file_says_what_runs_here(file: Path) -> None:
    described = read_description(file)
    assert (described.shards, described.host.processes) == (4, ("metadata", STREAMING))
    assert described.kafka.bootstrap_servers == "k1:9092,k2:9092"
    assert described.has_spark


def test_without_a_file_everything_runs_here() -> None:
    described = read_description(None)
    assert (described.shards, described.host.processes, described.kafka.bootstrap_servers) == (None, HTTP_PROCESSES, "")


def test_the_environment_goes_before_the_file(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DEEPCLEAN_PLANE_KAFKA__BOOTSTRAP_SERVERS", "other:9092")
    monkeypatch.setenv("DEEPCLEAN_PLANE_SHARDS", "8")
    described = read_description(file)
    assert (described.kafka.bootstrap_servers, described.kafka.replication_factor) == ("other:9092", 3)
    assert described.shards == 8


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("shard = 4", "There is no field shard "),
        ("[host]\nprocesses = ['scm']", "host.processes is ['scm']: there is no process scm: choose from metadata, "),
        (
            "[settings.scm]\nx = 1",
            "settings is {'scm': {'x': 1}}: there is no service scm: choose from all, metadata, ",
        ),
        ("shards = 0", "shards is 0: input should be greater than or equal to 1"),
        ("shards = [", "FILE is not TOML ("),
    ],
)
def test_what_does_not_fit_is_one_sentence(file: Path, text: str, sentence: str) -> None:
    file.write_text(text)
    with pytest.raises(StackError) as caught:
        read_description(file)
    assert str(caught.value).startswith(sentence.replace("FILE", str(file)))
    assert "\n" not in str(caught.value)


def test_a_file_that_is_not_there_is_not_an_empty_one(tmp_path: Path) -> None:
    with pytest.raises(StackError, match="cannot be read"):
        read_description(tmp_path / "none.toml")


def test_services_get_their_settings_and_the_environment_goes_before_them(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    environment = environment_of("snapshots", read_description(file), tmp_path)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    settings = read_settings("snapshots", [])
    assert (settings.shards, settings.log_level, settings.max_copies) == ((1, 3), "warning", 2)
    assert read_limits(SnapshotsSettings, "snapshots").is_rename_allowed
    monkeypatch.setenv("DEEPCLEAN_LOG_LEVEL", "error")
    assert "DEEPCLEAN_LOG_LEVEL" not in environment_of("snapshots", read_description(file), tmp_path)


def test_the_spark_job_gets_its_master_and_settings(file: Path, tmp_path: Path) -> None:
    plane = PlaneSettings(tmp_path, "k1:9092", 4, JavaRuntime(Path("java"), 17), described=read_description(file))
    command = child_command(STREAMING, plane, 1)
    assert command[command.index("--master") + 1] == "spark://there:7077"
    assert "--conf=spark.executor.memory=2g" in command
