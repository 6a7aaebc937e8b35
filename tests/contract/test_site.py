"""The documents as a site: every page can be found, every link leads somewhere, nothing is read from elsewhere."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from tests.metric_catalogue import ROOT

PAGES = sorted(path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs").rglob("*.md"))
LISTED_BY_OTHERS = "decisions/"
"""The decisions have an index of their own."""


def navigation(entry: Any) -> Iterator[str]:
    """The pages of a part of the navigation."""
    match entry:
        case str():
            yield entry
        case dict():
            for inner in entry.values():
                yield from navigation(inner)
        case list():
            for inner in entry:
                yield from navigation(inner)


def test_every_page_can_be_found_and_once() -> None:
    named = list(navigation(tomllib.loads((ROOT / "zensical.toml").read_text("utf-8"))["project"]["nav"]))
    assert len(named) == len(set(named))
    wanted = {page for page in PAGES if not page.startswith(LISTED_BY_OTHERS)} | {"decisions/README.md"}
    assert set(named) == wanted


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, made from a copy, so that nothing of it comes from an earlier one."""
    home = tmp_path_factory.mktemp("site")
    shutil.copy(ROOT / "zensical.toml", home)
    shutil.copytree(ROOT / "docs", home / "docs")
    made = subprocess.run(
        [Path(sys.executable).parent / "zensical", "build", "--strict"],
        cwd=home,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert made.returncode == 0, made.stdout + made.stderr
    return home / ".deepclean" / "site"


def test_every_page_is_made(site: Path) -> None:
    for page in PAGES:
        name = re.sub(r"README\.md$", "index.md", page).removesuffix(".md") + ".html"
        assert (site / name).stat().st_size > 1_000, name


class Loaded(HTMLParser):
    """What a browser loads for a page by itself."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        named = dict(attrs)
        if tag in ("script", "img", "iframe"):
            self.found.append(named.get("src") or "")
        if tag == "link" and named.get("rel") not in ("canonical", "edit", "prev", "next"):
            self.found.append(named.get("href") or "")


def test_nothing_is_read_from_elsewhere(site: Path) -> None:
    for file in site.rglob("*.html"):
        page = Loaded()
        page.feed(file.read_text("utf-8"))
        assert page.found, file
        assert not [one for one in page.found if re.match(r"(https?:)?//", one)], file
