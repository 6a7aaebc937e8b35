"""Defects of the first judge, put back by hand."""

from __future__ import annotations

from typing import Never

import pytest
from pyspark.sql import Column, DataFrame
from pyspark.sql.avro.functions import to_avro
from pyspark.sql.functions import coalesce, col, collect_set, lit, struct, when

from schemas.records import DeletedEntries, FullChain, SnapshotChainRecord
from schemas.schema_files import resolved_schema
from services.domain.chain_view import ChainView
from services.domain.errors import InvariantError, PrematureError
from streaming.reclaiming import batch, batch_plans, metrics, reclaim, waiting
from streaming.reclaiming.batch_plans import JudgedFrames
from streaming.reclaiming.outcome import BatchOutcome, batch_outcome
from streaming.reclaiming.prepared_plan import PreparedPlan, partition_count
from streaming.reclaiming.rule import with_neighbours
from streaming.reclaiming.shard_chain import ShardChain
from streaming.reclaiming.waiting import Waiting
from streaming.spark.written_messages import WrittenMessages, as_text
from tests.faults.fault import Fault

BATCH = "tests/integration/test_judged_batch.py"
JOB = "tests/integration/test_reclaim_job.py"
CHAIN = "tests/unit/test_shard_chain.py"
WAITING = "tests/unit/test_waiting.py"


def a_barrier_goes_out_once_for_each_row(patch: pytest.MonkeyPatch) -> None:
    """A message with a barrier and rows sent the barrier as often as it had rows."""
    patch.setattr(batch, "_barrier", lambda: when(col("is_judged"), col("entry.barrier")))


def rows_beside_a_barrier_are_lost(patch: pytest.MonkeyPatch) -> None:
    """The rows of a message with a barrier were neither judged nor put aside."""

    def object_ids() -> Column:
        return when(col("is_judged") & col("entry.barrier").isNull(), col("entry.rows.object_ids"))

    patch.setattr(batch, "_object_ids", object_ids)


def a_message_has_to_be_written_as_spark_would(patch: pytest.MonkeyPatch) -> None:
    """Lists in blocks, which Avro allows, were refused, since Spark writes them in one."""

    def is_exact(self: WrittenMessages, decoded: Column) -> Column:
        written = to_avro(decoded["message"], as_text(resolved_schema(DeletedEntries.__name__)))
        return coalesce(written == col("value"), lit(False))

    patch.setattr(WrittenMessages, "is_exact", is_exact)


def bytes_may_follow_a_message(patch: pytest.MonkeyPatch) -> None:
    """Nobody asked whether a message ends where its record does."""

    def is_exact(self: WrittenMessages, decoded: Column) -> Column:
        return decoded["mark"].isNotNull()

    patch.setattr(WrittenMessages, "is_exact", is_exact)


def a_shard_without_a_view_gets_no_verdicts(patch: pytest.MonkeyPatch) -> None:
    """A shard that was added had no view, and all of its rows became dead letters."""
    verdict = batch._verdict

    def with_nulls(*, is_patient: bool) -> Column:
        return when(col("view_version").isNotNull(), verdict(is_patient=is_patient))

    patch.setattr(batch, "_verdict", with_nulls)


def a_kept_plan_has_the_tables_that_it_was_made_with(patch: pytest.MonkeyPatch) -> None:
    """A marker of the chain did not reach the plans that were kept."""
    patch.setattr(PreparedPlan, "replace_tables", lambda self, tables: True)


def a_search_ends_a_step_early(patch: pytest.MonkeyPatch) -> None:
    """A page with several live snapshots was not searched to its end, and its rows were refused."""

    def too_short(rows: DataFrame, search_steps: int) -> DataFrame:
        return with_neighbours(rows, max(0, search_steps - 1))

    patch.setattr("tests.property.test_spark_rule.with_neighbours", too_short)


def a_stage_has_a_task_for_each_partition(patch: pytest.MonkeyPatch) -> None:
    """A batch was read by as many tasks as it had partitions, which were as many as there are shards or more."""
    patch.setattr(batch_plans, "cluster_width", partition_count)


def results_that_do_not_come_are_taken_for_none(patch: pytest.MonkeyPatch) -> None:
    """What a batch came to was read from a metric, and missing counts and barriers were none."""
    patch.setattr(
        JudgedFrames, "outcome", lambda self: batch_outcome(row.asDict() for row in self.results.limit(1).collect())
    )


