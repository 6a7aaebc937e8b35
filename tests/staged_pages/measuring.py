"""The state of the page on performance: its measurements are of little data, for a moment."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict

from bench.test_rows import SMALL
from tests.session_shell import ROOT
from tests.stages import Stage, Staging

RELEASED = ROOT / "docs" / "figures" / "release.json"
BENCH = ".venv/bin/python -m bench"


@contextmanager
def figures_of_before(stage: Stage) -> Iterator[None]:
    """Those of a release stand in for the reader's earlier runs."""
    for name in ("before", "a", "b", "c"):
        (stage.place / f"{name}.json").write_bytes(RELEASED.read_bytes())
    small = " ".join(f"--size {name.replace('_', '-')}={count}" for name, count in asdict(SMALL).items())
    stage.stand_ins |= {
        f"{BENCH} --only": f"{BENCH} --seconds 0.3 {small} --only",
        **{f"--seconds {seconds}": "--seconds 0.3" for seconds in (300, 1800)},
        "held-versions=1000000": f"held-versions={SMALL.held_versions}",
        "held-snapshots=100": f"held-snapshots={SMALL.held_snapshots}",
        "--max-keys 1000000": "--max-keys 1000",
        "docs/figures/release.json": "release.json",
    }
    yield
    assert (stage.place / "after.json").exists()
    assert (stage.place / "release.json").exists()


PERFORMANCE = Staging(around=figures_of_before)
