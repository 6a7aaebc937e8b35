"""Which programs an upgrade has to know before it is made final."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry, start_http_server

from schemas.build_info import report_build
from services.plane.machine.errors import StackError
from services.plane.machine.processes import identify
from services.plane.stack.plane_file import PlaneFile, PlaneProcess, PlaneState
from services.plane.stack.process_names import SERVICES, STREAMING
from services.plane.upkeep.upgrades import UpgradeStatus, require_known, upgrade_status

SILENT_URL = "http://127.0.0.1:1"


@pytest.fixture
def urls() -> Iterator[dict[bool, str]]:
    """A process that tells its program, and one that does not."""
    with ExitStack() as served:
        found = {}
        for tells in (True, False):
            registry = CollectorRegistry()
            if tells:
                report_build(registry)
            server, thread = start_http_server(0, "127.0.0.1", registry)
            served.callback(thread.join)
            served.callback(server.server_close)
            served.callback(server.shutdown)
            found[tells] = f"http://127.0.0.1:{server.server_port}"
        yield found


def status_of(home: Path, here: Mapping[str, str], elsewhere: Mapping[str, str]) -> UpgradeStatus:
    me = identify(os.getpid())
    processes = {name: PlaneProcess(me, url, "") for name, url in here.items()}
    return upgrade_status(
        PlaneFile(PlaneState.RUNNING, str(home), 1, me, processes=processes, elsewhere=dict(elsewhere))
    )


LEVEL = "metadata does not tell the feature level of shard 0"
"""The processes of these tests have no shard."""


def test_the_programs_of_other_hosts_are_asked_for(tmp_path: Path, urls: dict[bool, str]) -> None:
    others = dict.fromkeys((*SERVICES, STREAMING), urls[True])
    status = status_of(tmp_path, {"metadata": urls[True]}, others)
    assert {part.name for part in status.parts} == set(others)
    assert status.unknown == (LEVEL,)


@pytest.mark.parametrize("missing", ["key_deletion", STREAMING])
def test_a_process_that_nobody_names_keeps_the_upgrade_from_being_final(
    tmp_path: Path, urls: dict[bool, str], missing: str
) -> None:
    named = {name: urls[True] for name in (*SERVICES, STREAMING) if name != missing}
    status = status_of(tmp_path, named, {})
    assert f"where {missing} runs is not known here: name it under [elsewhere]" in status.unknown
    with pytest.raises(StackError, match=missing):
        require_known(status)


def test_a_process_that_does_not_answer_keeps_it_too(tmp_path: Path, urls: dict[bool, str]) -> None:
    named = dict.fromkeys((*SERVICES, STREAMING), urls[True])
    status = status_of(tmp_path, named, {"datanode": SILENT_URL})
    assert f"datanode on {SILENT_URL} does not answer: see deepclean status" in status.unknown


def test_a_block_store_of_others_has_no_program_of_ours(tmp_path: Path, urls: dict[bool, str]) -> None:
    named = dict.fromkeys((*SERVICES, STREAMING), urls[True])
    del named["mock_scm"]
    assert status_of(tmp_path, named, {"mock_scm": urls[False]}).unknown == (LEVEL,)
    (of_snapshots, _) = status_of(tmp_path, {**named, "snapshots": urls[False]}, {"mock_scm": urls[False]}).unknown
    assert of_snapshots.startswith("snapshots on ")
