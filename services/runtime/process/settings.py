"""Settings of a service process: by option on its command line, else by environment variable.

``--http-port 8080`` and ``DEEPCLEAN_HTTP_PORT=8080`` are equivalent. A service's own limits are a frozen dataclass of
its own; each field is set by ``DEEPCLEAN_<SERVICE>_<FIELD>``, as in ``DEEPCLEAN_KEY_DELETION_MAX_TASK_ROWS=500``.
"""

from __future__ import annotations

import dataclasses
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, TypeVar

from pydantic import BeforeValidator, Field, TypeAdapter, ValidationError, field_validator
from pydantic_settings import BaseSettings, CliApp, NoDecode, SettingsConfigDict, SettingsError

from services.domain.errors import DeepcleanError
from services.runtime.loop.probe import parse_crash_point

PREFIX = "DEEPCLEAN_"
MOST_BATCH_MESSAGES = 100_000
"""Most messages of one unit of work, for any setting: a rebuild relies on it."""
LOG_LEVELS = ("debug", "info", "warning", "error")

Limits = TypeVar("Limits")
PathOrEmpty = Annotated[Path | None, BeforeValidator(lambda value: value or None)]
"""A path, or none for an empty text, which would be the working directory otherwise."""


class InvalidSettingsError(DeepcleanError):
    """A setting is missing, unknown or out of range; the message names it and the allowed values."""


class ServiceSettings(BaseSettings):
    """Settings that every service process has."""

    model_config = SettingsConfigDict(
        env_prefix=PREFIX,
        extra="ignore",
        frozen=True,
        cli_kebab_case=True,
        cli_avoid_json=True,
        cli_hide_none_type=True,
    )

    directory: Path = Field(description="Where databases and snapshot checkpoints are kept.")
    bootstrap_servers: str = Field("127.0.0.1:9092", description="Kafka brokers, separated by commas.")
    kafka_credentials_file: Path | None = Field(
        None,
        description="File of mode 0600 with this service's name and password at the broker; empty for an open broker.",
    )
    signing_secret_file: Path | None = Field(
        None,
        description="File of mode 0600 with the secret that signs this service's commands; empty on an open plane.",
    )
    shards: Annotated[tuple[int, ...], NoDecode] = Field(
        (0,),
        description="Shards that may run here, separated by commas. At most one process may run a shard, unless "
        "the processes have instance names.",
    )
    has_added_shards: bool = Field(
        False,
        description="Whether shards that are added to the plane may run here, too, as soon as they are there.",
    )
    instance: str = Field(
        "",
        pattern=r"^[A-Za-z0-9._-]{0,200}$",
        description="Name of this process among those of its service, which then divide the shards among themselves by "
        "Kafka's group protocol and take over the shards of a process that is gone. Empty: it runs all of its shards.",
    )
    backups: PathOrEmpty = Field(
        None,
        description="Directory of backups, which all processes of this service reach. One that has no database of a "
        "shard, or whose database is older than the log, begins with the newest backup of the shard. Empty: it reads "
        "the log from its beginning.",
    )
    standby: bool = Field(
        True,
        description="Whether a process with an instance name also follows the shards that others run, so that it can "
        "take them over within seconds. It needs the disk space and processor time of running them. For metadata.",
    )
    advertised_url: str = Field(
        "", description="URL at which clients reach this process; by default its host and port."
    )
    http_host: str = Field("127.0.0.1", description="Address to serve reads, metrics and health on.")
    http_token_file: Path | None = Field(
        None, description="File of mode 0600 with the token that every request must carry; required beyond loopback."
    )
    http_port: int = Field(0, ge=0, le=65_535, description="Port for reads, metrics and health; 0 takes a free one.")
    log_level: str = Field("info", description="debug, info, warning or error.")
    max_batch_messages: int = Field(
        2_000, ge=1, le=MOST_BATCH_MESSAGES, description="Most messages of one unit of work; at most 100,000."
    )
    max_copies: int = Field(
        4, ge=1, le=1_000, description="Copies of a shard's database that backups and digests may hold at a time."
    )
    copy_seconds: int = Field(
        86_400,
        ge=60,
        description="Age at which a copy that was not given back is removed; raise it for slow backups.",
    )
    poll_seconds: float = Field(
        0.1,
        gt=0,
        le=10,
        description="Longest time that a poll waits for messages. Work that is due waits until the poll returns.",
    )
    crash_at: str = Field(
        "", description="For tests only: crash at a point of the loop; after_write:3 is the third pass of after_write."
    )
    clock_offset_seconds: int = Field(0, description="For tests only: how far the clock is ahead of the machine's.")

    @field_validator("shards", mode="before")
    @classmethod
    def _split(cls, value: Any) -> Any:
        if isinstance(value, str):
            value = value.split(",")
        if isinstance(value, list | tuple):
            return tuple(part.strip() if isinstance(part, str) else part for part in value)
        return (value,)

    @field_validator("shards")
    @classmethod
    def _check_shards(cls, value: tuple[int, ...]) -> tuple[int, ...]:
        if not value or min(value) < 0 or max(value) > 1023 or len(set(value)) < len(value):
            raise ValueError("different shards from 0 to 1023 are wanted, as in 0,1")
        return value

    @field_validator("crash_at")
    @classmethod
    def _check_crash_point(cls, value: str) -> str:
        if value:
            parse_crash_point(value)
        return value

    @field_validator("log_level")
    @classmethod
    def _check_level(cls, value: str) -> str:
        if value.lower() not in LOG_LEVELS:
            raise ValueError(f"one of {', '.join(LOG_LEVELS)} is wanted")
        return value.lower()


