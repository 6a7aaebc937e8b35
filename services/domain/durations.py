"""Lengths of time that more than one rule is written in."""

from __future__ import annotations

HOUR_MS = 3_600_000
