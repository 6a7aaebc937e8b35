"""How the tests play the pages whose commands need more than a new checkout: each page with its states."""

from __future__ import annotations

from tests.session_shell import ROOT
from tests.staged_pages import operations, reading

STAGED = {
    ROOT / "docs" / name: staging
    for name, staging in {
        "operations/run.md": operations.RUN,
        "ledger.md": operations.LEDGER,
        "tracing.md": reading.TRACING,
        "page.md": reading.PAGE,
    }.items()
}
"""A page is played from a new checkout on, in the order of its blocks."""
