"""The page of a report in a browser: it reads no other file, says what the command says, and axe finds nothing."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import expect

from services.cli.lens.page import page_of
from services.domain.words import counted
from services.lens.questions import one_bucket
from services.lens.relation import LensBucket, LensFinding, Ref
from services.lens.report import Report
from services.wording.figures import bytes_text
from tests.browser.conftest import OpenPage
from tests.lens_reports import ACTIVE, thing, write_report


def written(directory: Path, names: list[str], random: Random) -> tuple[Report, Path]:
    """A report about snapshots of these names, and its page."""
    places = len(names) + 1
    things = []
    for number in range(4 * places):
        first = random.randrange(places)
        things.append(thing(f"d/{number}", random.randrange(1 << 30), *range(first, min(first + 5, places))))
    refs = [Ref(name, name, protected_by=("v1",) if name == names[0] else ()) for name in names]
    bucket = LensBucket("vol/bucket", (*refs, ACTIVE))
    finding = LensFinding("stuck-row", "vol/bucket", "d/a", "17", 1_024, 3_072, "It is never freed: report it.")
    report = Report(write_report(directory / "report", [bucket], things, [finding]))
    file = directory / "page.html"
    file.write_text(page_of(report), "utf-8")
    return report, file


@pytest.mark.parametrize("is_dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [360, 1000])
def test_the_page_of_a_report_answers_and_is_accessible(
    tmp_path: Path, seed: int, open_page: OpenPage, width: int, is_dark: bool
) -> None:
    names = [f"s{number}" for number in range(9)]
    report, file = written(tmp_path, names, Random(seed))
    page = open_page(file.as_uri(), width=width, is_dark=is_dark)
    buttons = page.locator(".timeline button")
    expect(buttons).to_have_count(9)
    for place in (1, 2, 3):
        buttons.nth(place).click()
    freed = one_bucket(report).what_if(["s1", "s2", "s3"])
    sizes = f"{bytes_text(freed.freed_bytes)} ({bytes_text(freed.freed_replicated_bytes)} on disks)"
    expected = f"Dropping s1, s2, s3 frees {sizes}, {counted(freed.freed_versions, 'version')}."
    expect(page.locator(".answer")).to_have_text(expected)
    page.get_by_text("The matrix as a table").click()
    expect(page.get_by_role("group", name="Bytes by first and last holder").last).to_be_visible()
    found = Axe().run(page)
    assert found.violations_count == 0, found.generate_report()
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
