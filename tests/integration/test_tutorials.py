"""What the documents tell a reader to type is typed, in its order, and prints what they show."""

from __future__ import annotations

from itertools import takewhile
from pathlib import Path

import pytest

from tests.documented_sessions import ROOT, Command, blocks, checkout, do, play, steps

pytestmark = [pytest.mark.broker, pytest.mark.spark, pytest.mark.timeout(900), pytest.mark.long]
TUTORIALS = sorted((ROOT / "docs" / "tutorials").glob("*.md"))
GETTING_STARTED = ROOT / "docs" / "getting-started.md"


def _name(page: Path) -> str:
    return page.stem


@pytest.mark.parametrize("page", TUTORIALS, ids=_name)
def test_a_tutorial_prints_what_it_shows(page: Path, tmp_path: Path) -> None:
    assert all(block.is_run and block.is_compared for block in blocks(page)), "a tutorial leaves nothing out"
    with checkout(tmp_path) as shell:
        assert play(page, shell) > 10


@pytest.mark.parametrize("page", [GETTING_STARTED, ROOT / "docs" / "lens.md"], ids=_name)
def test_a_document_prints_what_it_shows(page: Path, tmp_path: Path) -> None:
    with checkout(tmp_path) as shell:
        assert play(page, shell) > 2


def test_the_readme_shows_what_the_first_session_leads_to(tmp_path: Path) -> None:
    def is_before_the_lists(step: object) -> bool:
        return not (isinstance(step, Command) and step.text.startswith("deepclean key list"))

    first_session = [one for one in takewhile(is_before_the_lists, steps(GETTING_STARTED)) if isinstance(one, Command)]
    assert first_session[-1].text.startswith("deepclean key delete")
    with checkout(tmp_path) as shell:
        for step in first_session:
            if "--in-memory" not in step.text:
                do(step, shell, GETTING_STARTED)
        assert play(ROOT / "README.md", shell) > 2
