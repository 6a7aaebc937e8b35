"""Addresses as they may be shown: without the user and password that some stores have in them."""

from __future__ import annotations

import re

_USER = re.compile(
    r"(?<=://)[^/\s]*@"
    r"|(?<=s3://)[^/\s@:]+:[^\s@]*@|(?<=s3a://)[^/\s@:]+:[^\s@]*@"
    r"|(?<=://)[^/\s@:\[]+:(?!\d+/)[^\s@]*@"
)
"""A secret may contain slashes that nobody has escaped. A bucket has no port; what follows another host's colon may be
one."""


def without_credentials(text: str) -> str:
    """Return a text with addresses as ``s3://KEY:SECRET@bucket/table`` as one with ``s3://bucket/table``."""
    return _USER.sub("", text)
