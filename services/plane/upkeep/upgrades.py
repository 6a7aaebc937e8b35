"""Show the program of each process of a running plane, on all of its hosts, and finish an upgrade."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import httpx

from schemas.build_info import BUILD_INFO
from schemas.feature_level import confirmation
from schemas.records import SetFeatureLevel, ShardState
from services.client.wire.http_reads import HttpShard, http_client
from services.domain.errors import DeepcleanError
from services.plane.machine.errors import StackError
from services.plane.machine.waiting import poll_until
from services.plane.stack.plane_file import PlaneFile
from services.plane.stack.process_names import METADATA, SERVICES, STREAMING
from services.plane.stack.secrets import http_token
from services.plane.upkeep.found_owners import known_owners, urls_here, urls_of
from services.plane.upkeep.metrics_page import samples
from services.plane.upkeep.operator_commands import send_to_metadata

ASK_SECONDS = 10.0
APPLY_SECONDS = 60.0
Owners = Mapping[tuple[str, int], str]
"""For each service and shard the URL of the process that runs it."""
SCM = "mock_scm"
NO_PROGRAM = f"does not report {BUILD_INFO}: it is not a deepclean of 0.2.0 or later"


@dataclass(frozen=True, slots=True)
class Part:
    """The program of one process, as reported on /metrics."""

    name: str
    url: str
    version: str
    feature_level: int
    """The newest feature level that the program knows."""


@dataclass(frozen=True, slots=True)
class UpgradeStatus:
    """The progress of an upgrade."""

    parts: tuple[Part, ...]
    shard_levels: Mapping[int, int]
    """Feature level of each shard, as far as its owner answers."""
    unknown: tuple[str, ...]
    """What keeps the programs of the whole plane from being known, each as a sentence: while there is any, the upgrade
    cannot be finished."""

    @property
    def known_level(self) -> int:
        """The newest feature level that every process knows that has answered."""
        return min((part.feature_level for part in self.parts), default=0)

    @property
    def shards_below(self) -> tuple[int, ...]:
        """Shards below this level."""
        return tuple(shard for shard, level in sorted(self.shard_levels.items()) if level < self.known_level)


def upgrade_status(plane: PlaneFile) -> UpgradeStatus:
    """Return the programs of all processes of a running plane, and the feature levels of its shards.

    The processes are those of this host, those that the description names under [elsewhere], and the owners of all
    shards. A process of another host that owns no shard is known only by [elsewhere].
    """
    here, owners = urls_here(plane), known_owners(plane)
    owning = [(service, url) for (service, _), url in owners.items()]
    unknown = _unknown(plane, owners)
    parts, levels = list[Part](), dict[int, int]()
    with http_client(http_token(Path(plane.home)), seconds=ASK_SECONDS) as http:
        for name, url in dict.fromkeys([*here.items(), *plane.elsewhere.items(), *owning]):
            found = _part(http, name, url)
            if isinstance(found, Part):
                parts.append(found)
            elif name != SCM or name in here or found != NO_PROGRAM:  # a block store of others has no program of ours
                unknown.append(f"{name} on {url} {found}")
        for shard in range(plane.shards):
            if (level := _level(http, owners, shard)) is not None:
                levels[shard] = level
            elif (METADATA, shard) in owners:
                unknown.append(f"metadata does not tell the feature level of shard {shard}")
    return UpgradeStatus(tuple(parts), levels, tuple(unknown))


def _unknown(plane: PlaneFile, owners: Owners) -> list[str]:
    """Return which processes nobody names: those of hosts that share the shards are found by what they own."""
    wanted, here = (STREAMING,) if plane.has_moving_shards else (*SERVICES, STREAMING), urls_of(plane)
    unnamed = [f"where {one} runs is not known here: name it under [elsewhere]" for one in wanted if one not in here]
    if plane.has_moving_shards:
        places = [(service, shard) for service in SERVICES for shard in range(plane.shards)]
        unnamed += [
            f"{service} has no owner of shard {shard}" for service, shard in places if (service, shard) not in owners
        ]
    return unnamed


def require_known(status: UpgradeStatus) -> None:
    """Raise StackError unless the programs of the whole plane are known."""
    if status.unknown:
        raise StackError(
            f"An upgrade can be finished only when every process tells its program: {'; '.join(status.unknown)}."
        )


def finish_upgrade(plane: PlaneFile, status: UpgradeStatus) -> None:
    """Raise the level of each shard to the newest one that every process knows, and wait until metadata has applied it.

    Raises:
        StackError: as ``require_known``; or metadata has not applied the level in time.
    """
    require_known(status)
    level, shards = status.known_level, status.shards_below
    send_to_metadata(plane, SetFeatureLevel(level, confirmation(level)), shards, "deepclean.upgrade")
    deadline = time.monotonic() + APPLY_SECONDS
    with http_client(http_token(Path(plane.home)), seconds=ASK_SECONDS) as http:
        for shard in shards:
            poll_until(partial(_has_reached, level, http, plane, shard), deadline, partial(_not_reached, level, shard))


def _has_reached(level: int, http: httpx.Client, plane: PlaneFile, shard: int) -> bool:
    """Return whether a shard has a level; its owner may have changed."""
    return (_level(http, known_owners(plane), shard) or 0) >= level


def _not_reached(level: int, shard: int) -> str:
    return (
        f"Shard {shard} has not reached feature level {level} within {APPLY_SECONDS:g} s: see its dead letters "
        f"(deepclean dead-letters list), and call deepclean upgrade finish again."
    )


def _part(http: httpx.Client, name: str, url: str) -> Part | str:
    """Return the program of a process, or why it is not known."""
    try:
        reported = samples(http, url)
    except httpx.HTTPError:
        return "does not answer: see deepclean status"
    for sample in reported:
        if sample.name == BUILD_INFO:
            return Part(name, url, sample.labels["version"], int(sample.labels["feature_level"]))
    return NO_PROGRAM


def _level(http: httpx.Client, owners: Owners, shard: int) -> int | None:
    """Return the feature level of a shard; None if its owner is not known or does not tell it."""
    try:
        url = owners[METADATA, shard]
        return HttpShard(http, METADATA, url, shard).get("/state", ShardState).feature_level
    except (KeyError, DeepcleanError):
        return None
