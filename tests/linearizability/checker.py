"""Whether a history is linearizable: all orders that the answers so far allow are kept, answer after answer.

This is the search of Wing and Gong with Lowe's pruning: a call takes effect no earlier than it must, which is just
before some answer comes, and two orders that led to the same state with the same calls in effect are one.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from typing import Generic, TypeVar

from tests.linearizability.history import Call, Operation, Outcome, Read

State = TypeVar("State", bound=Hashable)
MAX_ORDERS = 200_000


class TooManyOrdersError(Exception):
    """Too many calls are under way at once for all orders to be tried: nothing is said of the history."""


@dataclass(frozen=True, slots=True)
class Impossible(Generic[State]):
    """The first answer that no order of the calls explains."""

    operation: Operation
    states: frozenset[State]
    """The states that all answers before it allow."""


def find_impossible(
    operations: Iterable[Operation], initial: State, next_states: Callable[[State, Call, Outcome | None], list[State]]
) -> Impossible[State] | None:
    """The first answer that cannot be; None when the history is linearizable.

    Raises:
        TooManyOrdersError: it cannot be told.
    """
    pending: dict[int, Operation] = {}
    orders: set[tuple[State, frozenset[int]]] = {(initial, frozenset())}
    for is_answer, operation in _events(operations):
        if not is_answer:
            pending[operation.number] = operation
            continue
        reached = _with_effect(operation, pending, orders, next_states)
        if not reached:
            return Impossible(operation, frozenset(state for state, _ in orders))
        del pending[operation.number]
        orders = reached
    return None


def _events(operations: Iterable[Operation]) -> list[tuple[bool, Operation]]:
    """Beginnings and answers in the order of their moments; without reads that nobody has seen the answer of."""
    events: list[tuple[int, bool, Operation]] = []
    for operation in operations:
        if operation.returned is not None:
            events.append((operation.returned, True, operation))
        elif isinstance(operation.call, Read):
            continue
        events.append((operation.invoked, False, operation))
    return [(is_answer, operation) for _, is_answer, operation in sorted(events, key=lambda event: event[0])]


def _with_effect(
    operation: Operation,
    pending: dict[int, Operation],
    orders: set[tuple[State, frozenset[int]]],
    next_states: Callable[[State, Call, Outcome | None], list[State]],
) -> set[tuple[State, frozenset[int]]]:
    """Every order in which a call has taken effect by now, perhaps after others that are under way."""
    changing = {number: one for number, one in pending.items() if not one.changes_nothing}
    others = {number: one for number, one in pending.items() if one.changes_nothing}

    def with_all_that_changes_nothing(state: State, done: frozenset[int]) -> tuple[State, frozenset[int]]:
        """A read or a refusal that may be here is best taken here: nothing that may follow is lost by it."""
        fitting = [
            number for number in others.keys() - done if next_states(state, others[number].call, others[number].outcome)
        ]
        return state, done.union(fitting)

    reached: set[tuple[State, frozenset[int]]] = set()
    to_do = [with_all_that_changes_nothing(*order) for order in orders]
    seen = set(to_do)
    while to_do:
        state, done = to_do.pop()
        if operation.number in done:
            reached.add((state, done - {operation.number}))
            continue
        for number in changing.keys() - done:
            for following in next_states(state, changing[number].call, changing[number].outcome):
                order = with_all_that_changes_nothing(following, done | {number})
                if order not in seen:
                    seen.add(order)
                    to_do.append(order)
        if len(seen) > MAX_ORDERS:
            raise TooManyOrdersError(f"more than {MAX_ORDERS} orders before {operation}")
    return reached
