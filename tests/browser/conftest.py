"""One Chromium for the tests of a file. Without one that starts they are skipped, unless
DEEPCLEAN_REQUIRE_CHROMIUM is 1.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator

import pytest
from playwright.sync_api import Browser, Error, Page, expect, sync_playwright

ARGUMENTS = ["--no-sandbox", "--disable-dev-shm-usage"]
ANSWER_MS = 60_000
"""How long something may take to show on a machine that has much else to do."""
NAMES = ("chromium", "chromium-browser", "google-chrome")


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """The browser that the system has.

    Playwright keeps an event loop running in this thread, in which a test of another file could start none: so each
    file has its own.
    """
    found = next(filter(None, map(shutil.which, NAMES)), None)
    is_required = os.environ.get("DEEPCLEAN_REQUIRE_CHROMIUM") == "1"
    if found is None and is_required:
        pytest.fail("DEEPCLEAN_REQUIRE_CHROMIUM is 1, and there is no Chromium: install the package chromium")
    if found is None:
        pytest.skip("there is no Chromium: install the package chromium")
    with sync_playwright() as playwright:
        try:
            started = playwright.chromium.launch(executable_path=found, args=ARGUMENTS)
        except Error as error:
            if is_required:
                raise
            pytest.skip(f"{found} does not start on this machine: {error}")
        expect.set_options(timeout=ANSWER_MS)
        yield started
        started.close()


OpenPage = Callable[..., Page]


@pytest.fixture
def open_page(browser: Browser) -> Iterator[OpenPage]:
    """Opens addresses, each in a context of its own. At the end no page may have complained, or read from elsewhere."""
    complaints: list[str] = []
    contexts = []

    def opened(url: str, *, width: int = 1000, is_dark: bool = False) -> Page:
        context = browser.new_context(
            viewport={"width": width, "height": 800},
            color_scheme="dark" if is_dark else "light",
            reduced_motion="reduce",
        )
        context.set_default_timeout(ANSWER_MS)
        contexts.append(context)
        page = context.new_page()
        origin = "/".join(url.split("/")[:3]) if url.startswith("http") else url

        def look_at(address: str) -> None:
            if not address.startswith((origin, "data:")):
                complaints.append(f"read from elsewhere: {address}")

        page.on("request", lambda request: look_at(request.url))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("console", lambda line: complaints.append(line.text) if "Security Policy" in line.text else None)
        page.goto(url)
        return page

    yield opened
    for context in contexts:
        context.close()
    assert complaints == []
