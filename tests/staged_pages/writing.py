"""The states of the pages that write to a plane: clients, the block store."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from services.plane.stack.plane_file import running_plane
from tests.staged_pages.operations import keys, two_reports
from tests.stages import Stage, Staging


@contextmanager
def reports_to_delete_from(stage: Stage) -> Iterator[None]:
    with two_reports(stage):
        stage.stand_ins["127.0.0.1:9700"] = running_plane(stage.home).bootstrap_servers
        yield
        assert "february" not in keys(stage)


CLIENTS = Staging(around=reports_to_delete_from)


@contextmanager
def a_file(stage: Stage) -> Iterator[None]:
    (stage.place / "report.pdf").write_bytes(b"%PDF" + bytes(3_000_000))
    yield
    assert (stage.place / "copy.pdf").read_bytes() == (stage.place / "report.pdf").read_bytes()
    assert len(re.findall(r"\balive\b", stage.ran["deepclean blocks status"].output)) == 3


BLOCK_STORE = Staging(around=a_file)
