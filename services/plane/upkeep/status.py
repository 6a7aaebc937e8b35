"""The status of a running plane, collected from its processes' /metrics and reads, and from its disk."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeVar

import httpx
from prometheus_client.samples import Sample

from schemas.answers import CollectionStatus, ShardBacklog
from schemas.records import CollectionState
from services.client.errors import PlaneError, UnreachableError
from services.client.wire.http_reads import WRONG_SHARD, HttpShard, http_client
from services.plane.stack.plane_file import PlaneProcess
from services.plane.upkeep.metrics_page import samples

SCRAPE_SECONDS = 5.0
LAG_MESSAGES = ("deepclean_input_lag_messages", "deepclean_streaming_messages_behind")
LAG_SECONDS = "deepclean_input_lag_seconds"
OPEN_DEAD_LETTERS = "deepclean_snapshots_dead_letters_open"
MESSAGES_APPLIED = ("deepclean_messages_applied_total", "deepclean_streaming_input_entries_total")

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Scrape:
    """The metrics of one process at one time."""

    at_seconds: float
    samples: tuple[Sample, ...]


@dataclass(frozen=True, slots=True)
class Reported:
    """The metrics of one process, or of all of its name, now and some seconds earlier; None for one that is silent."""

    before: Scrape | None
    now: Scrape | None
    others: Mapping[str, Reported] = field(default_factory=dict)
    """What processes of the same name report on other hosts, by their URLs: it counts, too."""

    @property
    def is_answering(self) -> bool:
        """Return whether this process, or another one of its name, has answered."""
        return self.now is not None or any(other.is_answering for other in self.others.values())

    @property
    def alone(self) -> Reported:
        """What this process reports, without the others."""
        return Reported(self.before, self.now)

    def rate(self, *names: str, **labels: str) -> float:
        """Return the increase of counters per second; 0 for a process that did not answer or was restarted."""
        of_others = sum(other.rate(*names, **labels) for other in self.others.values())
        if self.before is None or self.now is None:
            return of_others
        seconds = self.now.at_seconds - self.before.at_seconds
        return max(0.0, _total(self.now, names, labels) - _total(self.before, names, labels)) / seconds + of_others

    def total(self, *names: str, **labels: str) -> int:
        """Return the current sum of metrics over all samples with these labels, or 0 if the process did not answer."""
        own = 0 if self.now is None else int(_total(self.now, names, labels))
        return own + sum(other.total(*names, **labels) for other in self.others.values())

    def largest(self, name: str) -> float:
        """Return the current largest value of a metric, or 0 if there is none or the process did not answer."""
        present = () if self.now is None else self.now.samples
        own = max((sample.value for sample in present if sample.name == name), default=0.0)
        return max([own, *(other.largest(name) for other in self.others.values())])


def _total(scrape: Scrape, names: tuple[str, ...], labels: Mapping[str, str]) -> float:
    wanted = (sample for sample in scrape.samples if sample.name in names and labels.items() <= sample.labels.items())
    return sum(sample.value for sample in wanted)


SILENT = Reported(None, None)


@dataclass(frozen=True, slots=True)
class ProcessStatus:
    """The status of one process."""

    name: str
    is_here: bool
    """Whether this host runs it."""
    pid: int
    """0 for a process of another host."""
    is_alive: bool
    """True for a process of another host: that it has ended is not known here."""
    is_answering: bool
    url: str
    messages_per_second: float
    lag_messages: int
    lag_seconds: float
    dead_letters: int
    """Open dead letters of all processes of this name, at the first of them."""
    restarts: int
    """How often it was started again, because it had ended by itself."""
    reason: str
    """Why it does not run; empty while it runs."""


@dataclass(frozen=True, slots=True)
class Throughput:
    """Rates of the plane per second."""

    commands_applied: float
    entries_judged: float
    groups_deleted: float
    bytes_deleted: float


@dataclass(frozen=True, slots=True)
class Backlog:
    """Deleted bytes and versions that are still in the store, by state, and the work in progress."""

    oldest_seconds: float
    """Age of the oldest message that a process has not applied."""
    pending_bytes: int
    pending_versions: int
    claimed_bytes: int
    claimed_versions: int
    held_bytes: int
    held_versions: int
    freed_bytes: int
    freed_versions: int
    directories_in_progress: int
    garbage_ranges_to_sweep: int
    pending_replicated_bytes: int = 0
    """What the blocks of these bytes take on disks. So for the following."""
    claimed_replicated_bytes: int = 0
    held_replicated_bytes: int = 0
    freed_replicated_bytes: int = 0
    purges_in_undo_window: int = 0
    """Purge requests at key_deletion whose rows are in the undo window."""
    purges_throttled: int = 0
    """Purge requests that wait for key_deletion's purge hours or rate limit."""


