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
from services.plane.machine.errors import StackError
from services.plane.machine.waiting import poll_until
from services.plane.stack.plane_file import PlaneFile
from services.plane.stack.process_names import METADATA
from services.plane.stack.secrets import http_token
from services.plane.upkeep.found_owners import owner_urls, urls_here
from services.plane.upkeep.metrics_page import samples
from services.plane.upkeep.operator_commands import send_to_metadata

ASK_SECONDS = 10.0
APPLY_SECONDS = 60.0
Owners = Mapping[tuple[str, int], str]
"""For each service and shard the URL of the process that runs it."""


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
    """Feature level of each shard."""

    @property
    def known_level(self) -> int:
        """The newest feature level that every process knows."""
        return min(part.feature_level for part in self.parts)

    @property
    def shards_below(self) -> tuple[int, ...]:
        """Shards below this level."""
        return tuple(shard for shard, level in sorted(self.shard_levels.items()) if level < self.known_level)


def upgrade_status(plane: PlaneFile) -> UpgradeStatus:
    """Return the programs of all processes of a running plane, and the feature levels of its shards.

    The processes are those of this host, those that the description names under [elsewhere], and the owners of all
    shards. A process of another host that owns no shard is known only by [elsewhere].

    Raises:
        StackError: a process did not answer, or a shard has no owner. An upgrade can be finished only when all of them
            answer.
    """
    owners = owner_urls(plane)
    without = [shard for shard in range(plane.shards) if (METADATA, shard) not in owners]
    if without:
        raise StackError(f"Shard {without[0]} of metadata has no owner: see deepclean status, and ask again.")
    owning = [(service, url) for (service, _), url in owners.items()]
    places = dict.fromkeys([*urls_here(plane).items(), *plane.elsewhere.items(), *owning])
    with http_client(http_token(Path(plane.home)), seconds=ASK_SECONDS) as http:
        parts = [_part(http, name, url) for name, url in places]
        levels = {shard: _level(http, owners, shard) for shard in range(plane.shards)}
    return UpgradeStatus(tuple(parts), levels)


def finish_upgrade(plane: PlaneFile, status: UpgradeStatus) -> None:
    """Raise the level of each shard to the newest one that every process knows, and wait until metadata has applied it.

    Raises:
        StackError: metadata has not applied the level in time.
    """
    level, shards = status.known_level, status.shards_below
    send_to_metadata(plane, SetFeatureLevel(level, confirmation(level)), shards, "deepclean.upgrade")
    deadline, owners = time.monotonic() + APPLY_SECONDS, owner_urls(plane)
    with http_client(http_token(Path(plane.home)), seconds=ASK_SECONDS) as http:
        for shard in shards:
            poll_until(
                partial(_has_reached, level, http, owners, shard),
                deadline,
                partial(_not_reached, level, shard),
            )


def _has_reached(level: int, http: httpx.Client, owners: Owners, shard: int) -> bool:
    return _level(http, owners, shard) >= level


def _not_reached(level: int, shard: int) -> str:
    return (
        f"Shard {shard} has not reached feature level {level} within {APPLY_SECONDS:g} s: see its dead letters "
        f"(deepclean dead-letters list), and call deepclean upgrade finish again."
    )


def _part(http: httpx.Client, name: str, url: str) -> Part:
    try:
        reported = samples(http, url)
    except httpx.HTTPError as error:
        raise StackError(f"{name} did not answer on {url}: see deepclean status, and ask again.") from error
    for sample in reported:
        if sample.name == BUILD_INFO:
            return Part(name, url, sample.labels["version"], int(sample.labels["feature_level"]))
    raise StackError(f"{name} on {url} does not report {BUILD_INFO}: it is not a deepclean of 0.2.0 or later.")


def _level(http: httpx.Client, owners: Owners, shard: int) -> int:
    return HttpShard(http, METADATA, owners[METADATA, shard], shard).get("/state", ShardState).feature_level
