"""What the processes of the plane are called, and the environment in which each of them is started."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from schemas.credentials import FILE_VARIABLE
from services.domain.authorization import SERVICES as SIGNERS
from services.plane.broker.security import BrokerSecurity
from services.plane.machine.home import jars_directory
from services.plane.machine.java import JavaRuntime, spark_java_home

BROKER = "broker"
STREAMING = "streaming"
METADATA = "metadata"
SERVICES = (METADATA, "snapshots", "key_deletion", "directory_deletion", "mock_scm")
HTTP_PROCESSES = (*SERVICES, STREAMING)
"""All that serve /metrics; with a base port they follow the broker's in this order."""


@dataclass(frozen=True, slots=True)
class PlaneSettings:
    """What all processes of a plane have in common."""

    home: Path
    bootstrap_servers: str
    shards: int
    java: JavaRuntime
    security: BrokerSecurity | None = None


def child_command(name: str, plane: PlaneSettings, port: int) -> list[str]:
    """The command line of a process."""
    if name != STREAMING:
        return [sys.executable, "-m", f"services.{name}"]
    return [
        *(sys.executable, "-m", "streaming", "--bootstrap-servers", plane.bootstrap_servers),
        *("--shards", str(plane.shards), "--checkpoint", str(plane.home / "data" / STREAMING)),
        *("--jars-directory", str(jars_directory() / "spark"), "--metrics-port", str(port)),
        *(("--metrics-token-file", str(plane.security.token_file)) if plane.security else ()),
    ]


def child_environment(name: str, plane: PlaneSettings, port: int) -> dict[str, str]:
    """Settings of one process, as it reads them from its environment."""
    secrets = _secret_files(name, plane.security)
    if name == STREAMING:
        return {**secrets, "JAVA_HOME": str(spark_java_home(plane.java, plane.home))}
    environment = {
        **secrets,
        "DEEPCLEAN_BOOTSTRAP_SERVERS": plane.bootstrap_servers,
        "DEEPCLEAN_SHARDS": ",".join(map(str, range(plane.shards))),
        "DEEPCLEAN_DIRECTORY": str(plane.home / "data"),
        "DEEPCLEAN_HTTP_PORT": str(port),
    }
    if name == METADATA:
        command = [sys.executable, "-m", "streaming.diff", "--jars-directory", str(jars_directory() / "spark")]
        environment["DEEPCLEAN_METADATA_DIFF_SPARK_COMMAND"] = shlex.join(command)
        environment["JAVA_HOME"] = str(spark_java_home(plane.java, plane.home))
    return environment


def _secret_files(name: str, security: BrokerSecurity | None) -> dict[str, str]:
    """Where a process finds its secrets: the environment names the files, and holds none."""
    if security is None:
        return {}
    signing = {"DEEPCLEAN_SIGNING_SECRET_FILE": str(security.signing_file(name))} if name in SIGNERS else {}
    return {
        **signing,
        FILE_VARIABLE: str(security.credentials_file(name)),
        "DEEPCLEAN_HTTP_TOKEN_FILE": str(security.token_file),
    }


UNDO_WINDOW_MS = 300_000
"""How long a deletion can be undone on a plane that stays, unless its environment says otherwise."""
_UNDO_WINDOW_NAMES = tuple(
    f"DEEPCLEAN_{service}_UNDO_WINDOW_MS" for service in ("KEY_DELETION", "DIRECTORY_DELETION", "METADATA")
)


_PURGE_HOURS_NAME = "DEEPCLEAN_{}_PURGE_HOURS"


def undo_window_settings(environment: Mapping[str, str], window_ms: int = UNDO_WINDOW_MS) -> dict[str, str]:
    """The undo window of all services that have to do with it, but for those whose environment sets their own."""
    return {name: str(window_ms) for name in _UNDO_WINDOW_NAMES if name not in environment}


def purge_hours_settings(environment: Mapping[str, str]) -> dict[str, str]:
    """The hours in which key_deletion claims, for metadata, which measures what comes late; unless it has its own."""
    hours, name = environment.get(_PURGE_HOURS_NAME.format("KEY_DELETION")), _PURGE_HOURS_NAME.format("METADATA")
    return {} if hours is None or name in environment else {name: hours}


def rename_setting(*, is_allowed: bool) -> dict[str, str]:
    """Whether snapshots may be renamed."""
    return {"DEEPCLEAN_SNAPSHOTS_IS_RENAME_ALLOWED": "true" if is_allowed else "false"}
