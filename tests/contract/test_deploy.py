"""What ``deploy`` says of processes, ports, settings and topics is so; tools that are installed read its files."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

import streaming.__main__ as streaming
from schemas.credentials import CredentialsError, login_file_of, read_credentials, read_secret
from services.cli.main import SUB_COMMANDS, app
from services.domain.topic_rules import WANTED
from services.plane.machine.jars import ROOTS
from services.plane.stack.description import read_description
from services.plane.stack.process_names import DATANODE, HTTP_PROCESSES, METADATA, SERVICES, STREAMING
from services.plane.stack.settings import UNDO_WINDOW_MS
from services.plane.stack.supervisor import DEFAULT_BASE_PORT
from tests.contract.test_docs import _check_command, _command, _known_settings
from tests.metric_catalogue import ROOT

DEPLOY = ROOT / "deploy"
CHART = DEPLOY / "helm" / "deepclean"
IMAGE = DEPLOY / "image"
SYSTEMD = DEPLOY / "systemd"
PORTS = {name: DEFAULT_BASE_PORT + 1 + index for index, name in enumerate(HTTP_PROCESSES)}
VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["version"]
DIFF_COMMAND = "-m streaming.diff --jars-directory /opt/deepclean/.deepclean/jars/spark"
KUBERNETES = "1.30"
ALL_OPTIONS: dict[str, Any] = {
    "shards": 4,
    "kafka": {"existingSecret": "kafka"},
    "signing": {"existingSecret": "signing"},
    "purgeHours": "22-6",
    "settings": {"DEEPCLEAN_LOG_LEVEL": "warning"},
    "instances": 3,
    "streaming": {"conf": {"spark.executor.memory": "2g"}},
    "imagePullSecrets": [{"name": "registry"}],
    "nodeSelector": {"disk": "ssd"},
    "tolerations": [{"operator": "Exists"}],
    "affinity": {"nodeAffinity": {}},
    "podAnnotations": {"team": "storage"},
    "networkPolicy": {"from": [{"namespaceSelector": {}}]},
    "tools": {"enabled": True},
    "serviceMonitor": {"enabled": True, "labels": {"release": "prometheus"}},
    "prometheusRule": {"enabled": True},
}


def _read(path: Path) -> Any:
    return yaml.safe_load(path.read_text("utf-8"))


def _compose() -> Any:
    return _read(DEPLOY / "compose" / "compose.yaml")


def _env(name: str) -> dict[str, str]:
    lines = (SYSTEMD / f"{name}.env").read_text("utf-8").splitlines()
    pairs = [line.split("=", 1) for line in lines if line and not line.startswith("#")]
    return {key: value.strip('"') for key, value in pairs}


def _run(*command: str | Path, stdin: str = "") -> str:
    run = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=120, check=False, input=stdin)
    assert run.returncode == 0, run.stdout + run.stderr
    return run.stdout


def _tool(name: str, package: str) -> str:
    found = shutil.which(name)
    if found is None:
        pytest.skip(f"{name} is not installed ({package})")
    return found


def _streaming_options(arguments: list[str], monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(sys, "argv", ["streaming", *arguments])
    return streaming.parse()


FILES = sorted([path for path in DEPLOY.rglob("*") if path.is_file() and path.suffix != ".json"])


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(DEPLOY)))
def test_settings_in_it_exist(path: Path) -> None:
    named = re.findall(r"(?<![\w$])DEEPCLEAN_[A-Z_]+[A-Z]\b", path.read_text("utf-8"))
    assert set(named) <= _known_settings()


class TestImage:
    def test_the_entrypoint_starts_every_process_and_hides_no_command(self) -> None:
        text = (IMAGE / "entrypoint.sh").read_text("utf-8")
        first, second = re.findall(r"^  ([\w |]+)\)$", text, re.MULTILINE)
        assert set(first.split(" | ")) == {*SERVICES, DATANODE}
        assert second == STREAMING
        assert not {*SERVICES, DATANODE, STREAMING} & {
            command.name for group in SUB_COMMANDS.values() for command in group
        }

    @pytest.mark.parametrize(
        ("arguments", "started"),
        [
            (("key_deletion", "--shards", "0 1"), "python -m services.key_deletion --shards 0 1"),
            (("streaming", "--shards=1"), "python -m streaming --shards=1"),
            (("topics", "check"), "deepclean topics check"),
            ((), "deepclean "),
        ],
    )
    def test_the_entrypoint_passes_its_arguments_on(
        self, arguments: tuple[str, ...], started: str, tmp_path: Path
    ) -> None:
        for program in ("python", "deepclean"):
            (tmp_path / program).write_text(f'#!/bin/sh\necho "{program} $*"\n')
            (tmp_path / program).chmod(0o755)
        run = subprocess.run(
            ["/bin/sh", IMAGE / "entrypoint.sh", *arguments],
            env={"PATH": str(tmp_path)},
            capture_output=True,
            text=True,
            check=True,
        )
        assert run.stdout == f"{started}\n"

    def test_the_version_is_that_of_the_project(self) -> None:
        dockerfile = (IMAGE / "Dockerfile").read_text("utf-8")
        assert set(re.findall(r"^ARG VERSION=(.+)$", dockerfile, re.MULTILINE)) == {VERSION}
        images = {one["image"] for one in _compose()["services"].values()}
        assert {image for image in images if image.startswith("deepclean:")} == {f"deepclean:{VERSION}"}
        chart = _read(CHART / "Chart.yaml")
        assert chart["version"] == chart["appVersion"] == VERSION

    def test_all_that_a_wheel_needs_gets_into_the_build(self) -> None:
        project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
        seen = set(re.findall(r"^!(.+)$", (IMAGE / "Dockerfile.dockerignore").read_text("utf-8"), re.MULTILINE))
        packages = project["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
        assert {*packages, "README.md", "LICENSE", "hatch_build.py", "pyproject.toml"} <= seen
        assert all((ROOT / name).exists() for name in seen)


class TestCompose:
    def test_every_process_is_there_once_on_its_port(self, monkeypatch: pytest.MonkeyPatch) -> None:
        found = {}
        for name, one in _compose()["services"].items():
            match one.get("command", [""])[0]:
                case process if process in SERVICES:
                    assert process == name
                    found[name] = int(one["environment"]["DEEPCLEAN_HTTP_PORT"])
                    assert one["environment"]["DEEPCLEAN_SHARDS"] == "0"
                case process if process == STREAMING:
                    options = _streaming_options(one["command"][1:], monkeypatch)
                    found[name] = options.metrics_port
                    assert f":{options.metrics_port}/healthz" in " ".join(one["healthcheck"]["test"])
        assert found == PORTS

    def test_commands_reach_every_process(self) -> None:
        described = tomllib.loads((DEPLOY / "compose" / "deepclean.toml").read_text("utf-8"))
        assert described["host"]["processes"] == []
        assert described["elsewhere"] == {name: f"127.0.0.1:{port}" for name, port in PORTS.items()}

    def test_the_brokers_are_set_as_topics_are_wanted(self) -> None:
        brokers = [one for name, one in _compose()["services"].items() if name.startswith("kafka-")]
        assert {one["image"] for one in brokers} == {f"apache/kafka:{dict(_kafka_versions())['kafka_2.13']}"}
        assert len(brokers) == 3
        for broker in brokers:
            settings = {
                name.removeprefix("KAFKA_").lower().replace("_", "."): value
                for name, value in broker["environment"].items()
            }
            assert settings["log.message.timestamp.type"] == WANTED["message.timestamp.type"]
            assert settings["log.retention.ms"] == WANTED["retention.ms"]
            assert settings["log.retention.bytes"] == WANTED["retention.bytes"]
            assert settings["unclean.leader.election.enable"] == WANTED["unclean.leader.election.enable"]
            assert settings["default.replication.factor"] == str(len(brokers))
            assert settings["min.insync.replicas"] == str(len(brokers) // 2 + 1)
            own = (ROOT / "services/plane/broker/server.properties").read_text("utf-8")
            for name, value in re.findall(r"^([a-z.]+)=([^{\n]+)$", own, re.MULTILINE):
                if name in settings and name not in ("listener.security.protocol.map", "listeners"):
                    assert settings[name] == value, name

    def test_the_commands_exist(self) -> None:
        services = _compose()["services"]
        for name in ("topics", "plane"):
            _check_command(_command(app), services[name]["command"])

    def test_nothing_is_reached_from_other_machines(self) -> None:
        """An open plane authenticates nobody."""
        for name, one in _compose()["services"].items():
            assert all(port.startswith("127.0.0.1:") for port in one.get("ports", ())), name
            assert "DEEPCLEAN_HTTP_HOST" not in one.get("environment", {})

    def test_processes_get_what_up_gives_them(self) -> None:
        services = _compose()["services"]
        for name in (METADATA, "key_deletion", "directory_deletion"):
            variable = f"DEEPCLEAN_{name.upper()}_UNDO_WINDOW_MS"
            assert services[name]["environment"][variable] == str(UNDO_WINDOW_MS)
        assert services[METADATA]["environment"]["DEEPCLEAN_METADATA_DIFF_SPARK_COMMAND"] == f"python {DIFF_COMMAND}"

    def test_compose_accepts_it(self) -> None:
        docker = _tool("docker", "Debian: docker-cli, and the compose plugin")
        if subprocess.run([docker, "compose", "version"], capture_output=True, check=False).returncode:
            pytest.skip("docker has no compose plugin")
        _run(docker, "compose", "--file", DEPLOY / "compose" / "compose.yaml", "config", "--quiet")


def _kafka_versions() -> list[tuple[str, str]]:
    return [(module, version) for _, module, version in ROOTS["kafka"]]


class TestSystemd:
    def test_every_process_has_its_port_and_what_up_gives_it(self, monkeypatch: pytest.MonkeyPatch) -> None:
        options = _streaming_options(
            ["--bootstrap-servers=k:9092", "--checkpoint=/c", *shlex.split(_env(STREAMING)["STREAMING_OPTIONS"])],
            monkeypatch,
        )
        ports = {name: int(_env(name)["DEEPCLEAN_HTTP_PORT"]) for name in SERVICES}
        assert ports | {STREAMING: options.metrics_port} == PORTS
        for name in (METADATA, "key_deletion", "directory_deletion"):
            assert _env(name)[f"DEEPCLEAN_{name.upper()}_UNDO_WINDOW_MS"] == str(UNDO_WINDOW_MS)
        command = _env(METADATA)["DEEPCLEAN_METADATA_DIFF_SPARK_COMMAND"]
        assert command == f"/opt/deepclean/.venv/bin/python {DIFF_COMMAND}"

    def test_a_job_that_may_succeed_now_is_started_again(self) -> None:
        unit = (SYSTEMD / "deepclean-streaming.service").read_text("utf-8")
        assert f"RestartForceExitStatus={streaming.TRY_AGAIN_STATUS}\n" in unit
        assert "Restart=always\n" in unit

    @pytest.mark.parametrize("unit", ["deepclean-service@.service", "deepclean-streaming.service"])
    def test_systemd_accepts_it(self, unit: str, tmp_path: Path) -> None:
        analyze = _tool("systemd-analyze", "Debian: systemd")
        text = (SYSTEMD / unit).read_text("utf-8").replace("/opt/deepclean/.venv/bin/python", sys.executable)
        copy = tmp_path / unit.replace("@", "@metadata")
        copy.write_text(text)
        run = subprocess.run([analyze, "verify", "--man=no", copy], capture_output=True, text=True, check=False)
        assert run.returncode == 0, run.stderr
        assert copy.name not in run.stderr, "a key that systemd does not know is only a warning"


class TestSecretsOfPods:
    """Kubernetes gives a Secret's files to a group, which the program refuses; a container copies them first."""

    COMMAND = re.search(r"^ +(install .+)$", (CHART / "templates" / "_helpers.tpl").read_text("utf-8"), re.MULTILINE)
    LOGIN = re.search(r"^ +(python -c .+)$", (CHART / "templates" / "_helpers.tpl").read_text("utf-8"), re.MULTILINE)

    def test_copies_are_accepted_where_the_mounted_files_are_not(self, tmp_path: Path) -> None:
        mounted, own = tmp_path / "secrets", tmp_path / "run"
        (mounted / "..data").mkdir(parents=True)
        own.mkdir()
        login = {"username": "streaming", "password": "of-streaming", "ca_file": "/run/deepclean/ca.pem"}
        (mounted / "..data" / "streaming.json").write_text(json.dumps(login))
        (mounted / "..data" / "streaming.json").chmod(0o440)
        (mounted / "streaming.json").symlink_to("..data/streaming.json")
        with pytest.raises(CredentialsError, match="may be read by others"):
            read_secret(mounted / "streaming.json")
        assert self.COMMAND is not None
        assert self.LOGIN is not None
        for found in (self.COMMAND, self.LOGIN):
            script = found[1].replace("/run/deepclean", str(own)).replace("/secrets", str(mounted))
            _run("sh", "-euc", script.replace("python -c", f"{sys.executable} -c"))
        assert read_credentials(own / "streaming.json").password == "of-streaming"  # noqa: S105
        jaas = login_file_of({"DEEPCLEAN_KAFKA_CREDENTIALS_FILE": str(own / "streaming.json")})
        assert jaas is not None
        assert 'password="of-streaming"' in read_secret(jaas)


