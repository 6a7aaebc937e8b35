"""Holds a history of clients of one bucket against the bucket as a sequential program."""

from __future__ import annotations

from tests.linearizability.bucket import Bucket, next_states
from tests.linearizability.checker import find_impossible
from tests.linearizability.history import History


class NotLinearizableError(AssertionError):
    """An answer that no order of the calls explains."""


def check_history(history: History, seed: int) -> None:
    """See whether one order of the calls explains every answer.

    Raises:
        NotLinearizableError: none does.
        TooManyOrdersError: it cannot be told.
    """
    found = find_impossible(history.in_halves(), Bucket(), next_states)
    if found is not None:
        states = "\n".join(map(str, found.states))
        raise NotLinearizableError(
            f"seed {seed}: no order of the calls explains this answer:\n{found.operation}\n"
            f"the answers before it allow these states:\n{states}\nthe history:\n{history}"
        )
