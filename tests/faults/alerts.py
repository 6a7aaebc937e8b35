"""Defects of the alerts and of what they look at, put back by hand."""

from __future__ import annotations

import subprocess
import tempfile
from pathlib import Path
from typing import Any

import pytest

from services.domain.reclaim_clock import Held
from services.metadata.collecting import collection_commands
from services.metadata.metrics import MetadataMetrics
from services.metadata.settings import MetadataSettings
from tests.contract import test_monitoring as monitoring
from tests.faults.fault import Fault


def _with_other_rules(patch: pytest.MonkeyPatch, old: str, new: str) -> None:
    """Play the same tests on rules in which something is as it was."""
    rules, run = monitoring.RULES.read_text("utf-8"), subprocess.run
    assert old in rules

    def with_other_rules(arguments: list[str], **options: Any) -> Any:
        with tempfile.TemporaryDirectory() as folder:
            named = {}
            for file in (monitoring.RULES, *monitoring.RULE_TESTS):
                named[str(file)] = f"{folder}/{file.name}"
                text = file.read_text("utf-8").replace("../../deploy/prometheus/rules.yml", "rules.yml")
                Path(folder, file.name).write_text(
                    text.replace(old, new) if file == monitoring.RULES else text, "utf-8"
                )
            return run([named.get(one, one) for one in arguments], **options)

    patch.setattr(subprocess, "run", with_other_rules)


def other_jobs_page_too(patch: pytest.MonkeyPatch) -> None:
    """``up == 0`` of any job of the Prometheus paged as if it were the plane's."""
    _with_other_rules(patch, 'expr: up{job=~"deepclean.*"} == 0', "expr: up == 0")


def a_refusal_before_the_first_scrape_is_silent(patch: pytest.MonkeyPatch) -> None:
    """A count that was above 0 when it was scraped first has never risen, and so nobody was paged."""
    unseen = "or (deepclean_metadata_refused_rows > 0 unless deepclean_metadata_refused_rows offset 1d)"
    _with_other_rules(patch, unseen, "")


def a_restart_clears_a_disagreement(patch: pytest.MonkeyPatch) -> None:
    """Judges that had disagreed were forgotten with the process that had counted it."""
    _with_other_rules(
        patch,
        'max_over_time(deepclean_key_deletion_rows_judged_total{verdict!="reclaimable"}[1d]) > 0',
        'deepclean_key_deletion_rows_judged_total{verdict!="reclaimable"} > 0',
    )


def one_sample_is_all_the_time(patch: pytest.MonkeyPatch) -> None:
    """A process that began with messages in its outbox paged at its first scrape."""
    _with_other_rules(patch, "> 0 and deepclean_outbox_messages offset 10m", "> 0")


def only_what_is_freed_can_be_late(patch: pytest.MonkeyPatch) -> None:
    """Rows that are never freed are in no histogram: nobody was told of them."""
    _with_other_rules(patch, "ever[1h]) > deepclean", "ever[1h]) > 1e18 + deepclean")


def a_throttle_of_a_moment_silences_an_hour(patch: pytest.MonkeyPatch) -> None:
    """A rate that had held one purge request back for a moment explained all that waited in the shard for an hour."""
    _with_other_rules(
        patch,
        "avg_over_time(deepclean:claims_throttled:rate[1h]) > 0.5",
        "max_over_time(deepclean:claims_throttled:rate[1h]) > 0",
    )


def a_throttle_explains_what_is_claimed(patch: pytest.MonkeyPatch) -> None:
    """Blocks that the store did not delete paged nobody as long as purge hours or a rate held other rows back."""
    _with_other_rules(patch, "claimed[1h]) > deepclean", "claimed[1h]) > 1e18 + deepclean")


def no_such_bound(patch: pytest.MonkeyPatch) -> None:
    """The rules named a bound in another spelling than the client library's: no series, and so no alert, ever."""
    _with_other_rules(patch, 'le="1800.0"', 'le="1800"')


def holders_count_as_delay(patch: pytest.MonkeyPatch) -> None:
    """A version that a snapshot had held for days was called late."""
    patch.setattr(Held, "until_ms", lambda *_: 0)


def pauses_count_as_delay(patch: pytest.MonkeyPatch) -> None:
    """A version that a person had held back was called late."""
    patch.setattr(collection_commands, "note_running", lambda *_: None)


def undo_windows_and_closed_hours_count_as_delay(patch: pytest.MonkeyPatch) -> None:
    """Versions that waited for their undo window, or for the purge hours, were called late."""
    freed = MetadataMetrics.freed

    def without_settings(self: MetadataMetrics, noted: Any, _settings: MetadataSettings) -> None:
        freed(self, noted, MetadataSettings())

    patch.setattr(MetadataMetrics, "freed", without_settings)


RULES = "tests/contract/test_monitoring.py::test_promtool_plays_the_rules"
CLOCK = "tests/unit/test_reclaim_clock.py::"

FAULTS = (
    Fault(other_jobs_page_too, caught_by=RULES, message="DeepcleanTargetDown"),
    Fault(a_refusal_before_the_first_scrape_is_silent, caught_by=RULES, message="DeepcleanClaimRefused"),
    Fault(a_restart_clears_a_disagreement, caught_by=RULES, message="DeepcleanJudgesDisagree"),
    Fault(one_sample_is_all_the_time, caught_by=RULES, message="DeepcleanOutboxStuck"),
    Fault(only_what_is_freed_can_be_late, caught_by=RULES, message="DeepcleanNotFreed"),
    Fault(a_throttle_of_a_moment_silences_an_hour, caught_by=RULES, message="DeepcleanNotFreed"),
    Fault(a_throttle_explains_what_is_claimed, caught_by=RULES, message="DeepcleanNotFreed"),
    Fault(no_such_bound, caught_by=RULES, message="DeepcleanFreedLateFast"),
    Fault(
        holders_count_as_delay,
        caught_by=f"{CLOCK}test_it_counts_from_the_drop_of_the_last_holder",
        message="the days for which snapshots held it do not count",
    ),
    Fault(
        pauses_count_as_delay,
        caught_by=f"{CLOCK}test_it_counts_from_the_end_of_a_pause",
        message="what was held back was not late",
    ),
    Fault(
        undo_windows_and_closed_hours_count_as_delay,
        caught_by=f"{CLOCK}test_the_histogram_leaves_out_what_is_no_delay",
        message=r"assert \[",
    ),
)
