"""A real Kafka broker as a child process: one node with its own controller, on loopback, in one directory.

The directory holds ``server.properties`` (written at every start), ``records`` (the topics), ``broker.log``,
``broker.previous.log`` (of the previous start) and ``broker.out`` (the JVM's output). A broker can be started again
on its directory at any time, on the same port and with all records.
"""

from __future__ import annotations

import base64
import fcntl
import re
import shutil
import subprocess
import uuid
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from importlib import resources
from pathlib import Path
from types import TracebackType
from typing import Self

from schemas.credentials import write_secret
from services.plane.broker.broker_logs import IN_USE, BrokerLogs
from services.plane.broker.launched import LaunchedBroker
from services.plane.broker.security import BrokerSecurity, administrator_of
from services.plane.machine.errors import StackError, disk_error
from services.plane.machine.home import jars_directory
from services.plane.machine.jars import classpath
from services.plane.machine.java import CLASS_ARCHIVE, JavaRuntime, find_java, shared_classes
from services.plane.machine.ports import HOST, free_ports, hold_port

FREE_BYTES_WANTED = 64 * 1024 * 1024
FORMAT_SECONDS = 60


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
        self._logs = BrokerLogs(self.directory)
        self._properties_file = self.directory / "server.properties"
        self._records = self.directory / "records"
        self._launched: LaunchedBroker | None = None
        self.port = self.port or self._last_port()
        if self.port:
            hold_port(self.port)  # whether a server can listen is asked at the start

    @property
    def bootstrap_servers(self) -> str:
        """Address for clients, known after the first start."""
        if self.port == 0:
            raise StackError("The broker has no port yet: start it first.")
        return f"{HOST}:{self.port}"

    @property
    def log_file(self) -> Path:
        """The log that Kafka writes."""
        return self._logs.log_file

    @property
    def process_id(self) -> int | None:
        """The process id while the broker runs, else None."""
        return self._launched.process.pid if self._launched is not None and self._launched.is_running else None

    @property
    def is_running(self) -> bool:
        """Whether the process runs. ``start`` has waited until the broker answers."""
        return self._launched is not None and self._launched.is_running

    def start(self) -> Self:
        """Start the broker and wait until it answers a client. Raise StackError if it does not answer in time."""
        if self.is_running:
            return self
        launched = self.launch()
        try:
            launched.await_answer(self.ready_seconds)
        except BaseException:
            self.kill()
            raise
        return self

    def launch(self) -> LaunchedBroker:
        """Start without waiting for an answer: a node of a cluster answers only when a majority of the nodes runs."""
        java, jars = self.java or find_java(), classpath(self.jars or jars_directory(), "kafka")
        try:
            if self.security is not None:
                self.security.prepare(java)
            self._prepare()
            self._format(java, jars)
            administrator = administrator_of(self.security)
            process = self._started_process(java, jars)
        except OSError as error:
            raise disk_error(self.directory, error) from error
        self._launched = LaunchedBroker(process, self.number, self.port, self._logs, administrator)
        return self._launched

    def _started_process(self, java: JavaRuntime, jars: str) -> subprocess.Popen[bytes]:
        with self._logs.output_file.open("wb") as output:
            return subprocess.Popen(
                self._command(java, jars, "kafka.Kafka", f"-Xmx{self.heap}", "-XX:+UseSerialGC", *self._classes()),
                cwd=self.directory,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                # Ctrl-C in the terminal must not reach the broker: the plane stops the broker last.
                start_new_session=True,
            )

    def stop(self) -> None:
        """Send SIGTERM, wait, and kill the broker if it does not end in time. Do nothing if it does not run."""
        if self._launched is not None:
            self._launched.stop(self.stop_seconds)
            self._launched = None

    def kill(self) -> None:
        """Kill the broker, as a crash would. Written records still exist at the next start."""
        if self._launched is not None:
            self._launched.kill()
            self._launched = None

    def why_it_ended(self) -> StackError:
        """Return the error that the logs give for an unexpected end."""
        if self._launched is None:
            return self._logs.failure("is not running", self.port, self._logs.last_lines())
        return self._launched.why_it_ended()

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
        self.port = self.port or free_ports(1)[0]
        if taken := hold_port(self.port):
            if isinstance(taken, PermissionError):
                raise StackError(f"Port {self.port} may not be used by this user: choose one above 1023.") from taken
            raise StackError(
                f"Port {self.port} on {HOST} is in use: stop the program that holds it, or choose another port."
            ) from taken
        write_secret(self._properties_file, self._properties())
        self._logs.keep_previous()

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
        return free_ports(1)

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
                raise StackError(IN_USE.format(directory=self.directory)) from error

    def _last_port(self) -> int:
        if not self._properties_file.is_file():
            return 0
        listener = re.search(r"^listeners=\w+://[^:]+:(\d+)", self._properties_file.read_text(), re.MULTILINE)
        return int(listener[1]) if listener else 0

    def _format(self, java: JavaRuntime, jars: str) -> None:
        """Give a new directory its cluster id; leave a formatted directory unchanged."""
        if (self._records / "meta.properties").is_file():
            return
        options = ("-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
        *command, properties = self._command(
            java, jars, "kafka.tools.StorageTool", *options, *shared_classes(self._class_archive)
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
            self._logs.output_file.write_text(run.stdout + run.stderr)
            raise self._logs.failure("could not format its storage", self.port, run.stdout + run.stderr)

    def _command(self, java: JavaRuntime, jars: str, main_class: str, *options: str) -> list[str]:
        log_settings = resources.files("services.plane.broker").joinpath("log4j2.xml")
        copy = self.directory / "log4j2.xml"
        copy.write_text(log_settings.read_text())
        return [
            str(java.executable),
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


def new_cluster_id() -> str:
    """Return a random cluster id in Kafka's format.

    An id never starts with ``-``, because the storage tool would take it for an option.
    """
    while True:
        cluster = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        if not cluster.startswith("-"):
            return cluster
