"""A real Kafka broker as a child process: one node with its own controller, on loopback, in one directory.

The directory holds ``server.properties`` (written at every start), ``records`` (the topics), ``broker.log``,
``broker.previous.log`` (of the previous start) and ``broker.out`` (the JVM's output). A broker can be started again
on its directory at any time, on the same port and with all records.
"""

from __future__ import annotations

import base64
import contextlib
import fcntl
import logging
import re
import shutil
import subprocess
import time
import uuid
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from importlib import resources
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from schemas.credentials import KafkaCredentials, write_secret
from services.plane.broker.security import BrokerSecurity, administrator_of
from services.plane.machine.errors import DISK_FULL, FORBIDDEN, READ_ONLY, StackError, disk_error
from services.plane.machine.home import jars_directory
from services.plane.machine.jars import classpath
from services.plane.machine.java import CLASS_ARCHIVE, JavaRuntime, find_java, shared_classes
from services.plane.machine.ports import HOST, free_ports, why_taken
from services.plane.machine.processes import last_text, status_text

FREE_BYTES_WANTED = 64 * 1024 * 1024
FORMAT_SECONDS = 60
ATTEMPT_SECONDS = 0.2
LAST_LINES_BYTES = 256 * 1024


@dataclass(eq=False)
class EmbeddedBroker:
    """One broker on one directory: ``start`` returns when it answers, ``stop`` when it has ended.

    ``port=0`` takes the port of the last start on this directory, or a free port at the first start.
    """

    number = 1
    """Number of the node; tests make clusters of several nodes."""

    directory: Path
    _: KW_ONLY
    port: int = 0
    heap: str = "512m"
    jars: Path | None = None
    java: JavaRuntime | None = None
    ready_seconds: float = 60
    stop_seconds: float = 20
    security: BrokerSecurity | None = None
    writes_class_archive: bool = False

    def __post_init__(self) -> None:
        self.directory = self.directory.absolute()
        self.log_file = self.directory / "broker.log"
        self._output_file = self.directory / "broker.out"
        self._properties_file = self.directory / "server.properties"
        self._records = self.directory / "records"
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def bootstrap_servers(self) -> str:
        """Address for clients, known after the first start."""
        if self.port == 0:
            raise StackError("The broker has no port yet: start it first.")
        return f"{HOST}:{self.port}"

    @property
    def process_id(self) -> int | None:
        """The process id while the broker runs, else None."""
        return self._process.pid if self._process is not None and self.is_running else None

    @property
    def is_running(self) -> bool:
        """Whether the process runs. ``start`` has waited until the broker answers."""
        return self._process is not None and self._process.poll() is None

    def start(self) -> Self:
        """Start the broker and wait until it answers a client. Raise StackError if it does not answer in time."""
        if not self.is_running:
            self.launch()
            self.await_answer()
        return self

    def launch(self) -> None:
        """Start without waiting for an answer: a node of a cluster answers only when a majority of the nodes runs."""
        self.java = self.java or find_java()
        jars = classpath(self.jars or jars_directory(), "kafka")
        try:
            if self.security is not None:
                self.security.prepare(self.java)
            self._prepare()
            self._format(jars)
            with self._output_file.open("wb") as output:
                self._process = subprocess.Popen(
                    self._command(jars, "kafka.Kafka", f"-Xmx{self.heap}", "-XX:+UseSerialGC", *self._classes()),
                    cwd=self.directory,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    # Ctrl-C in the terminal must not reach the broker: the plane stops the broker last.
                    start_new_session=True,
                )
        except OSError as error:
            raise disk_error(self.directory, error) from error

    def stop(self) -> None:
        """Send SIGTERM, wait, and kill the broker if it does not end in time. Do nothing if it does not run."""
        if self._process is None:
            return
        self._process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(self.stop_seconds)
        self.kill()

    def kill(self) -> None:
        """Kill the broker, as a crash would. Written records still exist at the next start."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def why_it_ended(self) -> StackError:
        """Return the error that the logs give for an unexpected end."""
        status = None if self._process is None else self._process.poll()
        ended = "is not running" if status is None else f"ended with status {status_text(status)}"
        return self._failure(ended, self._last_lines())

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _prepare(self) -> None:
        """Prepare the directory, choose the ports, and write the configuration."""
        self.directory.mkdir(parents=True, exist_ok=True)
        free_bytes = shutil.disk_usage(self.directory).free
        if free_bytes < FREE_BYTES_WANTED:
            raise StackError(
                f"The disk under {self.directory} is full ({free_bytes // 1024**2} MiB free, the broker wants "
                f"{FREE_BYTES_WANTED // 1024**2}): free some space there or choose another directory."
            )
        self._require_unused()
        self.port = self.port or self._last_port() or free_ports(1)[0]
        if taken := why_taken(self.port):
            if isinstance(taken, PermissionError):
                raise StackError(f"Port {self.port} may not be used by this user: choose one above 1023.") from taken
            raise StackError(
                f"Port {self.port} on {HOST} is in use: stop the program that holds it, or choose another port."
            ) from taken
        write_secret(self._properties_file, self._properties())
        if self.log_file.is_file():  # so that the log only describes this start
            self.log_file.replace(self.directory / "broker.previous.log")

    def _properties(self) -> str:
        """Return the content of ``server.properties``."""
        text = resources.files("services.plane.broker").joinpath("server.properties").read_text()
        ports = self._controller_ports()
        voters = ",".join(f"{number}@{HOST}:{port}" for number, port in enumerate(ports, start=1))
        for name, value in {
            "node": self.number,
            "port": self.port,
            "controller_port": ports[self.number - 1],
            "voters": voters,
            "copies": len(ports),
            "least_copies": len(ports) // 2 + 1,
            "records": str(self._records).replace("\\", "\\\\"),
        }.items():
            text = text.replace("{{" + name + "}}", str(value))
        return text if self.security is None else self.security.secured(text)

    def _controller_ports(self) -> Sequence[int]:
        """Return a port for each node in the order of their numbers; each node is also a controller."""
        return [next(port for port in free_ports(2) if port != self.port)]

    def _new_cluster_id(self) -> str:
        return new_cluster_id()

    def _require_unused(self) -> None:
        """Raise StackError if a live broker holds the directory's lock, before a file in it is overwritten."""
        lock = self._records / ".lock"
        if not lock.is_file():
            return
        with lock.open("r+b") as held:
            try:
                fcntl.lockf(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise StackError(_IN_USE.format(directory=self.directory)) from error

    def _last_port(self) -> int:
        if not self._properties_file.is_file():
            return 0
        listener = re.search(r"^listeners=\w+://[^:]+:(\d+)", self._properties_file.read_text(), re.MULTILINE)
        return int(listener[1]) if listener else 0

    def _format(self, jars: str) -> None:
        """Give a new directory its cluster id; leave a formatted directory unchanged."""
        if (self._records / "meta.properties").is_file():
            return
        options = ("-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
        *command, properties = self._command(
            jars, "kafka.tools.StorageTool", *options, *shared_classes(self._class_archive)
        )
        command += ["format", "--ignore-formatted", "-t", self._new_cluster_id(), "-c", properties]
        try:
            run = subprocess.run(
                command, cwd=self.directory, capture_output=True, text=True, timeout=FORMAT_SECONDS, check=False
            )
        except subprocess.TimeoutExpired as error:
            raise StackError(
                f"Kafka's storage tool did not finish within {FORMAT_SECONDS} seconds: "
                f"see what keeps this machine busy, then start again."
            ) from error
        if run.returncode != 0:
            self._output_file.write_text(run.stdout + run.stderr)
            raise self._failure("could not format its storage", run.stdout + run.stderr)

    def _command(self, jars: str, main_class: str, *options: str) -> list[str]:
        assert self.java is not None  # noqa: S101  launch() has set it
        log_settings = resources.files("services.plane.broker").joinpath("log4j2.xml")
        copy = self.directory / "log4j2.xml"
        copy.write_text(log_settings.read_text())
        return [
            str(self.java.executable),
            *options,
            "-Djava.awt.headless=true",
            f"-Dlog4j2.configurationFile={copy.as_uri()}",
            f"-Ddeepclean.log={self.log_file}",
            *("-cp", jars, main_class, str(self._properties_file)),
        ]

    @property
    def _class_archive(self) -> Path:
        return (self.jars or jars_directory()) / "kafka" / CLASS_ARCHIVE

    def _classes(self) -> list[str]:
        archive = self._class_archive
        return [f"-XX:ArchiveClassesAtExit={archive}"] if self.writes_class_archive else shared_classes(archive)

    def await_answer(self) -> None:
        """Wait until the broker answers a request for metadata. Raise StackError if it ends or the time is over."""
        assert self._process is not None  # noqa: S101  launch() has set it
        deadline = time.monotonic() + self.ready_seconds
        try:
            with quiet_admin(self.bootstrap_servers, administrator_of(self.security)) as admin:
                while time.monotonic() < deadline:
                    with contextlib.suppress(KafkaException):
                        if self.number in admin.list_topics(timeout=ATTEMPT_SECONDS).brokers:
                            return
                    status = self._process.poll()
                    if status is not None:
                        what = f"stopped at its start with status {status_text(status)}"
                        raise self._failure(what, self._last_lines())
            raise StackError(
                f"The broker did not answer on {self.bootstrap_servers} within {self.ready_seconds:g} seconds: "
                f"read {self.log_file}, or start again when the machine is less busy."
            )
        except BaseException:
            self.kill()
            raise

    def _last_lines(self) -> str:
        """Return the last lines of both logs."""
        return "\n".join(last_text(file, LAST_LINES_BYTES) for file in (self.log_file, self._output_file))

    def _failure(self, what: str, printed: str) -> StackError:
        """Return the error for a failure: with the remedy if the printed text is known, else with the file to read."""
        for pattern, sentence in _KNOWN_FAILURES:
            if re.search(pattern, printed):
                return StackError(sentence.format(directory=self.directory, port=self.port))
        complaint = re.search(r"^.*\b(?:FATAL|ERROR|Exception|Error)\b.*$", printed, re.MULTILINE)
        said = f" ({complaint[0].strip()[:300]})" if complaint else ""
        where = self.log_file if self.log_file.is_file() else self._output_file
        return StackError(f"The broker {what}{said}: read {where}, mend what it names and start again.")


_IN_USE = "Another broker is running on {directory}: stop that one (deepclean down) or choose another directory."
_KNOWN_FAILURES = (
    (
        r"Address already in use|BindException",
        "Port {port} was taken while the broker started: stop the program that holds it, or choose another port.",
    ),
    (r"No space left on device|Disk quota exceeded", DISK_FULL),
    (r"Read-only file system", READ_ONLY),
    (r"Failed to acquire lock on file", _IN_USE),
    (
        r"Could not reserve enough space|Cannot allocate memory|OutOfMemoryError",
        "There is not enough memory to start the broker: end other programs, or give it a smaller heap.",
    ),
    (r"AccessDeniedException|Permission denied", FORBIDDEN),
)


_silent = logging.getLogger("deepclean.broker.connections")
_silent.propagate = False
_silent.addHandler(logging.NullHandler())


def quiet_admin(bootstrap_servers: str, credentials: KafkaCredentials | None = None) -> AdminClient:
    """Return an admin client that reconnects quickly and does not log refused connections, normal during a start."""
    settings: dict[str, Any] = {
        **(credentials.client_settings() if credentials else {}),
        "bootstrap.servers": bootstrap_servers,
        "reconnect.backoff.ms": 50,
        "reconnect.backoff.max.ms": 100,
        "socket.connection.setup.timeout.ms": 2000,
    }
    return AdminClient(settings, logger=_silent)


def new_cluster_id() -> str:
    """Return a random cluster id in Kafka's format.

    An id never starts with ``-``, because the storage tool would take it for an option.
    """
    while True:
        cluster = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        if not cluster.startswith("-"):
            return cluster
