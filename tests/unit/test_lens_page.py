"""The page of a report: its data give the figures of a what-if, its tables need no script, names are only text."""

from __future__ import annotations

import json
from collections.abc import Collection
from html.parser import HTMLParser
from pathlib import Path
from random import Random
from typing import Any

from typer.testing import CliRunner

from services.cli.lens.page import MOST_BUCKETS, MOST_FINDINGS, page_of, picture_of
from services.cli.main import app
from services.lens.questions import one_bucket
from services.lens.relation import LensBucket, LensFinding, Ref
from services.lens.report import Report, Thing
from services.page.picture import script_data
from tests.lens_reports import ACTIVE, chain, freed_by, thing, write_report

MOST_PAGE_BYTES = 150_000


class Page(HTMLParser):
    """The elements of a page, its texts, and the data of its scripts."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.elements: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.rows: list[list[str]] = []
        self.data: list[Any] = []
        self.texts: list[str] = []
        self._is_data = False
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append(tag)
        self.attributes += attrs
        self._is_data = ("type", "application/json") in attrs
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append("")

    def handle_data(self, data: str) -> None:
        if self._is_data:
            self.data.append(json.loads(data))
            self._is_data = False
        elif self.elements and self.elements[-1] in ("td", "th"):
            self.rows[-1][-1] += data.strip()
        self.texts.append(data)


def sum_of(data: Any, chosen: Collection[int]) -> tuple[int, int, int]:
    """What the script adds up: the cells all of whose groups are chosen."""
    freed = [
        (int(size), int(replicated), versions)
        for runs, size, replicated, versions in data["cells"]
        if all(place in chosen for first, last in runs for place in range(first, last + 1))
    ]
    size, replicated, versions = (sum(column) for column in zip(*freed, strict=True)) if freed else (0, 0, 0)
    return size, replicated, versions


def random_things(random: Random, count: int, places: int) -> list[Thing]:
    return [
        thing(f"d/{n}", random.randrange(1 << 50), *random.sample(range(places), random.randrange(min(5, places))))
        for n in range(count)
    ]


def test_the_data_of_the_page_give_what_a_what_if_gives(tmp_path: Path, seed: int) -> None:
    random = Random(seed)
    names = [f"s{number}" for number in range(7)]
    things = random_things(random, 150, 8)
    report = Report(write_report(tmp_path / "report", [chain(*names)], things))
    (data,) = Page(page_of(report)).data
    assert [group["names"] for group in data["groups"]] == [[name] for name in names]
    assert not any(group["isChosen"] for group in data["groups"])
    assert data["leftOut"] == "0"
    for _ in range(60):
        chosen = random.sample(range(7), random.randrange(1, 8))
        freed = one_bucket(report).what_if([names[place] for place in chosen])
        of_command = (freed.freed_bytes, freed.freed_replicated_bytes, freed.freed_versions)
        assert sum_of(data, chosen) == of_command == freed_by(things, chosen)


def test_groups_of_neighbours_are_exact(tmp_path: Path, seed: int) -> None:
    random = Random(seed)
    refs = [Ref(f"s{number}", str(number), is_droppable=number != 11) for number in range(40)]
    things = random_things(random, 400, 41)
    report = Report(write_report(tmp_path / "report", [LensBucket("vol/bucket", (*refs, ACTIVE))], things))
    picture = picture_of(one_bucket(report), most_cells=60)
    assert len(picture.cells) <= 60
    assert picture.left_out.is_empty
    assert [ref for group in picture.groups for ref in group] == refs
    assert (refs[11],) in picture.groups
    data = script_data(picture, is_exact=True)
    assert max(len(group["names"]) for group in data["groups"]) > 1
    droppable = [number for number, group in enumerate(data["groups"]) if group["isDroppable"]]
    for _ in range(60):
        chosen = random.sample(droppable, random.randrange(1, len(droppable)))
        dropped = [ref.name for number in chosen for ref in picture.groups[number]]
        freed = one_bucket(report).what_if(dropped)
        assert sum_of(data, chosen) == (freed.freed_bytes, freed.freed_replicated_bytes, freed.freed_versions)


def test_a_page_opens_with_the_snapshots_of_its_answer(tmp_path: Path) -> None:
    names = [f"s{number}" for number in range(6)]
    things = [thing(f"d/{number}", 1_000 + number, number, number + 1) for number in range(5)]
    report = write_report(tmp_path / "report", [chain(*names)], things)
    answers = {
        ("what-if", "s1", "id-s2"): ["s1", "s2"],
        ("plan", "--free", "1000"): ["s0", "s1"],
        ("retention", "--num-retained-min", "4", "--time-retained", "1s"): ["s0", "s1"],
        ("space",): [],
    }
    for question, chosen in answers.items():
        file = tmp_path / "page.html"
        shown = CliRunner().invoke(app, ["lens", "report", str(report), *question, "--html", str(file)])
        assert shown.exit_code == 0, shown.output
        (data,) = Page(file.read_text("utf-8")).data
        assert [name for group in data["groups"] if group["isChosen"] for name in group["names"]] == chosen


def test_a_group_is_chosen_or_protected_as_a_whole(tmp_path: Path, seed: int) -> None:
    """So that the page opens with the figure of the answer, and what nothing protects can be chosen alone."""
    random = Random(seed)
    refs = [Ref(f"s{number}", str(number), protected_by=("v1",) if number == 9 else ()) for number in range(40)]
    things = random_things(random, 400, 41)
    report = Report(write_report(tmp_path / "report", [LensBucket("vol/bucket", (*refs, ACTIVE))], things))
    chosen = [f"s{number}" for number in range(5, 18)]
    data = script_data(picture_of(one_bucket(report), most_cells=150, chosen=chosen), chosen, is_exact=True)
    groups = data["groups"]
    assert [name for group in groups if group["isChosen"] for name in group["names"]] == chosen
    assert [group["names"] for group in groups if group["protectedBy"]] == [["s9"]]
    assert len(groups) < len(refs)
    assert data["leftOut"] == "0"
    freed = one_bucket(report).what_if(chosen)
    opened = sum_of(data, [number for number, group in enumerate(groups) if group["isChosen"]])
    assert opened == (freed.freed_bytes, freed.freed_replicated_bytes, freed.freed_versions)


def test_a_page_is_called_what_people_call_its_source(tmp_path: Path) -> None:
    table, other = chain("s1", bucket="db.orders"), chain("s1", bucket="vol/other")
    for number, (source, buckets, title) in enumerate(
        [
            ("iceberg", [table], "Iceberg table db.orders"),
            ("paimon", [table], "Paimon table db.orders"),
            ("git", [chain("s1", bucket="history")], "Git repository where"),
            ("ozone", [other], "Ozone bucket vol/other"),
            ("ozone", [other, chain("s1")], "2 Ozone buckets"),
        ]
    ):
        report = Report(write_report(tmp_path / str(number), buckets, source=source))
        text = page_of(report)
        assert f"<h1>{title}</h1>" in text
        assert f"<title>{title}: what its snapshots hold</title>" in text
        assert f"Read from {source} /some/where at" in text


def test_what_cannot_be_dropped_says_why(tmp_path: Path) -> None:
    refs = (
        Ref("s1", "1", protected_by=("v1", "v2")),
        Ref("s2", "2", is_droppable=False, status="SNAPSHOT_DELETED"),
        Ref("s3", "3"),
        ACTIVE,
    )
    page = Page(page_of(Report(write_report(tmp_path / "report", [LensBucket("vol/bucket", refs)]))))
    last = {row[0]: row[-1] for row in page.rows}
    assert (last["s1"], last["s2"], last["s3"]) == ("protected by v1, v2", "no: SNAPSHOT_DELETED", "yes")


def test_findings_say_that_there_are_none_and_what_was_not_looked_for(tmp_path: Path) -> None:
    sentence = "Orphaned files were not looked for."
    partly = LensBucket("vol/bucket", (ACTIVE,), not_looked_for=(sentence,))
    texts = Page(page_of(Report(write_report(tmp_path / "partly", [partly])))).texts
    assert "None found, but not everything was looked for:" in texts
    assert texts.count(sentence) == 1
    assert "None found." in Page(page_of(Report(write_report(tmp_path / "all", [chain("s1")])))).texts
    finding = LensFinding("stuck-row", "vol/bucket", "d/a", "17", 1_024, 3_072, "why")
    page = Page(page_of(Report(write_report(tmp_path / "found", [partly], findings=[finding]))))
    assert ["stuck-row", "vol/bucket", "d/a", "17", "1.0 KiB", "3.0 KiB", "why"] in page.rows
    assert sentence in page.texts, "also beside findings"


def test_what_is_not_drawn_is_said(tmp_path: Path) -> None:
    refs = [Ref(f"s{number}", str(number), is_droppable=number % 2 == 0) for number in range(9)]
    things = [thing(f"d/{number}", 10 + number, number) for number in range(9)]
    report = Report(write_report(tmp_path / "report", [LensBucket("vol/bucket", (*refs, ACTIVE))], things))
    picture = picture_of(one_bucket(report), most_cells=7)
    assert picture.left_out.bytes == 10 + 11
    assert [cell.bytes for _, cell in picture.cells] == [18, 17, 16, 15, 14, 13, 12]


HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(1)>&amp;{{made}}\u2028"


def test_names_are_text_wherever_they_stand(tmp_path: Path) -> None:
    refs = (Ref(HOSTILE, "1", protected_by=(f"tag{HOSTILE}",)), Ref("<b>", "2"), ACTIVE)
    bucket = LensBucket(f"vol/{HOSTILE}", refs, (f"note {HOSTILE}",))
    finding = LensFinding(f"kind{HOSTILE}", bucket.name, f"path{HOSTILE}", "1", 1, 3, f"why{HOSTILE}")
    things = [thing("a", 5, 0, bucket=bucket.name)]
    report = Report(write_report(tmp_path / "report", [bucket], things, [finding], notes=[HOSTILE]))
    page = Page(page_of(report, bucket.name))
    assert page.elements.count("script") == 2
    assert "img" not in page.elements
    assert "b" not in page.elements
    assert page.data[0]["groups"][0] | {"from": "", "time": ""} == {
        "names": [HOSTILE],
        "from": "",
        "time": "",
        "isDroppable": True,
        "protectedBy": [f"tag{HOSTILE}"],
        "isChosen": False,
    }
    shown = "".join(page.texts)
    for text in (f"vol/{HOSTILE}", f"tag{HOSTILE}", f"note {HOSTILE}", f"path{HOSTILE}", f"why{HOSTILE}"):
        assert text in shown


def test_tables_are_complete_without_the_script(tmp_path: Path) -> None:
    things = [thing("a", 2_048, 0), thing("b", 100, 0, 1), thing("c", 7, 1, 2)]
    bucket = chain("s1", "s2", notes=["a manifest is missing"])
    page = Page(page_of(Report(write_report(tmp_path / "report", [bucket], things))))
    assert ["held", "~2.1 KiB", "~6.3 KiB", "2"] in page.rows
    assert ["s1", "1970-01-01 00:00:00", "~2.1 KiB", "~2.0 KiB", "~0 B", "~100 B", "yes"] in page.rows
    assert not page.data[0]["isExact"]
    assert "a manifest is missing" in page.texts


def test_the_page_is_small_and_reads_nothing_from_elsewhere(tmp_path: Path) -> None:
    text = page_of(Report(write_report(tmp_path / "report", [chain("s1")], [thing("a", 5, 0)])))
    assert len(text.encode()) < MOST_PAGE_BYTES
    page = Page(text)
    assert not {"link", "img", "iframe", "object"} & set(page.elements)
    assert not {"src", "href"} & {name for name, _ in page.attributes}
    assert "url(" not in text
    assert "@import" not in text
    assert any(value and value.startswith("default-src 'none'") for name, value in page.attributes if name == "content")


def test_a_page_of_many_buckets_shows_those_that_hold_most(tmp_path: Path) -> None:
    names = [f"vol/b{number:02d}" for number in range(MOST_BUCKETS + 2)]
    things = [thing("a", 100 + number, 0, bucket=name) for number, name in enumerate(names)]
    findings = [
        LensFinding("stuck-row", names[0], f"p{number}", "1", 1, 3, "why") for number in range(MOST_FINDINGS + 5)
    ]
    report = Report(write_report(tmp_path / "report", [chain("s1", bucket=name) for name in names], things, findings))
    page = Page(page_of(report))
    assert len(page.data) == MOST_BUCKETS
    assert names[1] not in page.texts
    assert names[-1] in page.texts
    assert f"Of {len(names)} buckets the {MOST_BUCKETS} with most bytes that are not live are shown" in "".join(
        page.texts
    )
    assert "5 more are not shown" in "".join(page.texts)
    assert len(Page(page_of(report, names[0])).data) == 1


def test_an_empty_bucket_has_a_page(tmp_path: Path) -> None:
    (data,) = Page(page_of(Report(write_report(tmp_path / "report", [chain()])))).data
    assert (data["groups"], data["cells"]) == ([], [])


def test_the_command_writes_the_page_beside_its_answer(tmp_path: Path) -> None:
    report = write_report(tmp_path / "report", [chain("s1")], [thing("a", 5, 0)])
    file = tmp_path / "page.html"
    shown = CliRunner().invoke(app, ["lens", "report", str(report), "what-if", "s1", "--html", str(file)])
    assert shown.stdout == "deleting s1 would free 5 B (15 B on disks), 1 version\n"
    assert file.read_text("utf-8") == page_of(Report(report), chosen=["s1"])
    nowhere = CliRunner().invoke(app, ["lens", "report", str(report), "space", "--html", str(tmp_path / "no" / "page")])
    assert nowhere.exit_code == 2
    assert "cannot be written" in " ".join(nowhere.stderr.replace("│", " ").split()), "however the path is wrapped"
    failed = tmp_path / "failed.html"
    shown = CliRunner().invoke(app, ["lens", "report", str(tmp_path / "none"), "space", "--html", str(failed)])
    assert shown.exit_code == 1
    assert not failed.exists(), "a run that fails leaves no empty page"
