"""The worked examples of clients that have nothing of ours but the schema files: they write what metadata accepts."""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pyspark as pyspark_package
import pytest

from schemas.codec import codec, schema_id_of
from schemas.records import BucketLayout, CreateBucket, CreateVolume, DeleteKey, MetadataCommand, PutKey
from schemas.schema_files import released_versions
from schemas.topics import METADATA_COMMANDS
from services.client.kafka_plane import KafkaPlane, PlaneAddress
from services.client.plane import NamespaceCommand
from services.log.clock import SystemClock
from services.log.kafka import KafkaLog
from services.log.port import LogRecord
from services.metadata.service import MetadataService
from services.metadata.state.tables import DELETED_TABLE, FILE_TABLE
from services.plane.broker.embedded import EmbeddedBroker
from services.plane.broker.topics import create_plane_topics
from services.plane.machine.home import jars_directory
from services.plane.machine.jars import TESTS, classpath
from services.plane.machine.java import find_java
from services.runtime.loop.runner import Runner
from services.storage.memory import MemoryStore
from services.storage.tables import TablesReader

pytestmark = pytest.mark.timeout(180)
ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "docs" / "examples" / "plain_producer.py"
IN_JAVA = ROOT / "docs" / "examples" / "PlainProducer.java"
IN_GO = ROOT / "docs" / "examples" / "plainproducer"
SHARD, SHARDS = 1, 2
VOLUME, BUCKET, KEYS = "sales", "figures", ("2026/january", "2026/february")