def read_settings(name: str, arguments: Sequence[str] | None = None) -> ServiceSettings:
    """Return the settings of this process. Raise InvalidSettingsError if one is missing or out of range."""
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    program = type(
        "ServiceSettings",
        (ServiceSettings,),
        {"model_config": SettingsConfigDict(cli_prog_name=f"python -m services.{name}"), "__doc__": None},
    )
    try:
        return CliApp.run(program, cli_args=arguments, cli_exit_on_error=False)
    except ValidationError as error:
        raise _invalid(error, lambda field: f"--{field.replace('_', '-')} ({PREFIX}{field.upper()})") from error
    except SettingsError as error:
        raise InvalidSettingsError(f"{error}: --help lists the options") from error


def read_limits(limits_class: type[Limits], service: str, environment: Mapping[str, str] | None = None) -> Limits:
    """Return a service's own dataclass, with each field that is set in the environment.

    Raises:
        InvalidSettingsError: a field is unknown or its value does not fit.
    """
    prefix = f"{PREFIX}{service.upper()}_"
    environment = os.environ if environment is None else environment
    known = {field.name for field in dataclasses.fields(limits_class)}  # type: ignore[arg-type]
    given = {name[len(prefix) :].lower(): text for name, text in environment.items() if name.startswith(prefix)}
    for name in given:
        if name not in known:
            allowed = ", ".join(sorted(prefix + field.upper() for field in known))
            raise InvalidSettingsError(f"{prefix}{name.upper()} is not a setting: {service} has {allowed}")
    try:
        limits = TypeAdapter(limits_class).validate_python(given)
    except ValidationError as error:
        raise _invalid(error, lambda field: prefix + field.upper()) from error
    for name in given:
        if isinstance(value := getattr(limits, name), int | float) and value < 0:
            raise InvalidSettingsError(f"{prefix}{name.upper()} is {value}: it cannot be below 0")
    return limits


def _invalid(error: ValidationError, title: Any) -> InvalidSettingsError:
    first = error.errors(include_url=False)[0]
    field = str(first["loc"][0]) if first["loc"] else "?"
    if first["type"] == "missing":
        return InvalidSettingsError(f"{title(field)} is missing: set it")
    reason = first["msg"].removeprefix("Value error, ")
    return InvalidSettingsError(f"{title(field)} is {first['input']!r}: {reason[0].lower()}{reason[1:]}")
