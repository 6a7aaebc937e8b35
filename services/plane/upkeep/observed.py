"""The status of a whole plane from its ``plane.json``, its processes, its disk, its backups and its audits."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from services.client.wire.http_reads import http_client
from services.plane.machine.errors import StackError
from services.plane.stack.plane_file import PlaneFile, PlaneState
from services.plane.stack.process_names import METADATA, SERVICES
from services.plane.stack.secrets import http_token
from services.plane.upkeep.audits import FinishedAudit, last_audits
from services.plane.upkeep.backups import known_backups
from services.plane.upkeep.found_owners import FoundOwners, owned_shards, urls_here, urls_of
from services.plane.upkeep.status import (
    OPEN_DEAD_LETTERS,
    SCRAPE_SECONDS,
    SILENT,
    DiskUse,
    LastAudit,
    PlaneStatus,
    ProcessStatus,
    Reported,
    Scrape,
    Scrapes,
    backlog,
    disk_use,
    process_status,
    reported,
    scrape,
    suspended_collections,
    throughput,
)

Place = tuple[str, str]
"""The name of a process, and where it answers."""


def scrape_plane(plane: PlaneFile, owners: FoundOwners) -> Scrapes:
    """Return the metrics of each process now. Where hosts share the shards, those of the other hosts follow.

    There [elsewhere] may name a service in another way than the service itself does, and one address for all of its
    processes. So it counts only while nobody tells where the owners are.
    """
    here = urls_here(plane)
    with http_client(http_token(Path(plane.home)), seconds=SCRAPE_SECONDS) as http, ThreadPoolExecutor() as pool:

        def scraped(places: Iterable[Place]) -> dict[Place, Scrape | None]:
            wanted = list(dict.fromkeys(places))
            return dict(zip(wanted, pool.map(lambda place: scrape(http, place[1]), wanted), strict=True))

        found = scraped(here.items())
        owned = {name: owned_shards(now) for (name, _), now in found.items()}
        others = owners.elsewhere(plane, owned)
        named = [place for place in plane.elsewhere.items() if place[0] not in here]
        if others is not None:
            named = [place for place in named if place[0] not in SERVICES]
        found |= scraped(place for place in (*named, *(others or ())) if place not in found)
    by_name: dict[str, dict[str, Scrape | None]] = {}
    for (name, url), now in found.items():
        by_name.setdefault(name, {})[url] = now
    return by_name


def scraped_twice(plane: PlaneFile, owners: FoundOwners, seconds: float) -> dict[str, Reported]:
    """Return the metrics of each process, read twice with ``seconds`` between the reads."""
    before = scrape_plane(plane, owners)
    threading.Event().wait(seconds)
    return reported(before, scrape_plane(plane, owners), urls_of(plane))


def observe_plane(plane: PlaneFile, seconds: float) -> PlaneStatus:
    """Return the status of a plane; rates are measured over ``seconds``."""
    with FoundOwners() as owners:
        found = scraped_twice(plane, owners, seconds)
    return plane_status(plane, found, plane_disk(plane, found))


def plane_disk(plane: PlaneFile, found: Mapping[str, Reported]) -> DiskUse:
    """Return the plane's use of this host's disk. It looks at every file below the home."""
    return disk_use({name: one.alone for name, one in found.items() if name in plane.processes}, Path(plane.home))


def plane_status(plane: PlaneFile, found: Mapping[str, Reported], disk: DiskUse) -> PlaneStatus:
    """Return the status of a plane, with rates between the two scrapes of each process."""
    home, token, shards = Path(plane.home), http_token(Path(plane.home)), range(plane.shards)
    owners, own_url = _metadata_owners(plane, found), urls_of(plane).get(METADATA, "")
    metadata_urls = [owners.get(shard, own_url) for shard in shards]
    backup, trouble = None, ""
    try:
        backup = next(reversed(known_backups(plane)), None)
    except StackError as error:
        trouble = str(error)
    is_lost = plane.state is not PlaneState.FAILED and not plane.is_up()
    return PlaneStatus(
        state="abandoned" if is_lost else plane.state,
        reason="whoever ran it was killed: stop what is left of it (deepclean down)" if is_lost else plane.reason,
        home=plane.home,
        shards=plane.shards,
        processes=tuple(_processes(plane, found)),
        throughput=throughput(found),
        backlog=backlog(found, metadata_urls, token),
        disk=disk,
        dead_letters=found["snapshots"].total(OPEN_DEAD_LETTERS) if "snapshots" in found else 0,
        newest_backup=backup.name if backup else "",
        backups_trouble=trouble,
        newest_backup_age_seconds=max(0.0, time.time() - backup.made_at_ms / 1000) if backup else 0.0,
        audits=tuple(_last_audit(one) for one in last_audits(home)),
        suspended_collections=suspended_collections(metadata_urls, token),
        unknown_shards=tuple(shard for shard in shards if plane.has_moving_shards and shard not in owners),
    )


def _processes(plane: PlaneFile, found: Mapping[str, Reported]) -> Iterator[ProcessStatus]:
    """Yield the processes of this host, then those that the description names, then those that own other shards.

    The service `snapshots` counts the open dead letters of each process; the first one of a name shows them.
    """
    letters = {name: found["snapshots"].total(OPEN_DEAD_LETTERS, source=name) for name in found if "snapshots" in found}
    for name, process in plane.processes.items():
        own = found.get(name, SILENT).alone
        yield process_status(name, process, process.url or plane.bootstrap_servers, own, letters.pop(name, 0))
    for name, url in plane.elsewhere.items():
        if name not in plane.processes and not found.get(name, SILENT).others:
            yield process_status(name, None, url, found.get(name, SILENT).alone, letters.pop(name, 0))
    for name, one in found.items():
        for url, other in one.others.items():
            yield process_status(name, None, url, other, letters.pop(name, 0))


def _metadata_owners(plane: PlaneFile, found: Mapping[str, Reported]) -> dict[int, str]:
    """Return where the owner of each shard of metadata answers, as far as it is known and has answered."""
    own, metadata = urls_of(plane).get(METADATA, ""), found.get(METADATA, SILENT)
    answering = {own: metadata.alone, **metadata.others}
    return {shard: url for url, one in answering.items() for shard in owned_shards(one.now)}


def _last_audit(finished: FinishedAudit) -> LastAudit:
    report = finished.report
    findings = {kind.value: amount.versions for kind, amount in report.findings.items()}
    return LastAudit(report.shard, report.txn, finished.started_ms, findings, report.difference_count)
