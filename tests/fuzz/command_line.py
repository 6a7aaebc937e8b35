"""The command line: any words, in a home without a plane, and over a plane in memory that has done a little.

An input is the words of a command, each but the last with a NUL behind it, as the system keeps them.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import weakref
from collections.abc import Iterator
from functools import cache
from itertools import cycle, islice
from pathlib import Path
from typing import Any

import typer.main
import typer.testing
from typer.testing import CliRunner

from schemas.records import BucketLayout, CreateBucket, CreateSnapshot, CreateVolume, DeleteKey, PutKey
from services.cli.exit_status import ExitStatus
from services.cli.lazy import loaded_commands
from services.cli.lens import import_command, reading
from services.cli.main import app
from services.cli.operate import up_down
from services.cli.session import Session
from services.client.plane import NamespaceCommand
from services.log.kafka import KafkaLog
from services.plane.in_memory.client import InMemoryClient
from services.plane.in_memory.plane import InMemoryPlane
from services.plane.stack import stack
from tests.fuzz.sandbox import LeftOutError, Sandbox
from tests.fuzz.target import PromiseError, Target, replaced
from tests.lens_reports import chain, thing, write_report

STATUSES = frozenset(ExitStatus)
MOST_WORDS = 40
VALUES = (
    *("vol1/tree", "vol1/tree/dir/k", "snap1", "1", "0", "7d", "1d12h", "10GiB", "1.5 MB", "0:1", "metadata", "."),
    *("vol1", "", "/", "-", "--", "-1", "²", "٣d", "\udcff", "\x1b[31m", "a\nb", "nan", "inf", "1e400", "OBS"),
    *("object.json", "list.json", "figures.json", "text", "empty", "folder", "operations.jsonl", "none/none"),
    *("9" * 20, "9" * 400 + "d", "9" * 400 + "GiB", "9" * 5_000, "2026-11-21T16:00", "0001-01-01T00:00+23:59", "a=b"),
)
FITTING = {
    "VOLUME/BUCKET": "vol1/tree",
    "VOLUME/BUCKET/KEY": "vol1/tree/dir/k",
    "VOLUME/BUCKET/PATH": "vol1/tree/dir",
    "SHARD:NUMBER": "0:1",
    "DURATION": "7d",
    "VOLUME": "vol1",
    "A.json": "figures.json",
    "B.json": "figures.json",
    "A.json B.json …": "figures.json",
    "FILE": "text",
    "NAME=COUNT": "keys=10",
    "ID": "1",
    "SOURCE": "report",
    "LOCATION": "report",
}
FITTING_NAMES = {
    "size": "10",
    "floor_versions": "10",
    "floor": "10GiB",
    "free": "10GiB",
    "share": "20",
    "to_snapshot": "active",
    "time_": "7d",
    "_every": "7d",
    "every": "1",
    "since": "7d",
    "expiration": "7d",
    "volume": "vol2",
    "bucket": "vol1/tree",
    "path": "vol1/tree/dir/k",
    "key": "vol1/tree/dir/k",
    "target": "elsewhere",
    "directory": "folder",
    "file": "operations.jsonl",
    "number": "1",
    "layout": "OBS",
}
"""By a part of a parameter's name, where its type says too little."""
FILES = {
    "empty": b"",
    "text": b"vol1/tree/k\n\xff\xfe\n",
    "object.json": b"{}",
    "list.json": b"[1]",
    "figures.json": b'{"figures": [{"name": "a", "value": 1}], "machine": 1}',
    "operations.jsonl": b'{"op": "create_volume", "volume": "vol1"}\n{"op": "put_key"}\n',
}


def _left_out(*_: Any, **__: Any) -> Any:
    raise LeftOutError("takes long, or asks a broker")


class _CommandLine:
    """Runs commands in a directory of their own that is the same for each, and so is their plane, if any."""

    def __init__(self, *, has_plane: bool = False) -> None:
        self._has_plane = has_plane
        self._client: InMemoryClient | None = None
        self._messages = 0
        directory = Path(tempfile.mkdtemp(prefix="deepclean-fuzz-"))
        weakref.finalize(self, shutil.rmtree, directory, ignore_errors=True)
        self._home = directory / "home"
        self._sandbox = Sandbox(self._home)
        self._made: frozenset[str] = frozenset()
        self._command = cache(typer.main.get_command)
        self._tidy()

    def play(self, data: bytes) -> bool:
        """Run one command.

        Raises:
            PromiseError: it ends with a status that no command has.
            Exception: it ends with this, so with a traceback.
        """
        words = [os.fsdecode(word) for word in data.split(b"\0")]
        if len(words) > MOST_WORDS:
            return False
        home = {"DEEPCLEAN_HOME": os.fspath(self._home)}
        session = Session(self._home, self._plane()) if self._has_plane else None
        places: tuple[tuple[Any, str, Any], ...] = (
            (typer.testing, "_get_command", self._command),
            (KafkaLog, "__init__", _left_out),
            (stack, "Stack", _left_out),
            (up_down, "run_plane", _left_out),
            (reading, "run_spark_job", _left_out),
            (import_command, "run_job", _left_out),
        )
        try:
            with replaced(*places), self._sandbox.entered():
                result = CliRunner().invoke(app, words, env=home, prog_name="deepclean", obj=session)
        except LeftOutError:
            return False
        finally:
            self._tidy()
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        if result.exit_code not in STATUSES:
            raise PromiseError(f"status {result.exit_code}")
        return True

    def _plane(self) -> InMemoryClient:
        """One to which nothing was sent but what it begins with."""
        if self._client is None or self._messages != _messages(self._client):
            self._client = _begun()
            self._messages = _messages(self._client)
        return self._client

    def _tidy(self) -> None:
        """As it was: what the last command has left is removed."""
        if self._made and self._made == frozenset(os.listdir(self._home)):  # noqa: PTH208 asked after every input
            return
        shutil.rmtree(self._home, ignore_errors=True)
        (self._home / "folder").mkdir(parents=True)
        for name, content in FILES.items():
            (self._home / name).write_bytes(content)
        write_report(self._home / "report", [chain("snap1")], [thing("dir/k", 10, 0), thing("dir/old", 10, 1)])
        self._made = frozenset(os.listdir(self._home))  # noqa: PTH208


