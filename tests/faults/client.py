"""Defects of the client and of its commands, put back by hand."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from schemas.records import MetadataReply
from services.cli.session import Session
from services.cli.store import entries
from services.cli.workloads import git, planes
from services.client.errors import AnswerExpiredError, NotDeliveredError, PlaneError
from services.client.tasks import diffs
from services.client.tasks.key_bytes import _Writer
from services.client.wire import paging
from services.client.wire.answers import Answers
from services.client.wire.kafka_commands import KafkaCommands
from services.client.wire.paging import FirstRows
from services.plane.stack.stack import running_client
from services.runtime.http import reads
from services.workloads.git_command import GitError, GitRepository
from tests.faults.fault import Fault


def the_running_plane_is_always_the_default_one(patch: pytest.MonkeyPatch) -> None:
    """``git --plane`` and ``replay --plane`` ignored ``--home``."""
    patch.setattr(Session, "connected", lambda _session: running_client())


def a_key_whose_commit_is_not_answered_is_written_again(patch: pytest.MonkeyPatch) -> None:
    """A put of bytes began again after a commit that had been applied: two versions, the second over anybody's."""
    commit = _Writer.commit

    def twice(self: _Writer, size_bytes: int) -> MetadataReply:
        try:
            return commit(self, size_bytes)
        except NotDeliveredError:
            self._source.seek(0)
            return commit(self, self.write())

    patch.setattr(_Writer, "commit", twice)


def answers_pile_up(patch: pytest.MonkeyPatch) -> None:
    """Answers that nobody fetched were kept for ever."""

    def answered(self: Answers[Any], number: int, answer: Any) -> bool:
        if number not in self.unanswered:
            return False
        self.unanswered.discard(number)
        self._kept[number] = answer
        return True

    patch.setattr(Answers, "answered", answered)


def an_answer_fetched_twice_is_awaited(patch: pytest.MonkeyPatch) -> None:
    """An answer that was fetched before was waited for, a minute long."""
    pop_answer = Answers.pop_answer

    def waits(self: Answers[Any], number: int) -> Any:
        try:
            return pop_answer(self, number)
        except AnswerExpiredError:
            return None

    patch.setattr(Answers, "pop_answer", waits)


def one_failed_delivery_ends_the_client(patch: pytest.MonkeyPatch) -> None:
    """After one request that was not delivered every later one failed."""
    not_delivered, produce = KafkaCommands._not_delivered, KafkaCommands._send
    broken: list[Any] = []

    def remembers(self: KafkaCommands, error: Any) -> Any:
        broken.append(not_delivered(self, error))
        return broken[-1]

    def refuses(self: KafkaCommands, *arguments: Any) -> None:
        if broken:
            raise broken[0]
        produce(self, *arguments)

    patch.setattr(KafkaCommands, "_not_delivered", remembers)
    patch.setattr(KafkaCommands, "_send", refuses)


def a_failure_fails_all_that_is_awaited(patch: pytest.MonkeyPatch) -> None:
    """One request that failed took the others with it."""
    answered = Answers.answered

    def fails_all(self: Answers[Any], number: int, answer: Any) -> bool:
        is_awaited = answered(self, number, answer)
        if isinstance(answer, Exception):
            for other in list(self.unanswered):
                answered(self, other, answer)
        return is_awaited

    patch.setattr(Answers, "answered", fails_all)


def an_error_of_the_reader_fails_all_that_is_awaited(patch: pytest.MonkeyPatch) -> None:
    """After an error the client read its answers from the end on, and failed all requests whose answers lay before."""
    assigned = KafkaCommands._assigned_consumer
    patch.setattr(KafkaCommands, "_assigned_consumer", lambda self, places, _=None: assigned(self, places))
    patch.setattr(KafkaCommands, "_replace", _with_failures(KafkaCommands._replace))


def _with_failures(replace: Callable[..., bool]) -> Callable[..., bool]:
    def fails_all(self: KafkaCommands, reader: Any, positions: Any) -> bool:
        self._fail_all(reader, lambda: NotDeliveredError("the answers are lost", may_be_applied=True))
        return replace(self, reader, positions)

    return fails_all


def a_lost_answer_is_never_asked_for_again(patch: pytest.MonkeyPatch) -> None:
    """A request whose outcome got lost failed, though the plane kept its answer."""
    patch.setattr(KafkaCommands, "_repeat", lambda *_: False)


def listings_end_silently(patch: pytest.MonkeyPatch) -> None:
    """``key list``, ``dir list`` and ``deleted list`` stopped at 1,000 rows and did not say so."""

    def first_rows(rows: Iterator[Any], limit: int) -> FirstRows[Any]:
        return FirstRows(paging.first_rows(rows, limit).rows, has_more=False)

    patch.setattr(entries, "first_rows", first_rows)


def reads_end_at_a_thousand(patch: pytest.MonkeyPatch) -> None:
    """Reads for which nobody named a limit had 1,000 rows, and looked whole."""
    patch.setattr("services.plane.in_memory.client._rows", lambda limit: 1_000 if limit is None else limit)


def sizes_of_many_snapshots_are_a_page(patch: pytest.MonkeyPatch) -> None:
    """The sizes of snapshots ended at one page: a shard may have more."""
    module = "services.client.wire.http_space_reads.HttpSpaceReads"

    def one_page(self: Any, volume: str, bucket: str, start_after: int) -> Iterator[Any]:
        yield self._snapshot_page(volume, bucket, start_after, 2)

    patch.setattr(f"{module}._snapshot_pages", one_page)


