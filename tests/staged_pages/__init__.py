"""How the tests play the pages whose commands need more than a new checkout: each page with its states."""

from __future__ import annotations

from tests.session_shell import ROOT
from tests.staged_pages import clusters, lens, measuring, operations, reading, writing

STAGED = {
    ROOT / "docs" / name: staging
    for name, staging in {
        "operations/run.md": operations.RUN,
        "operations/recover.md": operations.RECOVER,
        "ledger.md": operations.LEDGER,
        "tracing.md": reading.TRACING,
        "page.md": reading.PAGE,
        "lens-ozone.md": lens.OZONE,
        "lens-iceberg.md": lens.ICEBERG,
        "tables.md": reading.TABLES,
        "block-store.md": writing.BLOCK_STORE,
        "upgrading.md": operations.UPGRADING,
        "deploying.md": clusters.DEPLOYING,
        "clients.md": writing.CLIENTS,
        "performance.md": measuring.PERFORMANCE,
    }.items()
}
"""A page is played from a new checkout on, in the order of its blocks."""
