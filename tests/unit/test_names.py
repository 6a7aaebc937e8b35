"""Names and paths at the edges of what is allowed."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from services.domain.names import (
    InvalidNameError,
    check_bucket_name,
    check_key_path,
    check_snapshot_name,
    check_volume_name,
)

CHECKS = [
    pytest.param(check_volume_name, "INVALID_VOLUME_NAME", id="volume"),
    pytest.param(check_bucket_name, "INVALID_BUCKET_NAME", id="bucket"),
    pytest.param(check_snapshot_name, "INVALID_SNAPSHOT_ERROR", id="snapshot"),
]


@pytest.mark.parametrize(("check", "code"), CHECKS)
@pytest.mark.parametrize(
    "name",
    ["sn1", "a" * 63, "0b5d3f6e-8a1c-4f7d-9a53-2f6f0e7b1c11", "s20240131-101530.123", "a--b", "1a1", "1.2.a", "12-34"],
)
def test_s1_names_that_are_accepted(check: Callable[[str], None], code: str, name: str) -> None:
    check(name)


@pytest.mark.parametrize(("check", "code"), CHECKS)
@pytest.mark.parametrize(
    "name",
    [
        pytest.param("a?b", id="character"),
        pytest.param("1234", id="digits only"),
        pytest.param("s1", id="too short"),
        pytest.param("a" * 64, id="too long"),
        pytest.param("", id="empty"),
        pytest.param("Abc", id="upper case"),
        pytest.param("a_b", id="underscore"),
        pytest.param("a/b", id="slash"),
        pytest.param(".ab", id="begins with a period"),
        pytest.param("ab.", id="ends with a period"),
        pytest.param("-ab", id="begins with a dash"),
        pytest.param("ab-", id="ends with a dash"),
        pytest.param("a..b", id="two periods"),
        pytest.param("a.-b", id="dash after period"),
        pytest.param("a-.b", id="period after dash"),
        pytest.param("10.0.0.1", id="address"),
        pytest.param("1.2.3", id="digits and periods"),
        pytest.param("abc\n", id="line end"),
        pytest.param("äbc", id="letter of another alphabet"),
        pytest.param("٣٤٥a", id="digit of another alphabet"),
    ],
)
def test_s2_names_that_are_refused(check: Callable[[str], None], code: str, name: str) -> None:
    with pytest.raises(InvalidNameError) as raised:
        check(name)
    assert raised.value.code == code
    assert repr(name) in str(raised.value)


@pytest.mark.parametrize("is_tree", [True, False])
@pytest.mark.parametrize(
    "path", ["a", "a/b/c", "ä/ü", "a" * 4_096, ".snapshots", ".snapshot1/a", "a/.snapshot", "...", "a b?"]
)
def test_paths_that_are_accepted(path: str, is_tree: bool) -> None:
    check_key_path(path, is_tree=is_tree)


@pytest.mark.parametrize("is_tree", [True, False])
@pytest.mark.parametrize(
    "path",
    [
        pytest.param("", id="empty"),
        pytest.param("a\0b", id="NUL"),
        pytest.param("a" * 4_097, id="too long"),
        pytest.param("ä" * 2_049, id="too long in bytes"),
        pytest.param(".snapshot", id="the snapshots' directory"),
        pytest.param(".snapshot/s1/a", id="below the snapshots' directory"),
        pytest.param("\ud800", id="not encodable"),
    ],
)
def test_paths_that_are_refused(path: str, is_tree: bool) -> None:
    with pytest.raises(InvalidNameError) as raised:
        check_key_path(path, is_tree=is_tree)
    assert raised.value.code == "INVALID_KEY_NAME"


@pytest.mark.parametrize("path", ["/a", "a/", "a//b", ".", "..", "a/./b", "a/../b"])
def test_components_matter_in_a_tree_only(path: str) -> None:
    check_key_path(path, is_tree=False)
    with pytest.raises(InvalidNameError) as raised:
        check_key_path(path, is_tree=True)
    assert raised.value.code == "INVALID_PATH"
