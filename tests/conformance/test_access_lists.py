"""What a new volume, bucket, prefix, directory and key inherits is what it inherits in Ozone 2.2.0, entry by entry."""

from __future__ import annotations

import pytest

from services.plane.in_memory.client import InMemoryClient
from services.plane.in_memory.plane import InMemoryPlane
from tests.access_list_cases import CASES, entry_of, play, read_lines, text_of


def test_all_cases_are_here_and_have_each_kind_of_object_and_of_change() -> None:
    lines = [line for case in CASES for line in read_lines(case, "ops")]
    assert len(CASES) == 8
    assert {line["object"] for line in lines if line["op"] != "get_acl" and "object" in line} == {
        *("VOLUME", "BUCKET", "PREFIX", "KEY"),
    }
    assert {line["op"] for line in lines} >= {"add_acl", "remove_acl", "set_acl", "get_acl", "upload", "rename_dir"}


@pytest.mark.parametrize("case", CASES)
def test_lists_are_those_of_ozone(case: str) -> None:
    seen = play(InMemoryClient(InMemoryPlane()), read_lines(case, "ops"))
    assert seen == read_lines(case, "expected")


@pytest.mark.parametrize("text", ["user:bob:rwcld[DEFAULT]", "world::a[ACCESS]", "group:dev:xy[DEFAULT]"])
def test_an_entry_is_written_as_it_is_read(text: str) -> None:
    assert text_of(entry_of(text)) == text