class TestChart:
    def test_its_ports_and_services_are_those_of_the_code(self) -> None:
        helpers = (CHART / "templates" / "_helpers.tpl").read_text("utf-8")
        (line,) = re.findall(r"\$ports := dict (.+?) -}}", helpers)
        assert {name: int(port) for name, port in re.findall(r'"(\w+)" (\d+)', line)} == PORTS
        values = _read(CHART / "values.yaml")
        assert set(values["services"]) == set(SERVICES)
        assert values["undoWindowMs"] == UNDO_WINDOW_MS

    def test_the_alerts_are_those_of_prometheus(self) -> None:
        assert (CHART / "files" / "rules.yml").resolve() == DEPLOY / "prometheus" / "rules.yml"

    @pytest.mark.parametrize("values", [{}, ALL_OPTIONS], ids=["default", "all options"])
    def test_helm_renders_what_the_code_wants(
        self, values: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        rendered = _rendered(values, tmp_path)
        by_kind: dict[str, list[Any]] = {}
        for one in rendered:
            by_kind.setdefault(one["kind"], []).append(one)
        shards = values.get("shards", 1)
        assert len(by_kind["StatefulSet"]) == len(SERVICES)
        for stateful in by_kind["StatefulSet"]:
            _check_service(stateful, shards, values.get("instances", 2))
        pods = {one["metadata"]["name"]: one["spec"] for one in by_kind["Service"] if "clusterIP" in one["spec"]}
        assert pods.keys() == {one["spec"]["serviceName"] for one in by_kind["StatefulSet"]}
        assert all((one["clusterIP"], one["publishNotReadyAddresses"]) == ("None", True) for one in pods.values())
        job, *tools = sorted(by_kind["Deployment"], key=lambda one: str(one["metadata"]["name"]))
        assert (job["spec"]["replicas"], job["spec"]["strategy"]) == (1, {"type": "Recreate"})
        name, *arguments = _container(job)["args"]
        options = _streaming_options(arguments, monkeypatch)
        assert (name, options.shards, options.metrics_port) == (STREAMING, shards, PORTS[STREAMING])
        (topics,) = by_kind["Job"]
        _check_command(_command(app), [one.partition("=")[0] for one in _container(topics)["args"]])
        assert set(by_kind["ConfigMap"][0]["data"]) <= _known_settings()
        for workload in (*by_kind["StatefulSet"], job, *tools, topics):
            _check_hardened(workload)
        for one in tools:
            _check_tools(one, shards, monkeypatch)

    def test_tools_want_a_secured_plane(self, tmp_path: Path) -> None:
        with pytest.raises(AssertionError, match=r"tools\.enabled wants"):
            _rendered({"tools": {"enabled": True}}, tmp_path)

    def test_signatures_that_nobody_registers_are_warned_of(self, tmp_path: Path) -> None:
        signing = {"signing": {"existingSecret": "signing"}}
        assert "WARNING" in _notes(signing, tmp_path)
        notes = _notes({}, tmp_path)
        assert "WARNING" not in notes
        assert "networkPolicy.from" in notes
        notes = _notes(ALL_OPTIONS, tmp_path)
        assert "WARNING" not in notes
        assert "networkPolicy.from" not in notes
        (tools,) = re.findall(r"exec deploy/(\S+)", notes)
        deployments = [one for one in _rendered(ALL_OPTIONS, tmp_path) if one["kind"] == "Deployment"]
        assert tools in {one["metadata"]["name"] for one in deployments}

    def test_a_setting_goes_before_the_charts_own(self, tmp_path: Path) -> None:
        name = "DEEPCLEAN_KEY_DELETION_UNDO_WINDOW_MS"
        values = {"settings": {name: 86_400_000, "DEEPCLEAN_SNAPSHOTS_IS_RENAME_ALLOWED": True}}
        (found,) = [one["data"] for one in _rendered(values, tmp_path) if one["kind"] == "ConfigMap"]
        assert int(found[name]) == 86_400_000
        assert found["DEEPCLEAN_SNAPSHOTS_IS_RENAME_ALLOWED"] == "true"

    @pytest.mark.parametrize("values", [{}, ALL_OPTIONS], ids=["default", "all options"])
    def test_kubernetes_accepts_it(self, values: dict[str, Any], tmp_path: Path) -> None:
        validate = pytest.importorskip("kubernetes_validate", reason="pip install kubernetes-validate")
        for one in _rendered(values, tmp_path):
            if not one["apiVersion"].startswith("monitoring.coreos.com/"):  # the operator's own kinds
                validate.validate(one, KUBERNETES, strict=True)


def _rendered(values: dict[str, Any], scratch: Path) -> list[Any]:
    chosen = ("--kube-version", KUBERNETES, "--values", _saved(values, scratch))
    _run(_helm(), "lint", "--strict", CHART, *chosen)
    return [one for one in yaml.safe_load_all(_run(_helm(), "template", "deepclean", CHART, *chosen)) if one]


def _notes(values: dict[str, Any], scratch: Path) -> str:
    """What Helm says after an install. Without a cluster it shows templates alone: one prints the notes."""
    chart = scratch / "chart"
    shutil.copytree(CHART, chart, dirs_exist_ok=True)
    shutil.copy(CHART / "templates" / "NOTES.txt", chart / "notes")
    printed = 'kind: Notes\napiVersion: v1\nnotes: {{ tpl (.Files.Get "notes") . | quote }}\n'
    (chart / "templates" / "notes.yaml").write_text(printed)
    chosen = ("--kube-version", KUBERNETES, "--values", _saved(values, scratch), "--show-only", "templates/notes.yaml")
    return str(yaml.safe_load(_run(_helm(), "template", "deepclean", chart, *chosen))["notes"])


def _helm() -> str:
    return _tool("helm", "go install helm.sh/helm/v3/cmd/helm@latest")


def _saved(values: dict[str, Any], scratch: Path) -> Path:
    file = scratch / "values.yaml"
    file.write_text(yaml.safe_dump(values))
    return file


def _container(workload: Any) -> Any:
    (one,) = workload["spec"]["template"]["spec"]["containers"]
    return one


def _check_service(stateful: Any, shards: int, instances: int) -> None:
    """Each pod may run each shard, under a name of its own at an address of its own; its port is that of the code."""
    container, name = _container(stateful), stateful["metadata"]["labels"]["app.kubernetes.io/component"]
    environment = {one["name"]: one.get("value") or one["valueFrom"] for one in container["env"]}
    assert int(environment["DEEPCLEAN_HTTP_PORT"]) == container["ports"][0]["containerPort"] == PORTS[name]
    assert set(environment) <= _known_settings()
    assert container["args"] == [name, "--shards", ",".join(map(str, range(shards)))]
    assert stateful["spec"]["replicas"] == instances
    assert environment["DEEPCLEAN_INSTANCE"] == {"fieldRef": {"fieldPath": "metadata.name"}}
    of_pod = f"http://$(DEEPCLEAN_INSTANCE).{stateful['spec']['serviceName']}.default.svc:{PORTS[name]}"
    assert environment["DEEPCLEAN_ADVERTISED_URL"] == of_pod
    assert environment["DEEPCLEAN_HAS_ADDED_SHARDS"] == "true"
    for probe, path in (("startupProbe", "/readyz"), ("livenessProbe", "/healthz"), ("readinessProbe", "/readyz")):
        assert container[probe]["httpGet"] == {"path": path, "port": "http"}
    assert container["startupProbe"]["periodSeconds"] * container["startupProbe"]["failureThreshold"] >= 900


def _check_tools(tools: Any, shards: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands there reach every process, and start none."""
    container = _container(tools)
    for one in container["env"]:
        monkeypatch.setenv(one["name"], one["value"])
    described = read_description(None)
    assert (described.shards, described.host.processes, described.host.instance) == (shards, (), "tools")
    assert described.elsewhere == {name: f"deepclean-{name.replace('_', '-')}:{port}" for name, port in PORTS.items()}
    _check_command(_command(app), container["args"])


def _check_hardened(workload: Any) -> None:
    pod = workload["spec"]["template"]["spec"]
    assert pod["automountServiceAccountToken"] is False
    assert pod["enableServiceLinks"] is False, "its variables would be unknown settings"
    assert pod["securityContext"]["runAsNonRoot"] is True
    for container in (*pod.get("initContainers", ()), *pod["containers"]):
        assert container["securityContext"]["readOnlyRootFilesystem"] is True
        assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
        assert container["resources"]["limits"]["memory"]
