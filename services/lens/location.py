"""Addresses as they may be shown: without the user and password that some stores have in them."""

from __future__ import annotations

import re

_USER = re.compile(r"(?<=://)(?:[^/\s@]*|[^/\s@:]*:(?!\d+/)[^\s@]*)@")
"""A secret key may contain slashes that nobody has escaped; what is before them is no port then."""


def without_credentials(text: str) -> str:
    """Return a text with addresses as ``s3://KEY:SECRET@bucket/table`` as one with ``s3://bucket/table``."""
    return _USER.sub("", text)
