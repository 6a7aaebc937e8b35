"""All targets."""

from __future__ import annotations

from tests.fuzz import command_line, decoders, http_requests, stored_rows
from tests.fuzz.target import Target

TARGETS: dict[str, Target] = {
    target.name: target
    for target in (
        *(decoders.TARGET, stored_rows.TARGET, http_requests.TARGET),
        *(command_line.TARGET, command_line.ON_A_PLANE),
    )
}
"""By name; a seed of ``python -m tests.fuzz`` plays the one whose turn it is."""
