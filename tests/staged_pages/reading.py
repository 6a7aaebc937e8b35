"""The states of the pages that show a plane: the page."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

import httpx

from services.plane.stack.plane_file import running_plane
from tests.session_shell import Started
from tests.stages import Stage, Staging
from tests.waiting import eventually

# The page


@contextmanager
def a_browser(stage: Stage) -> Iterator[None]:
    """That notes the address which it opens."""
    browser = stage.scratch / "browser"
    browser.write_text(f'#!/bin/sh\necho "$1" > {stage.scratch}/opened\n')
    browser.chmod(0o755)
    stage.run(f"export BROWSER={browser}")
    yield
    assert is_served(running_plane(stage.home).processes["page"].url)


def is_served(address: str) -> bool:
    with httpx.Client(trust_env=False) as http:
        return "<html" in http.get(address.partition("#")[0]).raise_for_status().text


def a_browser_has_opened_it(stage: Stage, started: Started) -> None:
    opened = stage.scratch / "opened"
    eventually(lambda: opened.exists() and bool(opened.read_text("utf-8")))
    assert opened.read_text("utf-8").strip() in started.output.read_text("utf-8")
    assert is_served(opened.read_text("utf-8").strip())


def it_is_served(_: Stage, started: Started) -> None:
    eventually(lambda: "http://" in started.output.read_text("utf-8"))
    (address,) = re.findall(r"http://\S+", started.output.read_text("utf-8"))
    assert is_served(address)


PAGE = Staging(
    around=a_browser,
    endless={"deepclean page --open": a_browser_has_opened_it, "deepclean page --allow-acts": it_is_served},
)
