"""A plane on which faults are made, and a real Prometheus that watches it: for tests that try runbooks.

The alerts are those of ``deploy/prometheus/rules.yml``. The times of each are divided by one number, so that the
longest is some seconds, and with them what a counter may grow within such a time and the seconds that are compared.
Rates over five minutes and over three days cannot be divided by one number: those of objectives have the windows of
``WINDOWS_SECONDS``, in the same order. All other numbers are unchanged, unless a test edits a rule as an operator does.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import yaml
from confluent_kafka import Producer

from schemas.topics import Topic
from services.log.kafka import KafkaLog
from services.plane.machine.errors import StackError
from services.plane.stack.plane_file import running_plane
from services.plane.stack.process_names import STREAMING
from services.plane.upkeep.found_owners import urls_of
from tests import prometheus
from tests.integration.test_dashboards import configuration, is_answering
from tests.metric_catalogue import ROOT
from tests.typed_commands import CommandLine
from tests.waiting import eventually

LONGEST_SECONDS = 10.0
"""The longest time of a rule here: several scrapes of a second."""
LONGER_SECONDS = {"DeepcleanLoopSilent": 100.0}
"""The same, of a rule that compares a shorter time: a loop may wait for the broker for a quarter of a minute."""
WINDOWS_SECONDS = {"5m": 4, "30m": 7, "1h": 10, "6h": 20, "1d": 25, "3d": 40, "7d": 60}
OF_OBJECTIVES = ("deepclean-promise", "deepclean-verdicts", "deepclean-reads")
"""Groups of rules with the windows above."""
OF_RATES = ("DeepcleanShardFillsUp",)
"""Further rules with them. metadata's figures are up to 15 seconds old."""
PATIENCE_SECONDS = 180.0
_DURATION = re.compile(r"(?<=[\[ ])(\d+)(s|m|h|d)(?=[\])\s:]|$)")
_COMPARED = re.compile(
    r"(?:(?<=_batch_timestamp_seconds > )|(?<=_input_lag_seconds > )|(?<=_step_timestamp_seconds > 0\) > ))\d+"
)
"""Seconds that a rule compares with, not a time of Prometheus."""
_GROWN = re.compile(r"(?<=_total\[)(\w+\]\) > )(\d+)")
"""What a counter may grow within a time."""
_UNIT_SECONDS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}


def shortened(rule: dict[str, Any]) -> dict[str, Any]:
    """A rule with its times divided by one number, so that the longest is ``LONGEST_SECONDS``."""
    times = [int(number) * _UNIT_SECONDS[unit] for number, unit in _DURATION.findall(rule["expr"])]
    lasts = [int(number) * _UNIT_SECONDS[unit] for number, unit in _DURATION.findall(f" {rule.get('for', '0s')}")]
    compared = [int(seconds) for seconds in _COMPARED.findall(rule["expr"])]
    longest = LONGER_SECONDS.get(rule.get("alert", ""), LONGEST_SECONDS)
    divisor = max(1.0, max([*times, *lasts, *compared, 0]) / longest)

    def shorter(found: re.Match[str]) -> str:
        return f"{max(1_000, round(1_000 * int(found[1]) * _UNIT_SECONDS[found[2]] / divisor))}ms"

    expression = _COMPARED.sub(lambda found: str(max(1, round(int(found[0]) / divisor))), rule["expr"])
    expression = _GROWN.sub(lambda found: f"{found[1]}{int(found[2]) / divisor:g}", expression)
    return _with_times({**rule, "expr": expression}, shorter)


def with_windows(rule: dict[str, Any]) -> dict[str, Any]:
    """A rule with the windows of ``WINDOWS_SECONDS``."""
    return _with_times(rule, lambda found: f"{WINDOWS_SECONDS[found[0]]}s")


def _with_times(rule: dict[str, Any], time_of: Callable[[re.Match[str]], str]) -> dict[str, Any]:
    changed = {**rule, "expr": _DURATION.sub(time_of, rule["expr"])}
    if "for" in rule:
        changed["for"] = _DURATION.sub(time_of, f" {rule['for']}").strip()
    return changed


