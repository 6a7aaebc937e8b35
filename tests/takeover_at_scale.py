"""Measures how long a large shard of metadata is without an owner.

    python -m tests.takeover_at_scale takeover --keys 1000000 [--way standby --way backup --way log]
    python -m tests.takeover_at_scale restart --keys 10000000

``takeover``: two hosts share a shard over three brokers. The first host's metadata is killed (SIGKILL) while a client
puts keys, and the time runs from the kill to the first answer of the second host. That host has followed the shard
(``standby``), or begins with a backup that the hosts share and that was made a tenth of the keys before the end, after
which the log was trimmed (``backup``), or reads the log from its beginning (``log``). ``restart``: one host, whose
metadata is killed and started again at once. Each command of the client must be answered without an error, and its keys
must all be there afterwards.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from itertools import chain
from pathlib import Path

import httpx

from schemas.records import BucketLayout, CreateBucket, CreateVolume, MetadataCommand, PutKey
from schemas.topics import METADATA_COMMANDS
from services.client.kafka_plane import KafkaPlane
from services.client.plane import NamespaceCommand
from services.log.kafka import KafkaLog
from services.log.owner_topic import OwnerTopic
from services.plane.stack.description import read_description
from services.plane.stack.plane_file import running_plane
from services.plane.stack.stack import Stack
from services.plane.upkeep.backups import backups_of, known_backups, make_backup
from services.plane.upkeep.metrics_page import samples
from tests.broker_cluster import BrokerCluster
from tests.rebuild_at_scale import send
from tests.waiting import eventually

METADATA, VOLUME, BUCKET = "metadata", "vol", "bucket"
WAYS = ("standby", "backup", "log")
PATIENCE_SECONDS = 1_800.0
BROKERS = 3


def host(
    directory: Path, servers: str, name: str, *, is_following: bool = False, shares_backups: bool = False
) -> Stack:
    """A host with metadata alone."""
    backups = f'backups = "{directory / "backups"}"\n' if shares_backups else ""
    file = directory / f"{name}.toml"
    file.write_text(
        f'shards = 1\n[kafka]\nbootstrap_servers = "{servers}"\n'
        f'[host]\ninstance = "{name}"\nprocesses = ["{METADATA}"]\n{backups}'
        f"[settings.all]\nstandby = {str(is_following).lower()}\n"
    )
    described = read_description(file)
    return Stack(directory / name, described.shards, described=described)


def puts(first: int, until: int) -> Iterator[MetadataCommand]:
    """Puts of keys as applications name them; the first ones make their bucket, too."""
    places: list[NamespaceCommand] = []
    if not first:
        places = [CreateVolume(VOLUME), CreateBucket(VOLUME, BUCKET, BucketLayout.OBJECT_STORE)]
    keys = (PutKey(VOLUME, BUCKET, f"table-{key % 16}/part-{key:09}.parquet", 4_096) for key in range(first, until))
    for body in chain(places, keys):
        yield MetadataCommand(0, "", 0, body, wants_reply=False)


class Writer:
    """Puts keys one after the other, each when the one before is answered, until it is stopped."""

    def __init__(self, plane: KafkaPlane) -> None:
        self._plane, self._stop = plane, threading.Event()
        self.answered_at: list[float] = []
        """The time of each answer."""
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="writer")

    def __enter__(self) -> Writer:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        if self._error is not None:
            raise self._error

    def first_after(self, moment: float) -> float:
        """Wait for an answer that came after a moment; return its time."""
        eventually(lambda: bool(self._error) or self.answered_at[-1] > moment, PATIENCE_SECONDS)
        return next(answered for answered in self.answered_at if answered > moment)

    def _run(self) -> None:
        try:
            while not self._stop.is_set():
                put = PutKey(VOLUME, BUCKET, f"written-{len(self.answered_at)}", 1)
                error = self._plane.answer(0, self._plane.submit(0, put)).error
                assert not error, error
                self.answered_at.append(time.monotonic())
        except BaseException as error:
            self._error = error


def _await_txn(plane: KafkaPlane, txn: int) -> None:
    eventually(lambda: plane.metadata(0).state().txn >= txn, PATIENCE_SECONDS, "metadata does not apply the commands")


def _kill(stack: Stack) -> None:
    child = stack.children[METADATA]
    assert child.identity is not None
    os.killpg(child.identity.pid, signal.SIGKILL)
    eventually(lambda: not child.is_running)


def _back_up_and_trim(one: Stack, log: KafkaLog) -> None:
    plane = running_plane(one.home)
    make_backup(plane, backups_of(plane), has_digest=False)
    position = known_backups(plane)[-1].copies[0].positions[0]
    log.trim(METADATA_COMMANDS.name, 0, position.next_offset - 1)


def _has_caught_up(stack: Stack) -> bool:
    with httpx.Client() as http:
        found = [one for one in samples(http, stack.url(METADATA)) if one.name == "deepclean_standby_lag_messages"]
    return [one.value for one in found] == [0.0]


def takeover(directory: Path, keys: int, way: str) -> float:
    """Return the seconds from the kill of the owner to the first answer of its successor."""
    with contextlib.ExitStack() as running:
        cluster = BrokerCluster(directory / "brokers", BROKERS).start()
        running.callback(cluster.stop)
        servers = cluster.bootstrap_servers
        shared = {"shares_backups": way == "backup"}
        one = running.enter_context(host(directory, servers, "one", **shared))
        plane = running.enter_context(KafkaPlane(one.address, answer_seconds=PATIENCE_SECONDS))
        log = KafkaLog(servers, "takeover-at-scale")
        sent = send(log, puts(0, keys * 9 // 10))
        _await_txn(plane, sent)
        if way == "backup":
            _back_up_and_trim(one, log)
        _await_txn(plane, sent + send(log, puts(keys * 9 // 10, keys)))
        two = running.enter_context(host(directory, servers, "two", is_following=way == "standby", **shared))
        if way == "standby":
            eventually(lambda: _has_caught_up(two), PATIENCE_SECONDS, "the standby does not catch up")
        seconds = _killed_while_written_to(plane, one)
        owners = OwnerTopic(log)
        owners.read()
        assert owners.url(METADATA, 0) == two.url(METADATA)
        return seconds


def restart(directory: Path, keys: int) -> float:
    """Return the seconds from the kill of the only owner to its first answer when it was started again."""
    with contextlib.ExitStack() as running:
        cluster = BrokerCluster(directory / "brokers", 1).start()
        running.callback(cluster.stop)
        one = running.enter_context(host(directory, cluster.bootstrap_servers, "one"))
        plane = running.enter_context(KafkaPlane(one.address, answer_seconds=PATIENCE_SECONDS))
        _await_txn(plane, send(KafkaLog(cluster.bootstrap_servers, "takeover-at-scale"), puts(0, keys)))
        return _killed_while_written_to(plane, one, one.children[METADATA].start)


def _killed_while_written_to(plane: KafkaPlane, one: Stack, afterwards: Callable[[], None] = lambda: None) -> float:
    with Writer(plane) as writer:
        eventually(lambda: len(writer.answered_at) > 100, PATIENCE_SECONDS)
        _kill(one)
        killed_at = time.monotonic()
        afterwards()
        seconds = writer.first_after(killed_at + 0.2) - killed_at
        eventually(lambda: writer.answered_at[-1] > killed_at + seconds + 1, PATIENCE_SECONDS)
    written = len(writer.answered_at)
    listed = plane.metadata(0).entries(VOLUME, BUCKET, prefix="written-")
    assert sum(1 for _ in listed) == written, "a command is lost"
    return seconds


def main() -> int:
    """Measure."""
    parser = argparse.ArgumentParser(prog="python -m tests.takeover_at_scale", description="Measure a takeover.")
    commands = parser.add_subparsers(dest="command", required=True)
    for name in ("takeover", "restart"):
        command = commands.add_parser(name)
        command.add_argument("--keys", type=int, default=1_000_000)
        command.add_argument("--rounds", type=int, default=1)
    commands.choices["takeover"].add_argument("--way", choices=WAYS, action="append")
    options = parser.parse_args()
    ways = (options.way or WAYS) if options.command == "takeover" else ("restart",)
    for number in range(options.rounds):
        for way in ways:
            with tempfile.TemporaryDirectory(prefix="deepclean-takeover-") as scratch:
                place = Path(scratch)
                seconds = restart(place, options.keys) if way == "restart" else takeover(place, options.keys, way)
            print(f"round {number + 1}: {way} with {options.keys:,} keys: {seconds:.1f} s", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
