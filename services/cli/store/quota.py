"""Options and texts for quotas, which buckets and volumes have."""

from __future__ import annotations

from typing import Annotated

import typer

from services.cli.amounts import parse_size
from services.wording.figures import bytes_text

NO_QUOTA = -1

BytesQuotaOption = Annotated[
    str, typer.Option("--bytes", metavar="SIZE", help="Most bytes: 10TiB, 4096; none: no limit.")
]
NamesQuotaOption = Annotated[int, typer.Option("--names", min=NO_QUOTA, help="Most names; -1: no limit.")]


def quota_bytes_of(text: str) -> int:
    """Return the quota of bytes that is written; ``NO_QUOTA`` for none."""
    return NO_QUOTA if text in ("none", str(NO_QUOTA)) else parse_size(text)


def bytes_quota_text(quota: int) -> str:
    """Return a quota of bytes as shown to people."""
    return "no limit" if quota == NO_QUOTA else bytes_text(quota)


def names_quota_text(quota: int) -> str:
    """Return a quota of names as shown to people."""
    return "no limit" if quota == NO_QUOTA else f"{quota:,}"
