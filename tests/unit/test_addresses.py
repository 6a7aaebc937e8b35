"""Addresses as they may be shown."""

from __future__ import annotations

import pytest

from services.domain.addresses import without_credentials


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("s3://KEY:SECRET@lake/db/t", "s3://lake/db/t"),
        ("s3://KEY:SEC/R+ET@lake/db/t", "s3://lake/db/t"),
        ("http://ann:word@om:9874 did not answer", "http://om:9874 did not answer"),
        ("s3://a:b@x cannot be read (s3://a:b@x/y is missing)", "s3://x cannot be read (s3://x/y is missing)"),
        ("s3://lake/dir@v1/t", "s3://lake/dir@v1/t"),
        ("s3a://KEY:42/xy+z@lake/db/t", "s3a://lake/db/t"),
        ("http://ann:p@ss@om:9874", "http://om:9874"),
        ("http://ann:pa/ss@om:9874", "http://om:9874"),
        ("http://[::1]:9874/a@b", "http://[::1]:9874/a@b"),
        ("http://om:9874/path@1", "http://om:9874/path@1"),
        ("/local/a@b:c", "/local/a@b:c"),
        ("lake:db.table", "lake:db.table"),
    ],
)
def test_users_and_passwords_are_left_out(text: str, shown: str) -> None:
    assert without_credentials(text) == shown
