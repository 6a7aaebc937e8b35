"""Options and texts for quotas, which buckets and volumes have."""

from __future__ import annotations

from typing import Annotated

import typer

from services.cli.output import bytes_text

NO_QUOTA = -1
BytesQuotaOption = Annotated[int, typer.Option("--bytes", min=NO_QUOTA, help="Most bytes; -1: no limit.")]
NamesQuotaOption = Annotated[int, typer.Option("--names", min=NO_QUOTA, help="Most names; -1: no limit.")]


def bytes_quota_text(quota: int) -> str:
    """Return a quota of bytes as shown to people."""
    return "no limit" if quota == NO_QUOTA else bytes_text(quota)


def names_quota_text(quota: int) -> str:
    """Return a quota of names as shown to people."""
    return "no limit" if quota == NO_QUOTA else f"{quota:,}"