def test_it_needs_kafka_and_avro_and_nothing_of_ours() -> None:
    imported = set()
    for node in ast.walk(ast.parse(EXAMPLE.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            imported |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            imported.add((node.module or "").split(".")[0])
    assert imported - sys.stdlib_module_names == {"confluent_kafka", "fastavro"}


@pytest.fixture
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A broker of its own: the plane's topics have fixed names."""
    with EmbeddedBroker(tmp_path_factory.mktemp("plain")) as broker:
        create_plane_topics(broker.bootstrap_servers, SHARDS)
        yield broker.bootstrap_servers


@contextmanager
def metadata_running(servers: str) -> Iterator[MemoryStore]:
    """metadata of one shard; its tables are given out."""
    stop, store = threading.Event(), MemoryStore()
    runner = Runner(MetadataService(), SHARD, store, KafkaLog(servers, "metadata"), SystemClock())

    def run() -> None:
        while not stop.is_set():
            runner.step(0.01)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield store
    finally:
        stop.set()
        thread.join()
        runner.close()


def _two_keys(servers: str) -> None:
    nowhere = "http://127.0.0.1:1"
    with KafkaPlane(PlaneAddress(servers, SHARDS, nowhere, nowhere, nowhere)) as plane:
        bucket = CreateBucket(VOLUME, BUCKET, BucketLayout.FILE_SYSTEM_OPTIMIZED)
        commands: list[NamespaceCommand] = [CreateVolume(VOLUME), bucket]
        commands += [PutKey(VOLUME, BUCKET, key, 10) for key in KEYS]
        numbers = [plane.submit(SHARD, command) for command in commands]
        assert {plane.answer(SHARD, number).error for number in numbers} == {""}


def _in_python(servers: str, _: Path) -> list[str]:
    """The command without what it deletes."""
    return [sys.executable, "-W", "error", str(EXAMPLE), "--bootstrap-servers", servers, "--shard", str(SHARD)]


def _in_java(servers: str, directory: Path) -> list[str]:
    """The same, of the example in Java. It is compiled by Eclipse's compiler, for machines without a JDK."""
    java, pyspark = str(find_java().executable), Path(pyspark_package.__file__).parent / "jars"
    compiler = next(one for one in classpath(jars_directory(), TESTS).split(os.pathsep) if "ecj" in Path(one).name)
    of_avro = sorted(str(jar) for name in ("avro-1", "jackson-annotations") for jar in pyspark.glob(f"{name}*.jar"))
    libraries = os.pathsep.join([classpath(jars_directory(), "kafka"), *of_avro])
    compiled = [java, "-jar", compiler, "-17", "-failOnWarning", "-d", str(directory), "-cp", libraries, str(IN_JAVA)]
    subprocess.run(compiled, check=True, timeout=90)
    path = os.pathsep.join([str(directory), libraries])
    return [java, "-Xmx64m", "-cp", path, "PlainProducer", servers, str(SHARD), "schemas/released"]


def has_go() -> bool:
    """Whether there is the Go that ``go.mod`` wants."""
    if not shutil.which("go"):
        return False
    said = subprocess.run(["go", "env", "GOVERSION"], capture_output=True, text=True, check=True).stdout
    found = re.match(r"go(\d+)\.(\d+)", said)
    return found is not None and (int(found[1]), int(found[2])) >= (1, 24)


def _in_go(servers: str, directory: Path) -> list[str]:
    """The same, of the example in Go. ``go.sum`` has the digests of its libraries."""
    if not has_go():
        pytest.skip("needs Go 1.24, which is newer than that of Debian 12")
    program = directory / "plainproducer"
    built = ["go", "build", "-mod=readonly", "-o", str(program), "."]
    subprocess.run(built, cwd=IN_GO, check=True, timeout=500)
    return [str(program), servers, str(SHARD), "schemas/released"]


IN_EACH_LANGUAGE = [
    _in_python,
    _in_java,
    pytest.param(
        _in_go,
        marks=[
            pytest.mark.long,
            pytest.mark.timeout(600),
        ],
    ),
]


def _run_example(command: list[str], key: str) -> subprocess.CompletedProcess[str]:
    words = [*command, VOLUME, BUCKET, key]
    return subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=90, check=False)


def _last_commands(servers: str, count: int) -> list[LogRecord]:
    log = KafkaLog(servers, "reader")
    end = log.end_offset(METADATA_COMMANDS.name, SHARD)
    source = log.open_source([METADATA_COMMANDS.name], SHARD, {METADATA_COMMANDS.name: end - count})
    records: list[LogRecord] = []
    while len(records) < count:
        records += source.poll(count, 1.0)
    source.close()
    return records


@pytest.mark.broker
@pytest.mark.parametrize("example", IN_EACH_LANGUAGE)
def test_a_key_is_deleted_and_a_missing_one_refused(
    example: Callable[[str, Path], list[str]], servers: str, tmp_path: Path
) -> None:
    command = example(servers, tmp_path)
    with metadata_running(servers) as store:
        _two_keys(servers)
        deleted, refused = _run_example(command, KEYS[0]), _run_example(command, KEYS[0])
    assert deleted.returncode == 0, deleted.stderr
    assert deleted.stdout.startswith("deleted at txn ")
    assert refused.returncode == 1, refused.stderr
    assert refused.stdout.startswith("KEY_NOT_FOUND: ")
    if example is not _in_java:  # Kafka's client for Java writes its own log there
        assert deleted.stderr == refused.stderr == ""

    first, second = _last_commands(servers, 2)
    encoder = codec(MetadataCommand)
    assert schema_id_of(first.value) == released_versions("MetadataCommand")[0].schema_id  # its first, for good
    commands = [encoder.decode_message(record.value) for record in (first, second)]
    assert [command.body for command in commands] == [DeleteKey(VOLUME, BUCKET, KEYS[0])] * 2
    assert [(command.shard, command.number) for command in commands] == [(SHARD, 1)] * 2
    assert commands[0].client_id != commands[1].client_id

    tables = TablesReader(store)
    assert [row.name for _, row in tables.table(FILE_TABLE).scan(b"", b"\xff")] == ["february"]
    assert [row.key.name for _, row in tables.table(DELETED_TABLE).scan(b"", b"\xff")] == ["january"]
