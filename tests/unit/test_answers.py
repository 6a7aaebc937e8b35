"""Answers that a client keeps: each is fetched once, those that nobody fetches are bounded, one failure fails alone."""

from __future__ import annotations

import pytest

from schemas.records import CreateVolume
from services.client.errors import AnswerExpiredError, NotDeliveredError
from services.client.wire import answers as module
from services.client.wire.answers import Answers
from services.plane.in_memory.client import InMemoryClient
from services.plane.in_memory.plane import InMemoryPlane


def test_an_answer_is_fetched_once() -> None:
    answers = Answers[str]()
    assert answers.sent() == 1
    assert answers.pop_answer(1) is None
    assert answers.answered(1, "done")
    assert not answers.answered(1, "again"), "repeated answers are nobody's"
    assert answers.pop_answer(1) == "done"
    with pytest.raises(AnswerExpiredError, match="fetched before"):
        answers.pop_answer(1)
    for never in (0, 2):
        with pytest.raises(ValueError, match="was not sent"):
            answers.pop_answer(never)


def test_answers_that_nobody_fetches_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_KEPT_ANSWERS", 3)
    answers = Answers[str]()
    for number in range(1, 5):
        answers.sent()
        answers.answered(number, f"answer {number}")
    with pytest.raises(AnswerExpiredError, match="nobody fetched it"):
        answers.pop_answer(1)
    assert [answers.pop_answer(number) for number in (2, 3, 4)] == ["answer 2", "answer 3", "answer 4"]


def test_a_failure_is_kept_for_whoever_asks_and_leaves_room() -> None:
    answers = Answers[str]()
    for _ in range(3):
        answers.sent()
    answers.answered(2, NotDeliveredError("the broker did not take it", may_be_applied=True))
    assert answers.unanswered == {1, 3}
    answers.answered(3, "done")
    with pytest.raises(NotDeliveredError, match="did not take it"):
        answers.pop_answer(2)
    assert answers.pop_answer(3) == "done"
    answers.fail_all(lambda: NotDeliveredError("nothing can be read", may_be_applied=True))
    assert not answers.unanswered
    with pytest.raises(NotDeliveredError, match="nothing can be read"):
        answers.pop_answer(1)


def test_a_request_that_did_not_go_out_leaves_no_number() -> None:
    answers = Answers[str]()
    answers.sent()
    answers.sent()
    answers.withdraw()
    assert answers.unanswered == {1}
    assert answers.sent() == 2


def test_the_plane_in_memory_answers_once_too(monkeypatch: pytest.MonkeyPatch) -> None:
    client = InMemoryClient(InMemoryPlane())
    number = client.submit(0, CreateVolume("vol"))
    assert client.answer(0, number).error == ""
    with pytest.raises(AnswerExpiredError, match="fetched before"):
        client.answer(0, number)
    monkeypatch.setattr(module, "MAX_KEPT_ANSWERS", 2)
    numbers = [client.submit(0, CreateVolume("vol")) for _ in range(3)]
    assert client.answer(0, numbers[-1]).error == "VOLUME_ALREADY_EXISTS"
    with pytest.raises(AnswerExpiredError):
        client.answer(0, numbers[0])
    assert client.answer(0, numbers[1]).error == "VOLUME_ALREADY_EXISTS"