def _begun() -> InMemoryClient:
    client = InMemoryClient(InMemoryPlane())
    commands: tuple[NamespaceCommand, ...] = (
        CreateVolume("vol1", "owner"),
        CreateBucket("vol1", "tree", BucketLayout.FILE_SYSTEM_OPTIMIZED),
        PutKey("vol1", "tree", "dir/k", 10),
        PutKey("vol1", "tree", "dir/old", 10),
    )
    for command in commands:
        assert not client.answer(0, client.submit(0, command)).error
    client.plane.log.append("scm.commands", 0, b"no command")
    assert not client.request(0, CreateSnapshot("vol1", "tree", "snap1")).error
    assert not client.answer(0, client.submit(0, DeleteKey("vol1", "tree", "dir/old"))).error
    return client


def _messages(client: InMemoryClient) -> int:
    """How many a plane has had: what a command has changed, it has sent."""
    return sum(map(len, client.plane.log.partitions.values()))


def _leaves() -> Iterator[tuple[tuple[str, ...], Any]]:
    """Every command, with the words that lead to it."""
    waiting: list[tuple[tuple[str, ...], Any]] = [((), typer.main.get_command(app))]
    while waiting:
        path, command = waiting.pop()
        yield path, command
        own = [_fitting(one) for one in command.params if one.param_type_name == "argument"]
        for name, inner in sorted(loaded_commands(command)):
            waiting.append(((*path, *own, name), inner))


def _fitting(parameter: Any) -> str:
    """A value that a parameter takes, by what its help calls it, its bounds or its name."""
    metavar = (parameter.metavar or "").strip("[]")
    if metavar in FITTING:
        return FITTING[metavar]
    if parameter.min is not None:
        return "1"
    for part, value in FITTING_NAMES.items():
        if part in parameter.name:
            return value
    return "snap1"


def _words_of(path: tuple[str, ...], command: Any, *, has_options: bool) -> list[str]:
    """One way to write a command, with values that it takes."""
    words = list(path)
    for parameter in command.params:
        if parameter.param_type_name == "argument":
            words.append(_fitting(parameter))
        elif has_options and parameter.name != "help":
            words += [parameter.opts[0], *(() if parameter.is_flag else (_fitting(parameter),))]
    return words


def seeds() -> Iterator[bytes]:
    """Each command as it is meant, without and with all options, with each of them, and with other values in turn."""
    values = cycle(VALUES)
    for path, command in sorted(_leaves(), key=lambda leaf: leaf[0]):
        usual = _words_of(path, command, has_options=False)
        yield _encoded([*path, "--help"])
        yield _encoded(usual)
        yield _encoded(_words_of(path, command, has_options=True))
        for place in range(len(path), len(usual)):
            for value in islice(values, 4):
                yield _encoded([*usual[:place], value, *usual[place + 1 :]])
        for parameter in command.params:
            if parameter.param_type_name != "argument":
                for value in (_fitting(parameter), *islice(values, 2)):
                    yield _encoded([*usual, parameter.opts[0], *(() if parameter.is_flag else (value,))])


def words() -> Iterator[bytes]:
    """The words of all commands, and what values are made of."""
    for path, command in _leaves():
        yield b"\0".join(word.encode() for word in path)
        for parameter in command.params:
            for option in parameter.opts:
                if option.startswith("-"):
                    yield b"\0" + option.encode() + b"\0"
    yield from (os.fsencode(value) for value in VALUES if len(value) < 60)


def _encoded(given: list[str]) -> bytes:
    return b"\0".join(os.fsencode(word) for word in given)


TARGET = Target("command_line", lambda: _CommandLine().play, seeds, words)
ON_A_PLANE = Target("commands_on_a_plane", lambda: _CommandLine(has_plane=True).play, seeds, words)
