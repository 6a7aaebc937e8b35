"""Defects of standbys, and of what a new owner leaves out because the former one has published it."""

from __future__ import annotations

from typing import Any

import pytest

from schemas.topics import METADATA_COMMANDS
from services.log import published
from services.log.port import Log
from services.log.reads import end_of_records
from services.metadata.recovery import start_check
from services.metadata.recovery.start_check import StartCheckedLog
from services.runtime.loop import outbox
from services.runtime.loop.outbox import Outbox
from services.runtime.loop.runner import Runner
from services.runtime.process import standby
from tests.faults.fault import Fault


def a_standby_publishes(patch: pytest.MonkeyPatch) -> None:
    """A standby sent what it had applied, as its owner does."""
    original = Runner.step

    def step(self: Runner, timeout_seconds: float = 0.0) -> int:
        is_standby = isinstance(self._sink, standby.SilentSink)
        applied = original(self, timeout_seconds)
        if is_standby:
            self._sink = self._outbox._sink = self._log.open_sink()
            self.send_deferred()
            self._sink = self._outbox._sink = standby.SilentSink()
        return applied

    patch.setattr(Runner, "step", step)


def a_unit_counts_as_published_while_it_is_sent(patch: pytest.MonkeyPatch) -> None:
    """A message said that all of its unit of work was in the log, of which later messages were not sent yet."""
    original = Outbox.written

    def written(self: Outbox, added: outbox.Added, first: int | None = None, behind: int = 0) -> None:
        original(self, added, None if first is None else behind, behind)

    patch.setattr(Outbox, "written", written)


def all_that_a_standby_has_counts_as_published(patch: pytest.MonkeyPatch) -> None:
    """A standby threw away what it had applied before the owner had."""

    def drop_published(self: Outbox, below: int) -> bool:
        while self._deferred:
            self._acknowledged.append(self._take_deferred())
        return True

    patch.setattr(Outbox, "drop_published", drop_published)


def a_trim_of_what_is_only_checked_stops_a_standby(patch: pytest.MonkeyPatch) -> None:
    """A standby whose checked record was trimmed between its start and its first read was not followed any more."""
    patch.setattr(Runner, "_read", lambda self, *limits: self._source.poll(*limits))


def what_is_published_is_sent_again(patch: pytest.MonkeyPatch) -> None:
    """A new owner sent all that its shard had ever published."""

    def published_below(*_: object) -> int:
        return 0

    patch.setattr(standby, "published_below", published_below)


def a_lost_tail_counts_as_published(patch: pytest.MonkeyPatch) -> None:
    """After a lost tail, commands at the same offsets counted as those whose results had been published."""
    patch.setattr(published, "CLOCK_SLACK_MS", 1 << 62)


def an_end_is_asked_for_before_the_numbers(patch: pytest.MonkeyPatch) -> None:
    """A new owner took what its predecessor had done meanwhile for a loss of commands."""
    init, demanded = StartCheckedLog.__init__, StartCheckedLog._what_is_demanded
    ends: dict[int, int] = {}

    def note_end(self: StartCheckedLog, log: Log, shard: int, *rest: Any, **named: Any) -> None:
        init(self, log, shard, *rest, **named)
        ends[id(self)] = end_of_records(log, METADATA_COMMANDS.name, shard)

    def what_is_demanded(self: StartCheckedLog) -> Any:
        patch.setattr(start_check, "end_of_records", lambda *_: ends[id(self)])
        return demanded(self)

    patch.setattr(StartCheckedLog, "__init__", note_end)
    patch.setattr(StartCheckedLog, "_what_is_demanded", what_is_demanded)


_STANDBY = "tests/property/test_takeover_by_a_standby.py::test_what_is_seen_is_what_one_process_shows"
_PUBLISHED = "tests/unit/test_published.py"
FAULTS = (
    Fault(a_standby_publishes, caught_by=_STANDBY, message="a standby has published"),
    Fault(a_unit_counts_as_published_while_it_is_sent, caught_by=_STANDBY, message="assert|Error"),
    Fault(all_that_a_standby_has_counts_as_published, caught_by=_STANDBY, message="assert|Error"),
    Fault(
        a_trim_of_what_is_only_checked_stops_a_standby,
        caught_by="tests/unit/test_last_reads.py::test_a_trim_between_the_start_and_the_first_read_is_no_loss",
        message="is before the beginning",
    ),
    Fault(
        what_is_published_is_sent_again,
        caught_by="tests/property/test_takeover_by_a_standby.py::test_what_was_published_is_not_sent_again",
        message="were sent again",
    ),
    Fault(
        a_lost_tail_counts_as_published,
        caught_by=f"{_PUBLISHED}::test_commands_at_the_place_of_lost_ones_are_not_published",
        message="assert",
    ),
    Fault(
        an_end_is_asked_for_before_the_numbers,
        caught_by="tests/unit/test_start_check.py::test_a_former_owner_may_go_on_until_the_new_one_starts",
        message="LostCommandsError",
    ),
)
