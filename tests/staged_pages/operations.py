"""The states of the pages for operators: running a plane, recovering it, the ledger, upgrading."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from schemas.records import KeyRow, Settle
from services.client.plane import accepted
from tests.stages import Stage, Staging

WITHOUT_WINDOWS = tuple(
    f"export DEEPCLEAN_{service}_UNDO_WINDOW_MS=0" for service in ("METADATA", "KEY_DELETION", "DIRECTORY_DELETION")
)
"""What is deleted is claimed at once."""
REPORTS = (
    "deepclean up",
    "deepclean volume create sales",
    "deepclean bucket create sales/reports",
    "deepclean key put sales/reports/2026/january --size 4096",
    "deepclean key put sales/reports/2026/february --size 2048",
)
RELEASE = "0.2.0"


def settle(stage: Stage) -> None:
    """Wait until shard 0 has nothing left to do."""
    with stage.client() as plane:
        accepted(plane.request(0, Settle(f"before {len(stage.ran)}")))


# The ledger


@contextmanager
def a_version_is_freed(stage: Stage) -> Iterator[None]:
    stage.run(*WITHOUT_WINDOWS, *REPORTS)
    with stage.client() as plane:
        row = plane.metadata(0).stat("sales", "reports", "2026/january")
    assert isinstance(row, KeyRow)
    assert row.blocks
    stage.stand_ins |= {"1281": str(row.object_id), "1125899906908160": str(row.blocks.first_local_id)}
    stage.run("deepclean key delete sales/reports/2026/january")
    settle(stage)
    yield
    assert str(row.object_id) in stage.ran["deepclean ledger list sales/reports"].output
    by_object, by_block = (
        stage.ran[f"deepclean ledger show {of}"].output for of in ("1281", "1125899906908160 --block")
    )
    assert by_object == by_block
    assert str(row.object_id) in by_object
    assert stage.ran["deepclean ledger export exported"].output == "1 new row in exported/rows.\n"


LEDGER = Staging(around=a_version_is_freed)