@dataclass(frozen=True, slots=True)
class DiskUse:
    """The plane's use of its disk."""

    log_bytes: int | None
    """Bytes of the plane's own broker; None if the brokers are elsewhere."""
    database_bytes: int
    checkpoint_bytes: int
    """Bytes of files that only checkpoints reference."""
    checkpoints: int
    spark_bytes: int | None
    """Bytes of the Spark job's checkpoint in the home; None if it is elsewhere, or the job never ran."""
    process_log_bytes: int
    free_bytes: int


@dataclass(frozen=True, slots=True)
class LastAudit:
    """The result of the last audit of a shard."""

    shard: int
    txn: int
    started_ms: int
    findings: dict[str, int]
    """Number of findings by kind."""
    figures_not_confirmed: int


@dataclass(frozen=True, slots=True)
class SuspendedCollection:
    """A bucket or shard whose claims are suspended."""

    shard: int
    bucket: str
    """``volume/bucket`` that is suspended individually; empty for the whole shard."""
    state: str
    reason: str
    """The reason that the user gave; for a stop, the problem to repair."""
    since_ms: int = -1
    """Log time of the suspension; -1 if it is not known."""


@dataclass(frozen=True, slots=True)
class PlaneStatus:
    """The status of a plane."""

    state: str
    reason: str
    home: str
    shards: int
    processes: tuple[ProcessStatus, ...]
    throughput: Throughput
    backlog: Backlog
    disk: DiskUse
    dead_letters: int
    newest_backup: str = ""
    """Name of the newest complete backup in the home or in the directory of ``[host]``; empty if there is none."""
    backups_trouble: str = ""
    """Why the backups cannot be read; empty if they can."""
    newest_backup_age_seconds: float = 0.0
    audits: tuple[LastAudit, ...] = ()
    suspended_collections: tuple[SuspendedCollection, ...] | None = ()
    """The suspended shards and buckets; null if metadata does not answer."""
    unknown_shards: tuple[int, ...] = ()
    """Shards whose owner is not known on this host, or does not answer: the backlog and what is suspended lack them."""


Scrapes = Mapping[str, Mapping[str, Scrape | None]]
"""The metrics of processes by name and URL, those of one name in their order; None for one that did not answer."""


def reported(before: Scrapes, now: Scrapes, urls: Mapping[str, str]) -> dict[str, Reported]:
    """Return what was scraped twice, by the names of the processes.

    Of each name that ``urls`` has, the process with that URL comes first; all further ones are its others.
    """

    def one(name: str, url: str) -> Reported:
        return Reported(before.get(name, {}).get(url), now[name].get(url))

    return {
        name: replace(
            one(name, urls.get(name, "")),
            others={url: one(name, url) for url in scraped if url != urls.get(name)},
        )
        for name, scraped in now.items()
    }


def scrape(http: httpx.Client, url: str) -> Scrape | None:
    """Return the metrics of a process; None if it does not answer."""
    try:
        reported = samples(http, url)
    except httpx.HTTPError:
        return None
    return Scrape(time.monotonic(), tuple(reported))


def process_status(
    name: str, process: PlaneProcess | None, address: str, own: Reported, dead_letters: int = 0
) -> ProcessStatus:
    """Return the status of one process, which has ``address``; ``process`` is None if another host runs it."""
    return ProcessStatus(
        name=name,
        is_here=process is not None,
        pid=process.identity.pid if process else 0,
        is_alive=process is None or process.identity.is_alive(),
        is_answering=own.now is not None,
        url=address,
        messages_per_second=own.rate(*MESSAGES_APPLIED),
        lag_messages=own.total(*LAG_MESSAGES),
        lag_seconds=own.largest(LAG_SECONDS),
        dead_letters=dead_letters,
        restarts=process.restarts if process else 0,
        reason=process.reason if process else "",
    )