def an_entry_ahead_of_the_chain_ends_the_job(patch: pytest.MonkeyPatch) -> None:
    """An absurd chain version raised once its batch was published, and so at every start, for all shards."""
    remember = reclaim.ReclaimJob._remember

    def raising(self: reclaim.ReclaimJob, outcome: BatchOutcome) -> None:
        if outcome.premature:
            raise PrematureError("entries know of more of the snapshot chain than there is")
        remember(self, outcome)

    patch.setattr(reclaim.ReclaimJob, "_remember", raising)


def a_partition_that_is_added_ends_the_query(patch: pytest.MonkeyPatch) -> None:
    """Spark's source fails when it reports on a partition that no batch has had yet, and the job ended with it."""
    patch.setattr(reclaim.ReclaimJob, "_is_begun_again", lambda self, text: False)


def a_broken_chain_stops_every_shard(patch: pytest.MonkeyPatch) -> None:
    """A marker of one shard that was missing or could not be read ended the whole job."""

    def stop(self: ShardChain, reason: str, needed_version: int) -> Never:
        raise InvariantError(f"nothing of any shard is judged: {reason}")

    patch.setattr(ShardChain, "_break", stop)


def a_chain_is_whole_as_soon_as_a_marker_follows(patch: pytest.MonkeyPatch) -> None:
    """What was named beyond a gap was forgotten when the gap was closed in part."""
    broken = ShardChain._break
    patch.setattr(ShardChain, "_break", lambda self, reason, needed_version: broken(self, reason, 0 * needed_version))


def any_part_of_a_whole_chain_mends_it(patch: pytest.MonkeyPatch) -> None:
    """A chain was whole again with the first part of a full chain, whether or not the others came."""

    def is_told(self: ChainView, marker: SnapshotChainRecord) -> bool:
        return isinstance(marker.body, FullChain) and marker.version == self.version

    patch.setattr(ChainView, "is_confirmed_by_full_chain", is_told)


def what_waits_counts_as_a_part_that_was_judged(patch: pytest.MonkeyPatch) -> None:
    """A message that had not been judged was named among the parts of its sweep's page, which closed too soon."""
    collected = batch._collected

    def with_all_parts() -> list[Column]:
        parts = collect_set(struct("sweep_txn", "sweep_part", "message_rows")).alias("parts")
        return [*(column for column in collected() if "AS parts" not in str(column)), parts]

    patch.setattr(batch, "_collected", with_all_parts)


def a_premature_entry_waits_for_ever(patch: pytest.MonkeyPatch) -> None:
    """An entry that claims the future had no bound."""
    due = Waiting.due
    patch.setattr(Waiting, "due", lambda self, versions, now, patience: due(self, versions, now, patience + 1e9))


def what_waits_is_forgotten_by_a_restart(patch: pytest.MonkeyPatch) -> None:
    """Spark's own place went on, and nobody knew what it had left behind."""
    patch.setattr(waiting, "saved", lambda checkpoint: Waiting())
    patch.setattr(reclaim, "saved", lambda checkpoint: Waiting())


def what_waits_is_trimmed(patch: pytest.MonkeyPatch) -> None:
    """The log was trimmed up to where Spark's own place is."""
    patch.setattr(metrics, "first_needed", lambda ends, first_waiting: ends)


def the_ledger_has_one_released_schema(patch: pytest.MonkeyPatch) -> None:
    """The export died with the second released schema."""
    decode = WrittenMessages.decode

    def of_one(self: WrittenMessages, value: Column) -> Column:
        (_,) = self._schemas
        return decode(self, value)

    patch.setattr(WrittenMessages, "decode", of_one)


def what_a_newer_plane_wrote_is_dead_lettered(patch: pytest.MonkeyPatch) -> None:
    """The export went past messages of a schema that it did not know, and no newer one ever came back to them."""
    patch.setattr(WrittenMessages, "learn_published", lambda self: False)


