"""The status of a whole plane from its ``plane.json``, its processes, its disk, its backups and its audits."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path

from services.client.wire.http_reads import http_client
from services.plane.stack.plane_file import PlaneFile, PlaneState
from services.plane.stack.secrets import http_token
from services.plane.upkeep.audits import FinishedAudit, last_audits
from services.plane.upkeep.backups import backups_directory, list_backups
from services.plane.upkeep.status import (
    OPEN_DEAD_LETTERS,
    SCRAPE_SECONDS,
    DiskUse,
    LastAudit,
    PlaneStatus,
    Reported,
    Scrape,
    backlog,
    disk_use,
    observe_processes,
    process_status,
    scrape,
    suspended_collections,
    throughput,
)


def urls_of(plane: PlaneFile) -> dict[str, str]:
    """Return the base URL of each process of a plane that has one, those on other hosts included."""
    return plane.elsewhere | {name: process.url for name, process in plane.processes.items() if process.url}


def scrape_plane(plane: PlaneFile) -> dict[str, Scrape | None]:
    """Return the metrics of each process now; None for one that does not answer."""
    with http_client(http_token(Path(plane.home)), seconds=SCRAPE_SECONDS) as http:
        return {name: scrape(http, url) for name, url in urls_of(plane).items()}


def observe_plane(plane: PlaneFile, seconds: float) -> PlaneStatus:
    """Return the status of a plane; rates are measured over ``seconds``."""
    reported = observe_processes(urls_of(plane), seconds, http_token(Path(plane.home)))
    return plane_status(plane, reported, plane_disk(plane, reported))


def plane_disk(plane: PlaneFile, reported: Mapping[str, Reported]) -> DiskUse:
    """Return the plane's use of this host's disk. It looks at every file below the home."""
    return disk_use({name: one for name, one in reported.items() if name in plane.processes}, Path(plane.home))


def plane_status(plane: PlaneFile, reported: Mapping[str, Reported], disk: DiskUse) -> PlaneStatus:
    """Return the status of a plane, with rates between the two scrapes of each process."""
    home, token, metadata_url = Path(plane.home), http_token(Path(plane.home)), urls_of(plane).get("metadata", "")
    processes = (
        *(
            process_status(name, process, process.url or plane.bootstrap_servers, reported)
            for name, process in plane.processes.items()
        ),
        *(
            process_status(name, None, url, reported)
            for name, url in plane.elsewhere.items()
            if name not in plane.processes
        ),
    )
    backup = next(iter(reversed(list_backups(backups_directory(home)))), None)
    is_lost = plane.state is not PlaneState.FAILED and not plane.is_up()
    return PlaneStatus(
        state="abandoned" if is_lost else plane.state,
        reason="whoever ran it was killed: stop what is left of it (deepclean down)" if is_lost else plane.reason,
        home=plane.home,
        shards=plane.shards,
        processes=processes,
        throughput=throughput(reported),
        backlog=backlog(reported, metadata_url, plane.shards, token),
        disk=disk,
        dead_letters=reported["snapshots"].total(OPEN_DEAD_LETTERS) if "snapshots" in reported else 0,
        newest_backup=backup.name if backup else "",
        newest_backup_age_seconds=max(0.0, time.time() - backup.made_at_ms / 1000) if backup else 0.0,
        audits=tuple(_last_audit(one) for one in last_audits(home)),
        suspended_collections=suspended_collections(metadata_url, plane.shards, token),
    )


def _last_audit(finished: FinishedAudit) -> LastAudit:
    report = finished.report
    findings = {kind.value: amount.versions for kind, amount in report.findings.items()}
    return LastAudit(report.shard, report.txn, finished.started_ms, findings, report.difference_count)
