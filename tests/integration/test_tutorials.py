"""What the documents tell a reader to type is typed, in its order, and prints what they show."""

from __future__ import annotations

from itertools import takewhile
from pathlib import Path

import pytest

from tests.documented_sessions import BY_THEMSELVES, DOCS, ON_A_PLANE, Command, blocks, do, play, steps
from tests.session_shell import Shell, checkout
from tests.staged_pages import STAGED

pytestmark = [pytest.mark.broker, pytest.mark.spark, pytest.mark.timeout(900)]
GETTING_STARTED = DOCS / "getting-started.md"
STATE_OF_CONCEPTS = (
    "deepclean key put sales/reports/photo --size 6MiB",
    "deepclean snapshot create sales/reports tuesday",
    "deepclean snapshot create sales/reports wednesday",
)
"""What the commands of the concepts need beside the first session."""


@pytest.mark.long
@pytest.mark.parametrize("page", BY_THEMSELVES, ids=lambda page: page.stem)
def test_a_document_prints_what_it_shows(page: Path, tmp_path: Path) -> None:
    is_tutorial = page.parent.name == "tutorials"
    assert not is_tutorial or all(block.is_run and block.is_compared for block in blocks(page)), "it leaves nothing out"
    with checkout(tmp_path) as shell:
        assert play(page, shell)


@pytest.mark.long
@pytest.mark.parametrize("page", STAGED, ids=lambda page: page.stem)
def test_a_document_prints_what_it_shows_in_the_states_that_it_speaks_of(page: Path, tmp_path: Path) -> None:
    with checkout(tmp_path) as shell:
        assert play(page, shell, STAGED[page])


@pytest.mark.long
def test_the_documents_of_a_running_plane_print_what_they_show(tmp_path: Path) -> None:
    with checkout(tmp_path) as shell:
        begin_first_session(shell)
        for page in ON_A_PLANE:
            assert play(page, shell) > 2
            for command in STATE_OF_CONCEPTS if page.name == "README.md" else ():
                assert shell.run(command).status == 0


def begin_first_session(shell: Shell) -> None:
    """Type the first session, up to its first deletion: what the README shows follows from it."""

    def is_before_the_lists(step: object) -> bool:
        return not (isinstance(step, Command) and step.text.startswith("deepclean key list"))

    session = [one for one in takewhile(is_before_the_lists, steps(GETTING_STARTED)) if isinstance(one, Command)]
    first = next(number for number, one in enumerate(session) if one.text == "make up")
    assert session[-1].text.startswith("deepclean key delete")
    for one in session[first:]:
        do(one, shell, GETTING_STARTED)