FAULTS = (
    Fault(
        a_barrier_goes_out_once_for_each_row,
        caught_by=f"{BATCH}::test_rows_beside_a_barrier_are_judged_and_the_barrier_comes_once",
        message=r"At index 1 diff: PlacedBarrier\(shard=0, offset=0",
    ),
    Fault(
        rows_beside_a_barrier_are_lost,
        caught_by=f"{BATCH}::test_rows_beside_a_barrier_are_judged_and_the_barrier_comes_once",
        message=r"assert \[\] == \[1\]",
    ),
    Fault(
        a_message_has_to_be_written_as_spark_would,
        caught_by=f"{BATCH}::test_a_list_may_come_in_blocks",
        message=r"assert \[DeadLetter",
    ),
    Fault(
        bytes_may_follow_a_message,
        caught_by=f"{BATCH}::test_whatever_follows_a_message_makes_it_unreadable",
        message=r"assert \['DecodeError'\] == ",
    ),
    Fault(
        a_shard_without_a_view_gets_no_verdicts,
        caught_by=f"{BATCH}::test_a_shard_without_a_view_is_passed_over_as_a_whole",
        message=r"Extra items in the left set",
    ),
    Fault(
        a_kept_plan_has_the_tables_that_it_was_made_with,
        caught_by=f"{BATCH}::test_a_marker_changes_the_tables_of_a_kept_plan",
        message=r"assert 0 == 1",
    ),
    Fault(
        a_search_ends_a_step_early,
        caught_by="tests/property/test_spark_rule.py::test_a_thousand_snapshots",
        message=r"UnknownDeathError",
    ),
    Fault(
        a_stage_has_a_task_for_each_partition,
        caught_by="tests/integration/test_prepared_plan.py::test_no_stage_has_one_task_for_each_shard",
        message=r"assert (64|3) == ",
    ),
    Fault(
        results_that_do_not_come_are_taken_for_none,
        caught_by=f"{BATCH}::test_what_was_found_is_of_all_groups",
        message=r"assert [01] == 5",
    ),
    Fault(
        an_entry_ahead_of_the_chain_ends_the_job,
        caught_by=f"{JOB}::test_an_entry_with_a_false_chain_version_is_dead_lettered_once_its_wait_is_over",
        message=r"PrematureError",
    ),
    Fault(
        a_partition_that_is_added_ends_the_query,
        caught_by=f"{JOB}::test_a_shard_that_is_added_is_judged_by_the_running_job",
        message=r"it never came to be",
    ),
    Fault(
        a_broken_chain_stops_every_shard,
        caught_by=f"{CHAIN}::test_a_gap_is_closed_when_every_version_that_was_named_is_reached",
        message=r"nothing of any shard is judged",
    ),
    Fault(
        a_chain_is_whole_as_soon_as_a_marker_follows,
        caught_by=f"{CHAIN}::test_a_gap_is_closed_when_every_version_that_was_named_is_reached",
        message=r"assert not True",
    ),
    Fault(
        any_part_of_a_whole_chain_mends_it,
        caught_by=f"{CHAIN}::test_only_the_last_part_of_a_whole_chain_mends_it",
        message=r"a part is missing",
    ),
    Fault(
        what_waits_counts_as_a_part_that_was_judged,
        caught_by=f"{BATCH}::test_a_message_that_knows_of_more_chain_is_named_and_nothing_else_suffers",
        message=r"what waits is no part that was judged",
    ),
    Fault(
        a_premature_entry_waits_for_ever,
        caught_by=f"{WAITING}::test_a_premature_message_waits_so_long_and_no_longer",
        message=r"assert \[\] == \[Premature",
    ),
    Fault(
        what_waits_is_forgotten_by_a_restart,
        caught_by=f"{JOB}::test_a_broken_chain_keeps_its_own_shard_waiting_and_no_other",
        message=r"it never came to be",
    ),
    Fault(
        what_waits_is_trimmed,
        caught_by=f"{WAITING}::test_what_waits_is_not_trimmed",
        message=r"assert \[50.0, 60.0\] == \[50, 10\]",
    ),
    Fault(
        the_ledger_has_one_released_schema,
        caught_by="tests/integration/test_ledger.py::"
        "test_every_published_schema_is_exported_and_others_are_dead_lettered",
        message=r"too many values to unpack",
    ),
    Fault(
        what_a_newer_plane_wrote_is_dead_lettered,
        caught_by="tests/integration/test_ledger.py::"
        "test_every_published_schema_is_exported_and_others_are_dead_lettered",
        message=r"which is not published",
    ),
)