def shortened_rules(file: Path, edits: dict[str, str]) -> Path:
    """Write all rules, edited and shortened."""
    text = (ROOT / "deploy" / "prometheus" / "rules.yml").read_text("utf-8")
    for old, new in edits.items():
        assert old in text, old
        text = text.replace(old, new)
    rules = yaml.safe_load(text)
    for group in rules["groups"]:
        group.pop("interval", None)
        is_of_objectives = group["name"] in OF_OBJECTIVES
        group["rules"] = [
            with_windows(rule) if is_of_objectives or rule.get("alert") in OF_RATES else shortened(rule)
            for rule in group["rules"]
        ]
    file.write_text(yaml.safe_dump(rules), "utf-8")
    return file


def watching(directory: Path, home: Path, job: str, edits: dict[str, str]) -> Path:
    """Write the configuration of a Prometheus that scrapes a plane each second, with shortened rules."""
    described = configuration(directory, urls_of(running_plane(home)))
    settings = yaml.safe_load(described.read_text("utf-8"))
    settings["rule_files"] = [str(shortened_rules(directory / "rules.yml", edits))]
    settings["scrape_configs"][0]["job_name"] = job
    described.write_text(yaml.safe_dump(settings), "utf-8")
    return described


@dataclass(frozen=True)
class Patient:
    """A plane on which faults are made, and the Prometheus that watches it."""

    line: CommandLine
    prometheus_url: str
    prometheus: subprocess.Popen[bytes]
    directory: Path
    lasting: ExitStack
    """What a fault does for as long as it lasts; a repair closes it."""
    edits: dict[str, str] = field(default_factory=dict)
    """What an operator has changed in the rules: old and new texts."""

    def watch(self, job: str = "deepclean") -> None:
        """Have Prometheus scrape the processes that run now."""
        watching(self.directory, self.line.home, job, self.edits)
        self.prometheus.send_signal(signal.SIGHUP)

    def edit_rules(self, edits: dict[str, str]) -> None:
        """Change numbers of the rules, as an operator does; at the end of the test they are as before."""
        self.edits.update(edits)
        self.watch()

    def switches(self) -> dict[str, Any]:
        return dict(self._asked("GET"))

    def switch(self, wanted: dict[str, Any]) -> None:
        self._asked("PUT", json=wanted)

    def _asked(self, method: str, **sent: Any) -> Any:
        url = f"{running_plane(self.line.home).processes['mock_scm'].url}/v1/switches"
        with httpx.Client(trust_env=False) as http:
            return http.request(method, url, **sent).raise_for_status().json()

    def signal(self, name: str, number: int) -> None:
        os.kill(running_plane(self.line.home).processes[name].identity.pid, number)

    def signal_java(self, name: str) -> None:
        """Signal the Java process of the Spark job, as a runbook does."""
        job = next(one for one in self.line.json("status")["processes"] if one["name"] == STREAMING)
        subprocess.run(["pkill", f"-{name}", "-P", str(job["pid"]), "java"], check=True)

    def firing(self) -> set[str]:
        return {
            found["metric"]["alertname"]
            for found in prometheus.series(self.prometheus_url, 'ALERTS{alertstate="firing"}')
        }

    def shows(self, expression: str) -> bool:
        """Whether Prometheus returns something for an expression."""
        return bool(prometheus.series(self.prometheus_url, expression))

    def value(self, expression: str) -> float:
        """What Prometheus returns for an expression of one series."""
        (found,) = prometheus.series(self.prometheus_url, expression)
        return float(found["value"][1])

    def log(self) -> KafkaLog:
        """The plane's log, as anybody reaches it who reaches the broker of a plane that is not secure."""
        return KafkaLog(running_plane(self.line.home).bootstrap_servers, "stranger")

    def send(self, topic: Topic, *messages: bytes) -> None:
        producer = self.producer()
        for message in messages:
            producer.produce(topic.name, message, partition=0)
        assert not producer.flush(30)

    def producer(self, **settings: Any) -> Producer:
        return Producer({"bootstrap.servers": running_plane(self.line.home).bootstrap_servers, **settings})

    def start_again(self) -> None:
        self.line.run("up", "--base-port", "0", "--no-page")
        self.watch()

    def rebuild_metadata(self) -> None:
        """Put a database of metadata that is built from the log in the place of the present one, as a runbook says."""
        self.line.run("down")
        database = self.line.home / "data" / "metadata" / "0"
        database.rename(database.with_name("damaged"))
        self.line.run("rebuild", "0")
        self.start_again()

    def delete_a_key(self, bucket: str) -> None:
        self.line.run("key", "put", f"{bucket}/key", "--size", "1MiB")
        self.line.run("key", "delete", f"{bucket}/key")

    def readiness(self, service: str) -> httpx.Response:
        return self.answer(service, "/readyz")

    def answer(self, service: str, path: str, **parameters: str) -> httpx.Response:
        with httpx.Client(trust_env=False) as http:
            return http.get(f"{running_plane(self.line.home).processes[service].url}{path}", params=parameters)

    def is_ready(self, service: str) -> bool:
        try:
            return self.readiness(service).is_success
        except httpx.HTTPError:
            return False

    def try_runbook(
        self, alerts: set[str], fault: Callable[[Patient], None], repair: Callable[[Patient], None]
    ) -> None:
        """Make a fault, wait until each of the alerts has fired, and see that the repair ends them and all others."""
        self.await_peace("an alert fires before the fault")
        silent = set(alerts)

        def have_fired() -> bool:
            silent.difference_update(self.firing())
            return not silent

        try:
            fault(self)
            eventually(have_fired, PATIENCE_SECONDS, f"no alert of {alerts}")
            repair(self)
            self.await_peace("the runbook does not end it")
        finally:
            self.lasting.close()
            if self.edits:
                self.edits.clear()
                with suppress(StackError):  # after a failure the plane may be down
                    self.watch()

    def await_peace(self, otherwise: str) -> None:
        """Return as soon as no alert fires; a failure names those that still do."""
        try:
            eventually(lambda: not self.firing(), PATIENCE_SECONDS)
        except AssertionError as error:
            raise AssertionError(f"{otherwise}: {', '.join(sorted(self.firing()))}") from error


