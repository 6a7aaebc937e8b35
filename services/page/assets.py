"""The files of the page: served one by one, or inlined where one file has to hold all of them."""

from __future__ import annotations

import gzip
import re
from functools import cache
from importlib import resources

_IMPORT = re.compile(r"^import .*\n", re.MULTILINE)
_EXPORT = re.compile(r"^export (?=(?:async )?(?:class|function|const)\b)", re.MULTILINE)
MEDIA_TYPES = {"html": "text/html", "css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}
"""By the end of a file's name."""


@cache
def asset(name: str) -> str:
    """Return the text of a file of the page."""
    return resources.files("services.page").joinpath("static", name).read_text("utf-8")


@cache
def packed(name: str) -> bytes:
    """Return a file of the page, compressed by gzip: once, and not for every browser that asks."""
    return gzip.compress(asset(name).encode())


@cache
def asset_names() -> frozenset[str]:
    """Return the names of all files of the page."""
    return frozenset(one.name for one in resources.files("services.page").joinpath("static").iterdir() if one.is_file())


def inlined(*modules: str) -> str:
    """Return scripts as one, each behind those that it imports: for a page that reads no other file.

    The scripts share one scope, so no two of them may use one name; imports and exports are left out.
    """
    return "\n".join(_EXPORT.sub("", _IMPORT.sub("", asset(name))).strip() for name in modules)