def throughput(reported: Mapping[str, Reported]) -> Throughput:
    """Return the rates of the plane per second."""
    scm = reported.get("mock_scm", SILENT)
    return Throughput(
        commands_applied=reported.get("metadata", SILENT).rate("deepclean_messages_applied_total"),
        entries_judged=reported.get("streaming", SILENT).rate("deepclean_streaming_entries_judged_total"),
        groups_deleted=scm.rate("deepclean_mock_scm_groups_total", outcome="deleted"),
        bytes_deleted=scm.rate("deepclean_mock_scm_deleted_bytes_total"),
    )


def backlog(reported: Mapping[str, Reported], metadata_urls: Sequence[str], token: str = "") -> Backlog:
    """Return the backlog of the plane; sums are 0 if metadata does not answer.

    ``metadata_urls`` says for each shard where metadata answers.
    """
    of_shards = _of_each_shard(metadata_urls, token, "/backlog", ShardBacklog) or {}
    stages = ("pending", "claimed", "held", "freed")
    amounts = [f"{stage}_{amount}" for stage in stages for amount in ("bytes", "versions", "replicated_bytes")]
    key_deletion = reported.get("key_deletion", SILENT)
    return Backlog(
        **{name: sum(getattr(one, name) for one in of_shards.values()) for name in amounts},
        oldest_seconds=max((process.largest(LAG_SECONDS) for process in reported.values()), default=0.0),
        directories_in_progress=reported.get("directory_deletion", SILENT).total(
            "deepclean_directory_deletion_directories"
        ),
        garbage_ranges_to_sweep=key_deletion.total("deepclean_key_deletion_sweeps_open"),
        purges_in_undo_window=key_deletion.total("deepclean_key_deletion_purges_in_undo_window"),
        purges_throttled=key_deletion.total("deepclean_key_deletion_purges_throttled"),
    )


def _of_each_shard(metadata_urls: Sequence[str], token: str, path: str, answer_type: type[T]) -> dict[int, T] | None:
    """Return what metadata answers for each shard whose owner is known; None if one does not answer."""
    found = {}
    with http_client(token, seconds=SCRAPE_SECONDS) as http:
        for shard, url in enumerate(metadata_urls):
            try:
                found[shard] = HttpShard(http, "metadata", url, shard).get(path, answer_type)
            except UnreachableError:
                return None
            except PlaneError as error:
                if error.code != WRONG_SHARD:  # else it moves, or its owner was not found
                    raise
    return found


def suspended_collections(metadata_urls: Sequence[str], token: str = "") -> tuple[SuspendedCollection, ...] | None:
    """Return the suspended shards, then the suspended buckets; None if metadata does not answer.

    ``metadata_urls`` says for each shard where metadata answers.
    """
    found = _of_each_shard(metadata_urls, token, "/collection", list[CollectionStatus])
    if found is None:
        return None
    lines = [
        SuspendedCollection(
            shard,
            f"{line.volume}/{line.bucket}" if line.bucket else "",
            line.state.lower(),
            line.reason,
            line.since_ms(line.state),
        )
        for shard, of_shard in found.items()
        for line in of_shard
        if line.state is not CollectionState.RUNNING
    ]
    return tuple(sorted(lines, key=lambda line: (bool(line.bucket), line.shard, line.bucket)))


def disk_use(reported: Mapping[str, Reported], home: Path) -> DiskUse:
    """Return the plane's use of its disk."""
    return DiskUse(
        log_bytes=_bytes_if_here(home / "broker" / "records"),
        database_bytes=sum(process.total("deepclean_database_bytes") for process in reported.values()),
        checkpoint_bytes=sum(process.total("deepclean_checkpoint_bytes") for process in reported.values()),
        checkpoints=sum(process.total("deepclean_checkpoints") for process in reported.values()),
        spark_bytes=_bytes_if_here(home / "data" / "streaming"),
        process_log_bytes=_bytes_below(home / "logs"),
        free_bytes=shutil.disk_usage(home).free,
    )


def _bytes_if_here(directory: Path) -> int | None:
    return _bytes_below(directory) if directory.exists() else None


def _bytes_below(directory: Path) -> int:
    """Return the bytes that the files below a directory occupy. The broker's index files are sparse: count blocks."""
    total = 0
    for parent, _, names in os.walk(directory):
        for name in names:
            try:
                total += Path(parent, name).lstat().st_blocks * 512
            except FileNotFoundError:  # removed since the listing
                continue
    return total