def whatever_is_no_history_is_generated(patch: pytest.MonkeyPatch) -> None:
    """A path that did not exist, and a repository that git could not read, got a generated history: all was well."""
    has_history = GitRepository.has_history

    def forgives(self: GitRepository) -> bool:
        try:
            return has_history(self)
        except GitError:
            return False

    patch.setattr(GitRepository, "has_history", forgives)


def a_generated_history_ignores_options(patch: pytest.MonkeyPatch) -> None:
    """``--tags`` and ``--max-commits`` were taken and ignored where there was no history."""
    history = git._history

    def ignores(repository: Path, every: int | None, max_commits: int | None, *, uses_tags: bool) -> Any:
        if GitRepository(repository).has_history():
            return history(repository, every, max_commits, uses_tags=uses_tags)
        return None

    patch.setattr(git, "_history", ignores)


def a_plane_in_memory_goes_before_the_running_one(patch: pytest.MonkeyPatch) -> None:
    """Of ``--in-memory --plane`` the second was ignored."""
    open_plane: Callable[..., Any] = planes.open_plane

    def ignores(session: Session, *, in_memory: bool, is_running: bool, **rest: Any) -> Any:
        return open_plane(session, in_memory=in_memory, is_running=is_running and not in_memory, **rest)

    patch.setattr(git, "open_plane", ignores)


def a_diff_that_ends_too_soon_is_asked_for_ever(patch: pytest.MonkeyPatch) -> None:
    """A diff whose entries had gone meanwhile was taken for whole."""
    find = diffs.diff

    def forgives(*arguments: Any, **names: Any) -> Any:
        try:
            return find(*arguments, **names)
        except PlaneError:
            return []

    patch.setattr("tests.unit.test_long_listings.diff", forgives)


ANSWERS = "tests/unit/test_answers.py::"
KAFKA = "tests/integration/test_kafka_plane.py::"
HISTORY = "tests/unit/test_history_commands.py::"
LISTINGS = "tests/unit/test_long_listings.py::"


def starting_shards_are_wrong_ones(patch: pytest.MonkeyPatch) -> None:
    """Whoever read from a shard that its process was still opening was told that it was the wrong one."""

    def init(self: reads.ServedStores, shards: Iterable[int]) -> None:
        self.shards = set()

    patch.setattr(reads.ServedStores, "__init__", init)


FAULTS = (
    Fault(
        a_key_whose_commit_is_not_answered_is_written_again,
        caught_by="tests/unit/test_written_bytes.py::test_a_commit_whose_outcome_is_unknown_is_not_sent_again",
        message="assert 2 == 1",
    ),
    Fault(
        the_running_plane_is_always_the_default_one,
        caught_by=f"{HISTORY}test_the_running_plane_is_that_of_the_home",
        message=r"elsewhere.* in |assert 0 == 1",
    ),
    Fault(
        answers_pile_up,
        caught_by=f"{ANSWERS}test_answers_that_nobody_fetches_are_bounded",
        message="DID NOT RAISE",
    ),
    Fault(
        an_answer_fetched_twice_is_awaited,
        caught_by=f"{ANSWERS}test_an_answer_is_fetched_once",
        message="DID NOT RAISE",
    ),
    Fault(
        one_failed_delivery_ends_the_client,
        caught_by=f"{KAFKA}test_a_broker_that_was_away_fails_what_was_under_way_and_no_more",
        message="whether it was carried out",
    ),
    Fault(
        a_failure_fails_all_that_is_awaited,
        caught_by=f"{ANSWERS}test_a_failure_is_kept_for_whoever_asks_and_leaves_room",
        message=r"assert set\(\) == \{1, 3\}",
    ),
    Fault(
        an_error_of_the_reader_fails_all_that_is_awaited,
        caught_by=f"{KAFKA}test_reading_goes_on_where_an_error_was",
        message="the answers are lost",
    ),
    Fault(
        a_lost_answer_is_never_asked_for_again,
        caught_by=f"{KAFKA}test_a_lost_answer_is_asked_for_again_by_its_number",
        message="whether it was carried out",
    ),
    Fault(
        listings_end_silently,
        caught_by=f"{LISTINGS}test_a_command_says_that_there_is_more_and_how_to_go_on",
        message="There are more",
    ),
    Fault(
        reads_end_at_a_thousand,
        caught_by=f"{LISTINGS}test_reads_without_a_limit_are_whole",
        message="assert 1000 ==",
    ),
    Fault(
        sizes_of_many_snapshots_are_a_page,
        caught_by=f"{LISTINGS}test_sizes_of_many_snapshots_are_of_one_txn",
        message=r"\[1, 2\]",
    ),
    Fault(
        whatever_is_no_history_is_generated,
        caught_by=f"{HISTORY}test_only_a_directory_without_a_history_gets_a_generated_one",
        message="assert 0 == 1",
    ),
    Fault(
        a_generated_history_ignores_options,
        caught_by=f"{HISTORY}test_only_a_directory_without_a_history_gets_a_generated_one",
        message="assert 0 == 1",
    ),
    Fault(
        a_plane_in_memory_goes_before_the_running_one,
        caught_by=f"{HISTORY}test_options_that_would_be_ignored_are_refused",
        message="--in-memory",
    ),
    Fault(
        a_diff_that_ends_too_soon_is_asked_for_ever,
        caught_by=f"{LISTINGS}test_a_diff_that_ends_too_soon_is_an_error",
        message="DID NOT RAISE",
    ),
    Fault(
        starting_shards_are_wrong_ones,
        caught_by="tests/contract/test_http_reads.py::test_a_shard_that_is_not_ready_yet_is_no_wrong_shard",
        message="is not served here",
    ),
)