@contextmanager
def admitted(directory: Path, **settings: str) -> Iterator[Patient]:
    """Start a plane with a volume and without undo windows, and the Prometheus that watches it."""
    prometheus.program("prometheus")  # before a plane is started in vain
    windows = {f"DEEPCLEAN_{name}_UNDO_WINDOW_MS": "0" for name in ("METADATA", "KEY_DELETION", "DIRECTORY_DELETION")}
    line = CommandLine(directory / "home", **windows, **settings)
    with _running(line), ExitStack() as lasting:
        line.run("volume", "create", "vol")
        # Prometheus shows the last value of a job that it does not scrape any more for that long.
        forgetting = f"--query.lookback-delta={LONGEST_SECONDS:.0f}s"
        described = watching(directory, line.home, "deepclean", {})
        with prometheus.started(described, directory, forgetting) as (url, process):
            eventually(lambda: is_answering(url))
            yield Patient(line, url, process, directory, lasting)


@contextmanager
def _running(line: CommandLine) -> Iterator[None]:
    try:
        line.run("up", "--base-port", "0", "--no-page")
        yield
    finally:
        job = running_plane(line.home).processes.get(STREAMING)
        if job is not None:  # a Java process that a failed test has stopped
            subprocess.run(["pkill", "-CONT", "-P", str(job.identity.pid), "java"], check=False)
        line.run("down")


@contextmanager
def repeated(action: Callable[[], object], pause_seconds: float = 0.0) -> Iterator[None]:
    """Do something again and again in a thread of its own."""
    ended = threading.Event()
    failures: list[BaseException] = []

    def repeat() -> None:
        try:
            while not ended.wait(pause_seconds):
                action()
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=repeat)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
    assert not failures, failures
