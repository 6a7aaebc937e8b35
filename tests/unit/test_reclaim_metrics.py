"""What the Spark job reports: for each shard a number at every moment, 0 where nothing waits; how late verdicts are."""

from __future__ import annotations

from unittest import mock

from prometheus_client import CollectorRegistry, Gauge

from streaming.reclaiming.metrics import ReclaimMetrics
from streaming.reclaiming.outcome import BatchOutcome, PrematureMessage, PublishedEntries, Stretch
from streaming.reclaiming.waiting import Waiting

PASSED_OVER = "deepclean_streaming_passed_over_messages"


def passed_over(registry: CollectorRegistry) -> dict[str, float]:
    """Messages that wait, by shard, as a scrape has them."""
    found = [sample for family in registry.collect() for sample in family.samples if sample.name == PASSED_OVER]
    return {sample.labels["shard"]: sample.value for sample in found}


def test_a_shard_of_which_nothing_waits_reads_0() -> None:
    registry, waiting = CollectorRegistry(), Waiting()
    metrics = ReclaimMetrics(registry)
    metrics.waiting(waiting, 3)
    assert passed_over(registry) == {"0": 0, "1": 0, "2": 0}
    waiting.add([Stretch(1, 5, 12), Stretch(4, 0, 2)], [PrematureMessage(0, 7, 5)], 100)
    metrics.waiting(waiting, 3)
    assert passed_over(registry) == {"0": 0, "1": 7, "2": 0, "4": 2}, "a shard that was added is known by what waits"
    assert registry.get_sample_value("deepclean_streaming_premature_messages") == 1
    waiting.judged([Stretch(1, 5, 12), Stretch(4, 0, 2)])
    metrics.waiting(waiting, 5)
    assert passed_over(registry) == dict.fromkeys("01234", 0)


def test_a_scrape_meets_every_shard_while_the_numbers_are_replaced() -> None:
    registry, waiting = CollectorRegistry(), Waiting()
    metrics = ReclaimMetrics(registry)
    waiting.add([Stretch(0, 0, 5), Stretch(1, 0, 5)], (), 100)
    metrics.waiting(waiting, 2)
    met = list[dict[str, float]]()
    labels = Gauge.labels

    def labels_after_a_scrape(gauge: Gauge, *values: str) -> Gauge:
        met.append(passed_over(registry))
        return labels(gauge, *values)

    waiting.add([Stretch(0, 5, 9)], (), 100)
    with mock.patch.object(Gauge, "labels", labels_after_a_scrape):
        metrics.waiting(waiting, 2)
    assert met == [{"0": 5, "1": 5}, {"0": 9, "1": 5}]
    assert passed_over(registry) == {"0": 9, "1": 5}


def test_a_verdict_is_as_old_as_the_message_of_its_entry() -> None:
    registry = CollectorRegistry()
    metrics = ReclaimMetrics(registry)
    published = (PublishedEntries(100_000, 3), PublishedEntries(399_500, 40), PublishedEntries(500_000, 1))
    with mock.patch("streaming.reclaiming.metrics.time.time", return_value=400.0):
        metrics.batch_judged(BatchOutcome(published=published), 1.0)
        metrics.caught_up(BatchOutcome(published=(PublishedEntries(0, 2),)))

    def within(bound: str) -> float | None:
        return registry.get_sample_value("deepclean_streaming_verdict_seconds_bucket", {"le": bound})

    assert [within(bound) for bound in ("0.5", "60.0", "300.0", "900.0", "+Inf")] == [41, 41, 44, 46, 46]
    assert registry.get_sample_value("deepclean_streaming_verdict_seconds_sum") == 3 * 300 + 40 * 0.5 + 2 * 400
