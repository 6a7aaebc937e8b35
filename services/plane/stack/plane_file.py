"""``plane.json`` in the plane's home: the processes of the plane and their addresses.

The supervisor writes the file; ``down``, ``status`` and every client read it. Each write replaces the whole file, so
that a reader never sees a partial one.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from services.plane.machine.errors import StackError, disk_error
from services.plane.machine.processes import ProcessIdentity

FILE_NAME = "plane.json"


class PlaneState(StrEnum):
    """State of the plane's processes."""

    STARTING = "starting"
    RUNNING = "running"
    STOPPING = "stopping"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class PlaneProcess:
    """One process of the plane."""

    identity: ProcessIdentity
    url: str
    """Base URL of /metrics, /healthz, /readyz and the reads; empty for the broker."""
    log: str
    restarts: int = 0
    """How often it was started again, because it had ended by itself."""
    reason: str = ""
    """Why it does not run, though it is started again after a pause; empty while it runs."""


@dataclass(frozen=True, slots=True)
class PlaneFile:
    """The content of ``plane.json``."""

    state: PlaneState
    home: str
    shards: int
    supervisor: ProcessIdentity
    """The process that started the others, starts them again when they end, and stops them."""
    bootstrap_servers: str = ""
    processes: dict[str, PlaneProcess] = field(default_factory=dict)
    """By name, in the order of their start."""
    elsewhere: dict[str, str] = field(default_factory=dict)
    """By name the URLs of processes on other hosts."""
    has_fixed_shards: bool = False
    """Whether the description says which shards run here: then shards that are added do not."""
    has_moving_shards: bool = False
    """Whether the hosts share the shards, so that clients look for their owners."""
    backups: str = ""
    """The directory of backups that the description names; empty: backups in the home."""
    credentials_file: str = ""
    """The login of clients at a cluster that is not the home's own broker; empty without one."""
    http_token_file: str = ""
    """The token of the processes that the description names; empty for that of the home, or none."""
    reason: str = ""
    """The error, if the state is FAILED."""

    def is_up(self) -> bool:
        """Return whether the plane's supervisor runs."""
        return self.supervisor.is_alive()

    def left_behind(self) -> dict[str, PlaneProcess]:
        """Return the processes that still run although their supervisor has ended."""
        return {} if self.is_up() else {name: p for name, p in self.processes.items() if p.identity.is_alive()}


_ADAPTER = TypeAdapter(PlaneFile)


def read_plane_file(home: Path) -> PlaneFile | None:
    """Return the content of a home's ``plane.json``; None if no plane was started or the plane was stopped."""
    path = home / FILE_NAME
    try:
        return _ADAPTER.validate_json(path.read_bytes())
    except FileNotFoundError:
        return None
    except OSError as error:
        raise disk_error(path, error) from error
    except ValidationError as error:
        raise StackError(
            f"{path} is not one that this version has written: see which processes of a plane still run, stop them, "
            f"and remove the file."
        ) from error


def write_plane_file(home: Path, plane: PlaneFile) -> None:
    """Replace ``plane.json`` as a whole."""
    path = home / FILE_NAME
    fresh = path.with_name(f"{FILE_NAME}.{os.getpid()}")
    try:
        fresh.write_bytes(_ADAPTER.dump_json(plane, indent=2))
        fresh.replace(path)
    except OSError as error:
        raise disk_error(path, error) from error


def remove_plane_file(home: Path) -> None:
    """Remove ``plane.json``: the plane is stopped."""
    (home / FILE_NAME).unlink(missing_ok=True)


def known_plane(home: Path) -> PlaneFile:
    """Return what a home says of its plane, also of one that starts, has failed or was abandoned.

    Raises:
        StackError: the home has had no plane since the last ``deepclean down``.
    """
    plane = read_plane_file(home)
    if plane is None:
        raise _no_plane(home)
    return plane


def _no_plane(home: Path) -> StackError:
    return StackError(f"No plane runs on {home}: start one (deepclean up), or set another home (--home).")


def running_plane(home: Path) -> PlaneFile:
    """Return the running plane of a home. Raise StackError if it does not run."""
    plane = known_plane(home)
    if plane.state is PlaneState.FAILED or not plane.is_up():
        raise _no_plane(home)
    if plane.state is not PlaneState.RUNNING:
        raise StackError(f"The plane on {home} is {plane.state}: try again when it runs (deepclean status).")
    return plane
