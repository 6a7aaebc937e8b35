"""The unanswered requests of a client to one shard of a service, and their answers: bounded, each fetched once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from services.client.errors import AnswerExpiredError
from services.domain.errors import DeepcleanError

MAX_KEPT_ANSWERS = 50_000
"""Most answers kept per shard. A client that fetches no answers would otherwise keep all of them for ever."""

R = TypeVar("R")


@dataclass(slots=True)
class Answers(Generic[R]):
    """Requests are numbered from 1. Not safe to use from several threads without a lock."""

    last_number: int = 0
    unanswered: set[int] = field(default_factory=set)
    _kept: dict[int, R | DeepcleanError] = field(default_factory=dict)
    """By number, in the order of arrival: an answer, or the error in its place."""
    answered_txn: int = 0
    """The newest txn that was answered."""

    def sent(self) -> int:
        """Record that a request is sent; return its number."""
        self.last_number += 1
        self.unanswered.add(self.last_number)
        return self.last_number

    def withdraw(self) -> None:
        """Record that the newest request was not sent: its number is free again."""
        self.unanswered.discard(self.last_number)
        self.last_number -= 1

    def answered(self, number: int, answer: R | DeepcleanError) -> bool:
        """Record an answer, or the error in its place. Return False if no request waits for it, as for a duplicate."""
        if number not in self.unanswered:
            return False
        self.unanswered.discard(number)
        self._kept[number] = answer
        while len(self._kept) > MAX_KEPT_ANSWERS:
            del self._kept[next(iter(self._kept))]
        return True

    def fail_all(self, why: Callable[[], DeepcleanError]) -> None:
        """Fail every unanswered request, each with an error of its own."""
        for number in sorted(self.unanswered):
            self.answered(number, why())

    def pop_answer(self, number: int) -> R | None:
        """Remove and return an answer, or return None if it has not arrived yet.

        Raises:
            ValueError: no request with that number was sent yet.
            AnswerExpiredError: the answer was fetched before, or dropped because ``MAX_KEPT_ANSWERS`` newer ones came.
            DeepcleanError: the request failed; the message tells whether it may have been carried out.
        """
        if not 0 < number <= self.last_number:
            raise ValueError(f"number {number} was not sent yet")
        if number in self.unanswered:
            return None
        answer = self._kept.pop(number, None)
        if answer is None:
            raise AnswerExpiredError(
                f"the answer to number {number} is not kept any more: it was fetched before, or {MAX_KEPT_ANSWERS:,} "
                f"others came and nobody fetched it. Fetch each answer once, soon; whether the request was carried "
                f"out can be read from the plane"
            )
        if isinstance(answer, DeepcleanError):
            raise answer
        return answer
