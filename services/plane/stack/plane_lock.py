"""The lock of a home: at most one plane, or one command that works on a stopped plane, uses it at a time."""

from __future__ import annotations

import contextlib
import fcntl
from collections.abc import Callable, Iterator
from functools import wraps
from pathlib import Path
from typing import IO, ParamSpec, TypeVar

from services.domain.errors import RetryableError
from services.log.kafka import KafkaLog
from services.log.patience import patiently
from services.log.schema_topic import follow_schemas
from services.plane.broker.embedded import EmbeddedBroker
from services.plane.broker.security import administrator_of
from services.plane.machine.errors import StackError, disk_error
from services.plane.stack.plane_file import read_plane_file
from services.plane.stack.secrets import plane_security

LOCK_NAME = "plane.lock"
PATIENCE_SECONDS = 30.0

P = ParamSpec("P")
Answer = TypeVar("Answer")


def acquire_plane_lock(home: Path) -> IO[bytes]:
    """Lock a home until the file is closed. Raise StackError if it is locked, or a process of its plane still runs."""
    try:
        home.mkdir(parents=True, exist_ok=True)
        lock = (home / LOCK_NAME).open("a+b")
    except OSError as error:
        raise disk_error(home, error) from error
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        lock.close()
        raise StackError(
            f"A plane runs on {home} already: stop it (deepclean down), or use another home (DEEPCLEAN_HOME)."
        ) from error
    before = read_plane_file(home)
    if before is not None and before.left_behind():
        lock.close()
        names = ", ".join(before.left_behind())
        raise StackError(f"Processes of an earlier plane on {home} still run ({names}): stop them (deepclean down).")
    return lock


def _patiently(ask: Callable[P, Answer]) -> Callable[P, Answer]:
    @wraps(ask)
    def asked(*arguments: P.args, **named: P.kwargs) -> Answer:
        try:
            return patiently(lambda: ask(*arguments, **named), PATIENCE_SECONDS)
        except RetryableError as error:
            raise StackError(f"{error}, for {PATIENCE_SECONDS:g} seconds: start again") from error

    return asked


class PatientLog(KafkaLog):
    """The log of a broker that has just started: reads are repeated until the broker can answer them."""

    topic_ids = _patiently(KafkaLog.topic_ids)
    end_offset = _patiently(KafkaLog.end_offset)
    first_offset = _patiently(KafkaLog.first_offset)


@contextlib.contextmanager
def log_of_stopped_plane(home: Path, bootstrap_servers: str = "") -> Iterator[KafkaLog]:
    """Lock a home and yield the log of its stopped plane.

    The plane's own broker is started for this, without the other processes, unless other brokers are named.
    """
    security = plane_security(home)
    with acquire_plane_lock(home), contextlib.ExitStack() as started:
        if not bootstrap_servers:
            broker = EmbeddedBroker(home / "broker", security=security)
            bootstrap_servers = started.enter_context(broker).bootstrap_servers
        log = PatientLog(bootstrap_servers, "deepclean.recovery", credentials=administrator_of(security))
        follow_schemas(log)
        yield log
