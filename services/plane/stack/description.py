"""``deepclean.toml``: what a plane is made of, and which of its processes run on this host.

Every field is also an environment variable, which goes before the file: ``DEEPCLEAN_PLANE_KAFKA__BOOTSTRAP_SERVERS`` is
``bootstrap_servers`` in ``[kafka]``. A plane without a file is one that runs on one host with a broker of its own.
"""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator
from pydantic_settings import (
    BaseSettings,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    SettingsError,
    TomlConfigSettingsSource,
)

from schemas.credentials import KafkaCredentials, read_credentials
from services.plane.machine.errors import StackError
from services.plane.stack.process_names import HTTP_PROCESSES, SERVICES, STREAMING
from services.runtime.process.settings import PathOrEmpty

PREFIX = "DEEPCLEAN_PLANE_"
ALL = "all"
"""The section of settings that hold for every service."""


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class KafkaSection(_Section):
    """The log of the plane."""

    bootstrap_servers: str = Field(default="", description="Brokers of a cluster; empty: the home's own.")
    credentials_file: Path | None = Field(
        default=None, description="File of mode 0600 with the name and password of the plane's processes and clients."
    )
    replication_factor: int | None = Field(default=None, ge=1, description="Replicas of a partition; by default 3.")
    min_insync_replicas: int | None = Field(default=None, ge=1, description="Replicas that acknowledge; a majority.")

    def credentials(self) -> KafkaCredentials | None:
        """Return the login at the brokers; None for brokers that do not ask for one."""
        return None if self.credentials_file is None else read_credentials(self.credentials_file)


class HostSection(_Section):
    """What runs on this host."""

    processes: tuple[str, ...] = Field(
        default=HTTP_PROCESSES, description="What runs here; streaming is the Spark job."
    )
    shards: tuple[int, ...] | None = Field(default=None, description="Shards that run here; by default all.")
    instance: str = Field(
        default="",
        pattern=r"^[A-Za-z0-9._-]{0,200}$",
        description="Name of this host among those that share the shards; empty if its shards stay here.",
    )
    backups: PathOrEmpty = Field(
        default=None,
        description="Directory of backups. A service that has no database of a shard begins with the newest one here. "
        "Hosts that share the shards share it, too.",
    )
    address: str = Field(default="127.0.0.1", description="Address for others; beyond loopback it needs a token.")
    base_port: int | None = Field(
        default=None, ge=0, le=65_000, description="First port of all processes. 0: free ones."
    )

    @field_validator("processes")
    @classmethod
    def _check_processes(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        unknown = sorted(set(value) - set(HTTP_PROCESSES))
        if unknown:
            raise ValueError(f"there is no process {unknown[0]}: choose from {', '.join(HTTP_PROCESSES)}")
        return tuple([name for name in HTTP_PROCESSES if name in value])


class SparkSection(_Section):
    """The Spark job."""

    master: str = Field(default="local[2]", description="Spark's master: local[N], spark://HOST:PORT, yarn, k8s://….")
    heap: str = Field(default="1g", description="Heap of Spark's driver.")
    conf: dict[str, str] = Field(default={}, description="Spark's own settings, by their names.")


class BlockStoreSection(_Section):
    """The block store of the plane."""

    datanodes: int | None = Field(default=None, ge=0, le=64, description="Datanodes here; by default as before.")
    replication: int | None = Field(default=None, ge=1, le=3, description="Copies of a RATIS_ONE block.")


Setting = Annotated[str | int | float | bool, Field(union_mode="left_to_right")]


class PlaneDescription(BaseSettings):
    """A plane, as one of its hosts sees it."""

    model_config = SettingsConfigDict(env_prefix=PREFIX, env_nested_delimiter="__", extra="forbid", frozen=True)

    shards: int | None = Field(
        default=None, ge=1, le=1024, description="Lowest number of shards; by default the present number."
    )
    kafka: KafkaSection = KafkaSection()
    host: HostSection = HostSection()
    spark: SparkSection = SparkSection()
    block_store: BlockStoreSection = BlockStoreSection()
    elsewhere: dict[str, str] = Field(
        default={}, description="For each process on another host, by its name: HOST:PORT."
    )
    settings: dict[str, dict[str, Setting]] = Field(
        default={},
        description="Settings of services by their names; [settings.all] holds for every one.",
    )

    @field_validator("settings")
    @classmethod
    def _check_sections(cls, value: dict[str, dict[str, Setting]]) -> dict[str, dict[str, Setting]]:
        unknown = sorted(set(value) - {ALL, "datanode", *SERVICES})
        if unknown:
            raise ValueError(f"there is no service {unknown[0]}: choose from {', '.join((ALL, *SERVICES))}")
        if any("backups" in section for section in value.values()):
            raise ValueError("all commands have to know the directory of backups: name it in [host]")
        return value

    @property
    def urls_elsewhere(self) -> dict[str, str]:
        """Return by name the URLs of processes on other hosts."""
        return {name: f"http://{address}" for name, address in self.elsewhere.items()}

    @property
    def http_token_file(self) -> str:
        """Return the path of the token that requests to all processes must carry; empty if the file names none."""
        return str(self.settings.get(ALL, {}).get("http_token_file", ""))

    @property
    def has_spark(self) -> bool:
        """Return whether the Spark job runs here."""
        return STREAMING in self.host.processes


def read_description(file: Path | None) -> PlaneDescription:
    """Return a plane's description: the environment goes before the file.

    Raises:
        StackError: the file cannot be read, or has a field that does not fit.
    """

    class Read(PlaneDescription):
        @classmethod
        def settings_customise_sources(
            cls,
            settings_cls: type[BaseSettings],
            init_settings: PydanticBaseSettingsSource,  # noqa: ARG003  pydantic offers each of its sources
            env_settings: PydanticBaseSettingsSource,
            dotenv_settings: PydanticBaseSettingsSource,  # noqa: ARG003
            file_secret_settings: PydanticBaseSettingsSource,  # noqa: ARG003
        ) -> tuple[PydanticBaseSettingsSource, ...]:
            return (env_settings, *(() if file is None else (TomlConfigSettingsSource(settings_cls, file),)))

    try:
        if file is not None:
            file.read_bytes()  # a missing file would count as an empty one
        return Read()
    except OSError as error:
        raise StackError(f"{file} cannot be read ({error.strerror}): name a file that is there (--config).") from error
    except (tomllib.TOMLDecodeError, SettingsError) as error:
        raise StackError(f"{file} is not TOML ({error}): correct it.") from error
    except ValidationError as error:
        raise StackError(_first_of(error, file)) from error


def _first_of(error: ValidationError, file: Path | None) -> str:
    first = error.errors(include_url=False)[0]
    field = ".".join(map(str, first["loc"]))
    where = f"{file}, or {PREFIX}{field.upper().replace('.', '__')}" if file else PREFIX + field.upper()
    if first["type"] == "extra_forbidden":
        return f"There is no field {field} ({where}): docs/operations/reference.md has all."
    reason = first["msg"].removeprefix("Value error, ")
    return f"{field} is {first['input']!r}: {reason[0].lower()}{reason[1:]} ({where})."
