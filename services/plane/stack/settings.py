"""The command line and environment of each of the plane's processes."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from schemas.credentials import FILE_VARIABLE
from schemas.records import Replication
from services.domain.authorization import SERVICES as SIGNERS
from services.plane.broker.security import BrokerSecurity
from services.plane.machine.home import jars_directory
from services.plane.machine.java import JavaRuntime, spark_java_home
from services.plane.stack.description import ALL, PlaneDescription
from services.plane.stack.process_names import DATANODE, METADATA, PAGE, STREAMING
from services.runtime.process.settings import PREFIX, ServiceSettings


@dataclass(frozen=True, slots=True)
class PlaneSettings:
    """The settings that all processes of a plane share."""

    home: Path
    bootstrap_servers: str
    shards: int
    java: JavaRuntime
    security: BrokerSecurity | None = None
    datanodes: int = 0
    scm_url: str = ""
    described: PlaneDescription = field(default_factory=PlaneDescription)


def child_command(name: str, plane: PlaneSettings, port: int) -> list[str]:
    """Return the command line of a process."""
    if name == PAGE:
        return [sys.executable, "-m", f"services.{PAGE}", str(plane.home), "--port", str(port)]
    if name != STREAMING:
        return [sys.executable, "-m", f"services.{DATANODE if name.startswith(DATANODE) else name}"]
    spark, host = plane.described.spark, plane.described.host
    token_file = plane.described.http_token_file
    if not token_file and plane.security is not None:
        token_file = str(plane.security.token_file)
    return [
        *(sys.executable, "-m", "streaming", "--bootstrap-servers", plane.bootstrap_servers),
        *("--shards", str(plane.shards), "--checkpoint", str(plane.home / "data" / STREAMING)),
        *("--jars-directory", str(jars_directory() / "spark"), "--master", spark.master, "--heap", spark.heap),
        *(f"--conf={name}={value}" for name, value in spark.conf.items()),
        *("--metrics-address", host.address, "--metrics-port", str(port)),
        *(("--metrics-token-file", token_file) if token_file else ()),
    ]


def child_environment(name: str, plane: PlaneSettings, port: int) -> dict[str, str]:
    """Return the environment variables with the settings of one process."""
    if name == PAGE:  # it reads what it needs from the home, as a command does
        return {}
    described = plane.described
    secrets = _secret_files(name, plane.security)
    if described.kafka.credentials_file and not name.startswith(DATANODE):
        secrets[FILE_VARIABLE] = str(described.kafka.credentials_file)
    if name == STREAMING:
        return {**secrets, "JAVA_HOME": str(spark_java_home(plane.java, plane.home))}
    shards = described.host.shards or range(plane.shards)
    environment = {
        **secrets,
        "DEEPCLEAN_BOOTSTRAP_SERVERS": plane.bootstrap_servers,
        "DEEPCLEAN_SHARDS": ",".join(map(str, shards)),
        "DEEPCLEAN_HAS_ADDED_SHARDS": str(described.host.shards is None).lower(),
        "DEEPCLEAN_INSTANCE": described.host.instance,
        "DEEPCLEAN_DIRECTORY": str(plane.home / "data"),
        "DEEPCLEAN_BACKUPS": str(described.host.backups.absolute()) if described.host.backups else "",
        "DEEPCLEAN_HTTP_HOST": described.host.address,
        "DEEPCLEAN_HTTP_PORT": str(port),
    }
    if name == "mock_scm" and plane.datanodes:
        environment["DEEPCLEAN_MOCK_SCM_REPLICATION"] = str(described.block_store.replication or 1)
    if name.startswith(DATANODE):
        environment |= {"DEEPCLEAN_DATANODE_NAME": name, "DEEPCLEAN_DATANODE_SCM_URL": plane.scm_url}
    if name == METADATA:
        command = [sys.executable, "-m", "streaming.diff", "--jars-directory", str(jars_directory() / "spark")]
        environment["DEEPCLEAN_METADATA_DIFF_SPARK_COMMAND"] = shlex.join(command)
        environment["JAVA_HOME"] = str(spark_java_home(plane.java, plane.home))
    return environment | described_settings(DATANODE if name.startswith(DATANODE) else name, described)


def described_settings(service: str, described: PlaneDescription) -> dict[str, str]:
    """Return the settings that the description has of a service, as variables, unless the environment sets them."""
    found = {}
    for section in (ALL, service):
        for name, value in described.settings.get(section, {}).items():
            is_common = name in ServiceSettings.model_fields
            found[f"{PREFIX}{name.upper()}" if is_common else f"{PREFIX}{service.upper()}_{name.upper()}"] = value
    return {name: str(value) for name, value in found.items() if name not in os.environ}


def datanode_names(count: int) -> tuple[str, ...]:
    """Return the names of a plane's datanodes, which are also those of their directories."""
    return tuple([f"{DATANODE}-{number}" for number in range(count)])


def default_replication(datanodes: int) -> Replication:
    """Return the replication of the buckets of a new plane."""
    return Replication.RATIS_THREE if datanodes >= 3 else Replication.RATIS_ONE


def _secret_files(name: str, security: BrokerSecurity | None) -> dict[str, str]:
    """Return the environment variables that name the files of a process's secrets; they hold no secret themselves."""
    if security is None:
        return {}
    if name.startswith(DATANODE):  # a datanode has no access to the log
        return {"DEEPCLEAN_HTTP_TOKEN_FILE": str(security.token_file)}
    signing = {"DEEPCLEAN_SIGNING_SECRET_FILE": str(security.signing_file(name))} if name in SIGNERS else {}
    return {
        **signing,
        FILE_VARIABLE: str(security.credentials_file(name)),
        "DEEPCLEAN_HTTP_TOKEN_FILE": str(security.token_file),
    }


UNDO_WINDOW_MS = 300_000
"""Time in which a deletion can be undone on a plane of ``deepclean up``, unless the environment sets another."""


def undo_window_settings(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the undo window setting of each service that uses it, unless the environment already sets it."""
    services = ("KEY_DELETION", "DIRECTORY_DELETION", "METADATA")
    names = [f"DEEPCLEAN_{service}_UNDO_WINDOW_MS" for service in services]
    return {name: str(UNDO_WINDOW_MS) for name in names if name not in environment}


def replication_settings(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the number of copies of each block that the environment sets, if it does."""
    name = "DEEPCLEAN_MOCK_SCM_REPLICATION"
    return {name: environment[name]} if name in environment else {}


def purge_hours_settings(environment: Mapping[str, str]) -> dict[str, str]:
    """Return key_deletion's purge hours as a setting of metadata, unless the environment already sets it there.

    metadata needs the hours to measure late claims.
    """
    hours, name = environment.get("DEEPCLEAN_KEY_DELETION_PURGE_HOURS"), "DEEPCLEAN_METADATA_PURGE_HOURS"
    return {} if hours is None or name in environment else {name: hours}
