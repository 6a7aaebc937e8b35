"""The plane's own nets, taken down: what is left to notice blocks that go too early is the model alone.

Two more judges look at what the first one lets go. Metadata looks whether the space matrix knows of so much as is to be
claimed, and holds a bucket back whose matrix falls below zero. Most faults that free too early are stopped there.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from services.directory_deletion.trees import Trees
from services.domain.breaker import Amount
from services.domain.row_columns import names_between
from services.key_deletion.purges import WaitingPurges
from services.metadata.collecting import breaker, claims, expansion
from services.metadata.collecting.breaker import Gate

Fault = Callable[[pytest.MonkeyPatch], None]
_EVERYTHING = Amount(1 << 62, 1 << 62)


def no_forecast(patch: pytest.MonkeyPatch) -> None:
    """Nobody compares what is claimed with the figures."""
    original = Gate.__init__

    def init(self: Gate, *arguments: object) -> None:
        original(self, *arguments)  # type: ignore[arg-type]
        self._forecast = _EVERYTHING

    patch.setattr(Gate, "__init__", init)
    patch.setattr(breaker, "trip_where_figures_disagree", lambda _: None)


def no_second_judge(patch: pytest.MonkeyPatch) -> None:
    """What the first judge lets go is asked for."""
    patch.setattr(WaitingPurges, "_judge", lambda _, purge, __, max_rows: names_between(purge.rows, 0, max_rows))
    patch.setattr(Trees, "_is_judged_again", lambda *_: True)


def no_third_judge_of_keys_and_renames(patch: pytest.MonkeyPatch) -> None:
    """What is asked for is claimed."""
    patch.setattr(claims._Claim, "_is_held", lambda *_: False)


def no_third_judge_of_directories(patch: pytest.MonkeyPatch) -> None:
    """What is asked for is purged."""
    patch.setattr(expansion, "is_reclaimable_after", lambda *_: True)


def no_third_judge(patch: pytest.MonkeyPatch) -> None:
    """What is asked for goes."""
    no_third_judge_of_keys_and_renames(patch)
    no_third_judge_of_directories(patch)


def together(*faults: Fault) -> Fault:
    """Several at once, in this order."""

    def apply(patch: pytest.MonkeyPatch) -> None:
        for fault in faults:
            fault(patch)

    apply.__doc__ = faults[-1].__doc__
    return apply


def unshielded(fault: Fault, *, judges: bool = True) -> Fault:
    """A fault without the nets behind it; ``judges`` says whether the later judges are among these."""
    return together(no_forecast, *((no_second_judge, no_third_judge) if judges else ()), fault)
