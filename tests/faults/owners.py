"""Defects of owners: former ones that go on, and starts that take the control records of transactions for messages."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

import pytest

from services.client.wire import http_reads
from services.client.wire.owners import FollowedOwner
from services.domain.errors import RetryableError
from services.log.kafka import KafkaLog, producer_configuration
from services.log.kafka_sinks import KafkaSink
from services.log.memory import MemorySink
from services.log.port import LogRecord
from services.runtime.loop import runner
from services.runtime.loop.changelog import Changelog
from services.runtime.loop.runner import Runner
from services.runtime.process.hosted_shard import HostedShard
from tests.faults.fault import Fault


def an_owner_is_not_fenced(patch: pytest.MonkeyPatch) -> None:
    """A process that had been given up answered requests beside the one that had taken its place."""
    patch.setattr(MemorySink, "_require_owner", lambda _: None)


def services_publish_without_a_name(patch: pytest.MonkeyPatch) -> None:
    """The log could not tell a former owner from the present one."""
    patch.setattr(runner, "owner_name", lambda *_: "")


def kafka_is_not_told_who_publishes(patch: pytest.MonkeyPatch) -> None:
    """The broker took what a former owner published."""

    def open_sink(log: KafkaLog, owner: str = "") -> KafkaSink:
        return KafkaSink(producer_configuration(log.bootstrap_servers, log.client_id))

    patch.setattr(KafkaLog, "open_sink", open_sink)


def a_start_waits_for_the_control_records(patch: pytest.MonkeyPatch) -> None:
    """A service never said that it had read all that was there at its start, since a control record is no message."""

    def add(self: Runner, records: Sequence[LogRecord]) -> None:
        self._polled.extend(records)

    patch.setattr(Runner, "_add", add)


def a_beginning_is_not_awaited(patch: pytest.MonkeyPatch) -> None:
    """A start failed when the log acknowledged its beginning before readers could see it."""
    patch.setattr(Changelog, "_await_readable", lambda *_: None)


def clients_stay_with_the_owner_that_they_know(patch: pytest.MonkeyPatch) -> None:
    """Reads of a shard that had moved failed until the client was started again."""
    patch.setattr(FollowedOwner, "look_again", lambda _: None)


def a_shard_elsewhere_is_the_end_of_a_read(patch: pytest.MonkeyPatch) -> None:
    """A host that had given a shard away told the client that it was wrong, and the client believed it."""
    patch.setattr(http_reads, "WRONG_SHARD", "none")


def a_late_refusal_is_believed(patch: pytest.MonkeyPatch) -> None:
    """A client whose time was over when the former owner refused did not ask the new one, which it knew."""
    patch.setattr(FollowedOwner, "known_url", lambda _: "")


def an_owner_that_nobody_knows_goes_on(patch: pytest.MonkeyPatch) -> None:
    """An owner whose address could not be published once never published it, and applied all commands."""
    announce = HostedShard._announce

    def once(self: HostedShard, runner: Runner) -> None:
        with contextlib.suppress(RetryableError):
            announce(self, runner)

    patch.setattr(HostedShard, "_announce", once)


def a_unit_that_nobody_has_seen_is_a_lost_tail(patch: pytest.MonkeyPatch) -> None:
    """An owner of snapshots that had been refused in a unit of work could not become the owner again."""
    patch.setattr(Changelog, "_is_overtaken", lambda *_: False)


_TWO = "tests/property/test_two_processes_of_one_shard.py::test_a_fenced_process_leaves_its_place_to_the_other"
_FOLLOWED = "tests/unit/test_followed_owners.py::test_a_read_follows_a_shard_that_moves"
FAULTS = (
    Fault(an_owner_is_not_fenced, caught_by=_TWO, message="has expired or was deleted"),
    Fault(services_publish_without_a_name, caught_by=_TWO, message="has expired or was deleted"),
    Fault(
        kafka_is_not_told_who_publishes,
        caught_by="tests/contract/test_log.py::test_a_second_owner_fences_the_first_one",
        message="DID NOT RAISE",
    ),
    Fault(
        a_start_waits_for_the_control_records,
        caught_by="tests/unit/test_loop.py::test_a_start_has_caught_up_before_the_control_records_at_the_end",
        message="assert",
    ),
    Fault(
        clients_stay_with_the_owner_that_they_know, caught_by=_FOLLOWED, message="cannot be reached|does not own shard"
    ),
    Fault(a_shard_elsewhere_is_the_end_of_a_read, caught_by=_FOLLOWED, message="is not served here"),
    Fault(
        a_late_refusal_is_believed,
        caught_by="tests/unit/test_followed_owners.py::test_who_is_told_late_that_a_shard_has_moved_asks_its_new_owner",
        message="does not own shard 3",
    ),
    Fault(
        an_owner_that_nobody_knows_goes_on,
        caught_by="tests/unit/test_announced_owners.py::test_an_address_is_published_until_the_log_has_it",
        message="assert '' == 'http://127.0.0.1:1'",
    ),
    Fault(
        a_beginning_is_not_awaited,
        caught_by="tests/unit/test_changelog.py::test_a_beginning_that_readers_see_later_is_awaited",
        message="is not in its changelog",
    ),
    Fault(
        a_unit_that_nobody_has_seen_is_a_lost_tail,
        caught_by="tests/unit/test_changelog.py::TestWhatIsMissing::"
        "test_a_unit_that_was_never_published_is_given_up_when_another_database_has_begun",
        message="an abandoned history",
    ),
)
