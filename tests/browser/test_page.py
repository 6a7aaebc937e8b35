"""Each part of the page does what it says, in a browser: with one snapshot and with a thousand, empty and broken."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page, Route, expect

from schemas.records import CollectionState, CreateTag, DeleteSnapshot
from schemas.space_answers import WhatIf
from services.page.guard import Rights
from tests.browser.conftest import OpenPage
from tests.paged_plane import BUCKET, NO_PLANE, SUSPENDED, VOLUME, PagedPlane, healthy

MOST_WIRE_BYTES = 70_000
MOST_REQUESTS = 20
MOST_ELEMENTS = 2_600
"""Of a bucket with a thousand snapshots, each of which is a button with a bar."""
AS_BUCKET = f"/#/bucket/{VOLUME}/{BUCKET}"
TOKEN = "a-token-of-acts"  # noqa: S105


def assert_accessible(page: Page) -> None:
    """Axe finds nothing, and nothing is wider than the screen."""
    found = Axe().run(page)
    assert found.violations_count == 0, found.generate_report()
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def moved_on(page: Page) -> list[str]:
    """What has moved since it was shown, in the order of time; nothing on a page that stays where it is."""
    moved: list[str] = page.evaluate("""() => {
        const observer = new PerformanceObserver(() => {});
        observer.observe({type: "layout-shift", buffered: true});
        const name = (one) => (one.node?.outerHTML ?? one.node?.textContent ?? "what is gone").slice(0, 200);
        return observer.takeRecords().map((one) => `${one.value}: ${[...one.sources].map(name).join(", ")}`);
    }""")
    return moved


@pytest.fixture(scope="module")
def eventful() -> Iterator[PagedPlane]:
    """A plane with something to show in each part."""
    plane = PagedPlane()
    plane.fill_eventfully()
    with plane.served():
        yield plane


@pytest.fixture(scope="module")
def large() -> Iterator[PagedPlane]:
    """A plane whose bucket has a thousand snapshots."""
    plane = PagedPlane()
    plane.fill(1_000, gap_ms=60)
    with plane.served():
        yield plane


def test_the_plane_is_shown_with_what_is_wrong(open_page: OpenPage) -> None:
    plane = PagedPlane()
    plane.fill_eventfully()
    plane.sight.status = healthy(dead_letters=2, suspended_collections=(SUSPENDED,))
    with plane.served() as url:
        page = open_page(url)
        expect(page.locator(".troubles li")).to_have_count(2)
        expect(page.locator(".troubles li").first).to_contain_text("Urgent. 2 dead letters open")
        expect(page.locator(".troubles")).to_contain_text("deepclean gc resume sales/reports")
        expect(page.get_by_role("link", name="sales/reports")).to_be_visible()
        expect(page.locator(".way li")).to_have_count(6)
        expect(page.locator(".sparks li")).to_have_count(5)
        page.get_by_text("The figures as a table").click()
        expect(page.get_by_role("group", name="Bytes over time")).to_be_visible()
        assert_accessible(page)
        page.get_by_role("link", name="sales/reports").click()
        expect(page.get_by_role("heading", name="sales/reports")).to_be_visible()


@pytest.mark.parametrize("width", [360, 1000])
def test_nothing_moves_while_the_page_loads(eventful: PagedPlane, open_page: OpenPage, width: int) -> None:
    page = open_page(eventful.url, width=width)
    expect(page.locator(".sparks li")).to_have_count(5)
    expect(page.locator("#state")).to_have_text("running, 1 shard")
    assert moved_on(page) == []
    page = open_page(eventful.url + AS_BUCKET, width=width)
    expect(page.get_by_text("Now: 7 snapshots would expire")).to_be_attached()
    expect(page.locator("#state")).to_have_text("running, 1 shard")
    assert moved_on(page) == []
    page.evaluate("document.querySelector('h1').style.marginTop = '99px'")
    page.evaluate("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
    assert moved_on(page), "the measure measures"


def test_buckets_that_take_long_hide_nothing_else(eventful: PagedPlane, open_page: OpenPage) -> None:
    page = open_page(eventful.url + AS_BUCKET)
    held: list[Route] = []
    page.route("**/api/buckets", lambda route: held.append(route))  # noqa: PLW0108  Playwright looks at its signature
    page.get_by_role("link", name="deepclean").click()
    expect(page.locator(".way li")).to_have_count(6)
    expect(page.get_by_role("link", name="sales/reports")).to_have_count(0)
    held[0].continue_()
    expect(page.get_by_role("link", name="sales/reports")).to_be_visible()


@pytest.mark.parametrize(
    ("width", "is_dark"),
    [
        pytest.param(360, True, id="narrow-dark"),
        pytest.param(360, False, id="narrow-light", marks=pytest.mark.long),
        pytest.param(1000, True, id="wide-dark", marks=pytest.mark.long),
        pytest.param(1000, False, id="wide-light", marks=pytest.mark.long),
    ],
)
def test_a_bucket_is_accessible_with_all_its_parts_open(
    eventful: PagedPlane, open_page: OpenPage, width: int, is_dark: bool
) -> None:
    page = open_page(eventful.url + AS_BUCKET, width=width, is_dark=is_dark)
    page.locator(".timeline button").nth(2).click()
    page.get_by_label("Path").fill("2025/03/sales.csv")
    page.get_by_role("button", name="Explain").click()
    expect(page.get_by_role("group", name="Holders")).to_be_visible()
    page.get_by_role("button", name="Compare", exact=True).click()
    expect(page.locator(".tree")).to_be_visible()
    for summary in page.locator("main details:not(.tree details) > summary").all():
        summary.click()
    expect(page.get_by_role("group", name="Snapshots", exact=True)).to_be_visible()
    expect(page.get_by_role("group", name="Preview of retention")).to_be_visible()
    expect(page.locator(".answer b")).to_be_visible()
    assert_accessible(page)


def test_a_click_says_what_dropping_frees(eventful: PagedPlane, open_page: OpenPage) -> None:
    page = open_page(eventful.url + AS_BUCKET)
    view = page.locator(".timeline button")
    view.nth(1).click()
    view.nth(2).click()
    names = ["day-0001", "day-0002"]
    asked = page.request.post(
        f"{eventful.url}/api/what-if", data={"volume": VOLUME, "bucket": BUCKET, "names": names}
    ).json()
    expect(page.locator(".answer").first).to_have_text(f"Dropping day-0001, day-0002 frees {asked['text']}.")
    expect(page.get_by_label("names of what is chosen")).to_have_value("day-0001 day-0002")
    expect(page.locator(".matrix .freed")).not_to_have_count(0)
    view.nth(3).click()
    expect(page.locator(".answer").first).to_contain_text("Protected by audit-2025")
    page.get_by_role("button", name="choose none").click()
    expect(page.locator(".answer").first).to_contain_text("Choose snapshots")


def test_snapshots_are_chosen_by_keyboard_alone(eventful: PagedPlane, open_page: OpenPage) -> None:
    page = open_page(eventful.url + AS_BUCKET)
    page.locator(".timeline button").first.focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Space")
    expect(page.get_by_label("names of what is chosen")).to_have_value("day-0001")
    page.keyboard.press("Tab")
    square = page.locator("rect:focus")
    expect(square).to_have_attribute("role", "button")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    expect(page.locator(".timeline button[aria-pressed=true]")).not_to_have_count(0)
    page.locator(".skip").focus()
    page.keyboard.press("Enter")
    expect(page.locator("main")).to_be_focused()


def test_the_slider_plans_a_size_and_chooses_it(eventful: PagedPlane, open_page: OpenPage) -> None:
    page = open_page(eventful.url + AS_BUCKET)
    slider = page.get_by_label("Bytes to free")
    slider.fill("500")
    expect(page.locator(".names")).to_be_visible()
    names = page.locator(".names").inner_text().split(", ")
    expect(page.get_by_label("names of what is chosen")).to_have_value(" ".join(names))
    assert slider.get_attribute("aria-valuetext") != "0 B"
    page.get_by_label("or a size").fill("900TiB")
    page.get_by_role("button", name="Plan").click()
    expect(page.locator(".outcome")).to_contain_text("900.0 TiB cannot be freed")
    page.get_by_label("or a size").fill("much")
    page.get_by_role("button", name="Plan").click()
    expect(page.get_by_role("alert")).to_contain_text("'much' is not a size")


def test_a_path_is_completed_and_explained(eventful: PagedPlane, open_page: OpenPage) -> None:
    page = open_page(eventful.url + AS_BUCKET)
    page.get_by_label("Path").press_sequentially("2026/0")
    expect(page.locator("#paths option[value='2026/01/sales.csv']")).to_have_count(1)
    page.get_by_label("Path").fill("2025/03/sales.csv")
    page.get_by_label("Path").press("Enter")
    tagged = page.get_by_role("group", name="Holders").locator("tr", has_text="day-0003")
    expect(tagged).to_contain_text("tagged audit-2025")
    expect(tagged).to_contain_text("a user deletes the tag audit-2025")
    (block,) = eventful.client.metadata(0).key_blocks(VOLUME, BUCKET, "2026/new.csv")
    page.get_by_label("or a block").fill(str(block.first_local_id))
    page.get_by_label("or a block").press("Enter")
    expect(page.locator(".facts")).to_contain_text("sales/reportspath2026/new.csv")
    expect(page.locator(".facts")).to_contain_text("held byno snapshot")
    page.get_by_label("or a block").fill("day-0003")
    page.get_by_label("or a block").press("Enter")
    expect(page.get_by_role("alert")).to_contain_text("write a whole number")
    page.get_by_label("Path").fill("no/such/path")
    page.get_by_label("Path").press("Enter")
    expect(page.get_by_text("Nothing of it is left")).to_be_visible()


def test_two_states_are_compared_as_a_tree(eventful: PagedPlane, open_page: OpenPage) -> None:
    page = open_page(eventful.url + AS_BUCKET)
    page.get_by_label("From").focus()
    page.get_by_label("From").select_option("day-0011")
    page.get_by_role("button", name="Compare", exact=True).click()
    tree = page.locator(".tree").first
    expect(tree.locator(".renamed")).to_have_text("→ renamed from 2025/04/sales.csv ")
    expect(tree.get_by_text("new.csv + created")).to_be_visible()
    expect(tree.locator("summary", has_text="2025/").first).to_contain_text("deleted")


def test_retention_is_previewed_while_one_types(eventful: PagedPlane, open_page: OpenPage) -> None:
    page = open_page(eventful.url + AS_BUCKET)
    field = page.get_by_label("Always keep the newest")
    expect(field).to_have_value("4")
    expect(page.get_by_text("Now: 7 snapshots would expire")).to_be_visible()
    field.fill("10")
    expect(page.get_by_text("With these values: 2 snapshots would expire")).to_be_visible()
    field.fill("0")
    expect(page.get_by_role("alert")).to_be_visible()


def test_a_page_that_may_not_act_offers_no_act(eventful: PagedPlane, open_page: OpenPage) -> None:
    page = open_page(eventful.url + AS_BUCKET)
    page.locator(".timeline button").first.click()
    expect(page.locator(".answer b")).to_be_visible()
    expect(page.locator(".act:visible")).to_have_count(0)


def test_an_act_names_the_bytes_and_is_done_when_they_are_confirmed(open_page: OpenPage) -> None:
    plane = PagedPlane(rights=Rights(acts_token=TOKEN))
    plane.fill_eventfully()
    with plane.served() as url:
        page = open_page(f"{url}/#act={TOKEN}")
        page.get_by_role("link", name="sales/reports").click()
        page.locator(".timeline button").first.click()
        freed = plane.client.space(0).what_if(VOLUME, BUCKET, _what_if(plane, "day-0000")).freed_bytes
        page.get_by_role("button", name="Delete these snapshots").click()
        dialog = page.get_by_role("dialog")
        expect(dialog).to_contain_text(f"({freed:,} bytes)")
        expect(dialog.get_by_role("button", name="Cancel")).to_be_focused()
        assert_accessible(page)
        dialog.get_by_role("button", name="Cancel").click()
        expect(dialog).to_have_count(0)
        page.get_by_role("button", name="Delete these snapshots").click()
        dialog.get_by_role("button", name="Delete, and free").click()
        expect(page.get_by_role("main").get_by_text("1 snapshot deleted.")).to_be_visible()
        expect(page.locator("#said")).to_have_text("1 snapshot deleted.")
        expect(page.locator(".timeline button")).to_have_count(11)
        page.get_by_role("button", name="Run retention now").click()
        dialog.get_by_role("button", name="Expire, and free").click()
        expect(page.locator("#said")).to_contain_text("expired.")
        page.get_by_role("button", name="Pause collection").click()
        dialog.get_by_role("button", name="Pause collection").click()
        expect(page.locator("section .note").first).to_contain_text(
            "Nothing is claimed at present: the bucket is paused"
        )
    state = plane.client.metadata(0).collection(VOLUME, BUCKET)[1].state
    assert state is CollectionState.PAUSED


def test_what_an_act_refuses_is_seen(open_page: OpenPage) -> None:
    plane = PagedPlane(rights=Rights(acts_token=TOKEN))
    plane.fill_eventfully()
    with plane.served() as url:
        page = open_page(f"{url}/#act={TOKEN}")
        page.get_by_role("link", name="sales/reports").click()
        delete = page.get_by_role("button", name="Delete these snapshots")
        page.locator(".timeline button").first.click()
        expect(delete).to_be_enabled()
        plane.request(CreateTag(VOLUME, BUCKET, "day-0000", "late", reason="while somebody looks"))
        delete.click()
        page.get_by_role("dialog").get_by_role("button", name="Delete, and free").click()
        expect(page.locator(".done")).to_be_focused()
        expect(page.locator(".done .note")).to_have_count(2)
        expect(page.locator(".done .note").last).to_contain_text("day-0000: ")
        expect(page.locator(".done .note").last).to_be_visible()
        assert_accessible(page)
        page.locator(".timeline button").nth(1).click()
        expect(delete).to_be_enabled()
        plane.request(DeleteSnapshot(VOLUME, BUCKET, "day-0001"))
        delete.click()
        page.get_by_role("dialog").get_by_role("button", name="Delete, and free").click()
        expect(page.get_by_role("alert")).to_contain_text("day-0001")
        expect(page.get_by_role("alert")).to_be_visible()
        expect(page.locator(".timeline button")).to_have_count(11)


def test_one_snapshot_is_drawn(open_page: OpenPage) -> None:
    plane = PagedPlane()
    plane.fill(1)
    with plane.served() as url:
        page = open_page(url + AS_BUCKET)
        page.locator(".timeline button").click()
        expect(page.locator(".answer b")).to_be_visible()
        expect(page.locator(".matrix .freed")).to_have_count(1)
        assert_accessible(page)


@pytest.mark.long
def test_a_thousand_snapshots_are_drawn_at_once(large: PagedPlane, open_page: OpenPage) -> None:
    wire_bytes = 0
    page = open_page(large.url + AS_BUCKET)
    page.locator(".matrix").wait_for()
    addresses = page.evaluate("performance.getEntriesByType('resource').map((one) => one.name)")
    assert len(addresses) <= MOST_REQUESTS
    assert page.evaluate("document.querySelectorAll('*').length") < MOST_ELEMENTS
    for address in addresses:
        with_gzip = page.request.get(address, headers={"Accept-Encoding": "gzip"})
        wire_bytes += int(with_gzip.headers["content-length"])
    assert wire_bytes < MOST_WIRE_BYTES
    expect(page.locator(".timeline button")).to_have_count(1_000)
    assert moved_on(page) == []
    page.get_by_label("Bytes to free").fill("20")
    expect(page.locator(".names")).to_be_visible()  # a plan among so many takes a second, or several
    expect(page.locator(".answer b")).to_be_visible()
    assert_accessible(page)
    page.get_by_label("From").focus()
    page.get_by_label("From").select_option("day-0999")


def test_an_empty_plane_and_an_empty_bucket_say_so(open_page: OpenPage) -> None:
    plane = PagedPlane()
    with plane.served() as url:
        page = open_page(url)
        expect(page.get_by_text("There is no bucket yet")).to_be_visible()
        expect(page.get_by_text("Nothing: all processes run")).to_be_visible()
        assert_accessible(page)
        plane.create()
        page = open_page(url + AS_BUCKET)
        expect(page.get_by_text("No snapshot.", exact=True)).to_be_visible()
        expect(page.get_by_text("No snapshot that may go")).to_be_visible()
        assert_accessible(page)
        page = open_page(f"{url}/#/bucket/no/such")
        expect(page.get_by_role("alert")).to_have_text("there is no volume no")
        assert_accessible(page)


def test_a_plane_that_cannot_be_seen_is_no_empty_page(open_page: OpenPage) -> None:
    plane = PagedPlane()
    plane.fill(2)
    plane.sight.error = NO_PLANE
    with plane.served() as url:
        page = open_page(url)
        expect(page.get_by_role("alert")).to_contain_text("start one (deepclean up)")
        plane.sight.error = None
        plane.sight.status = replace(healthy(), dead_letters=1)
        plane.watcher.observe()
        expect(page.locator(".troubles")).to_contain_text("1 dead letter open")
        page.context.set_offline(True)
        expect(page.locator("#state")).to_contain_text("does not answer")
        assert_accessible(page)
        page.context.set_offline(False)
        expect(page.locator("#state")).to_have_text("running, 1 shard")


def test_a_plane_that_is_seen_again_is_shown_as_before(open_page: OpenPage) -> None:
    plane = PagedPlane()
    plane.fill(2)
    with plane.served() as url:
        page = open_page(url)
        healthy_text = page.get_by_text("Nothing: all processes run")
        expect(healthy_text).to_be_visible()
        expect(page.locator(".way li")).to_have_count(6)
        plane.sight.error = NO_PLANE
        plane.watcher.observe()
        expect(page.get_by_role("alert")).to_contain_text("start one (deepclean up)")
        expect(page.locator(".way li")).to_have_count(0)
        plane.sight.error = None
        plane.watcher.observe()
        expect(healthy_text).to_be_visible()
        expect(page.get_by_role("alert")).to_have_count(0)
        expect(page.locator(".way li")).to_have_count(6)


def test_a_view_that_is_late_does_not_disturb_the_next_one(eventful: PagedPlane, open_page: OpenPage) -> None:
    page = open_page(eventful.url)
    held: list[Route] = []
    page.route("**/api/bucket?*", lambda route: held.append(route))  # noqa: PLW0108  Playwright looks at its signature
    with page.expect_request("**/api/bucket?*"):
        page.get_by_role("link", name="sales/reports").click()
    page.get_by_role("link", name="deepclean").click()
    expect(page.get_by_role("heading", name="The plane")).to_be_visible()
    with page.expect_response("**/api/bucket?*"):
        held[0].continue_()
    expect(page.get_by_role("heading", level=1)).to_have_text("The plane")
    page.goto(f"{eventful.url}/#/bucket/%E0/x")
    expect(page.get_by_role("heading", level=1)).to_have_text("This cannot be shown now")


def test_a_secured_plane_asks_for_its_token(open_page: OpenPage) -> None:
    plane = PagedPlane(rights=Rights(lambda: "the token of the plane"))
    plane.fill(2)
    with plane.served() as url:
        page = open_page(url)
        field = page.get_by_label("HTTP token of the plane")
        expect(field).to_be_focused()
        assert_accessible(page)
        field.fill("another one")
        field.press("Enter")
        expect(field).to_be_visible()
        field.fill("the token of the plane")
        field.press("Enter")
        expect(page.get_by_role("link", name="sales/reports")).to_be_visible()


def _what_if(plane: PagedPlane, *names: str) -> WhatIf:
    ids = {info.name: info.snapshot_id for info in plane.client.snapshots(0).snapshots(VOLUME, BUCKET)}
    return WhatIf(tuple(ids[name] for name in names))
